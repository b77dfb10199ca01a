"""Operations beside a reconciler: what somebody else does at Stripe under our names, and what happened while nobody could look.

Rule: what a script has done is told by the fault, and is no effect of ours: the verdict leaves it out, and the fault asks that it is found.
"""

from __future__ import annotations

import signal
import uuid
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace
from random import Random
from typing import Any

from tests.chaos.fault import fault, fired
from tests.chaos.operations_world import PRICE, OperationsWorld
from tests.chaos.reconciler_lists import accept_what_nobody_lists, wait_finding
from tests.chaos.reconciler_world import ReconcilerWorld
from tests.chaos.snapshots import copy_postgres, put_postgres_back
from tests.chaos.world import World
from tests.checker.operation_snapshot import Operations
from tests.checker.truth import Truth

METADATA_KEY = "onceflow_operation"
DAY = 86_400
REACH_DAYS = 30
OPERATION_GONE = frozenset({"I4: operation"})
"""What consumers were told of an operation came back from the topic, and the operation did not: a person is asked about its object."""


class ProvedOperationsWorld(ReconcilerWorld, OperationsWorld):
    """Both worlds in one: workers of operations, a reconciler, and one Stripe that delivers and lists."""

    commands: Mapping[str, str] = {**OperationsWorld.commands, **ReconcilerWorld.commands}

    def __init__(self, folder: Any, *, seed: int) -> None:
        super().__init__(folder, seed=seed)
        self.scripted: set[str] = set()
        """Ids of intents, charges and refunds that a script has made."""

    def heal(self) -> None:
        """Bring everything back; the simulator does nothing wrong any more."""
        self.simulator.set(account_per_second=None, endpoint_per_second=None)
        OperationsWorld.heal(self)

    def read_operations(self) -> Operations:
        """What a script did is no movement of ours."""
        found = super().read_operations()
        return replace(found, movements=tuple(one for one in found.movements if one.object not in self.scripted))

    def truth(self) -> Truth:
        """Objects at Stripe that name an operation which does not know them are differences as well."""
        found = super().truth()
        return replace(found, differences={**found.differences, **self._objects_astray()})

    def _objects_astray(self) -> Counter[str]:
        known = {str(one): at for one, at in self.rows("SELECT id, external_id FROM onceflow.operation")}
        since = int(self.simulator.state()["now"]) - REACH_DAYS * DAY
        asked: Any = {"created": {"gte": since}, "limit": 100}
        lists: Any = (self.client().v1.payment_intents.list(asked), self.client().v1.refunds.list(asked))
        found: Counter[str] = Counter()
        for one in (one for page in lists for one in page.auto_paging_iter()):
            operation = one.to_dict().get("metadata", {}).get(METADATA_KEY)
            if operation is None or one.status != "succeeded":
                continue
            if operation not in known:
                found["object_without_operation"] += 1
            elif known[operation] != one.id:
                found["operation_doubled"] += 1
        return found

    def objects_of(self, operations: Collection[str]) -> set[str]:
        """Ids of all that Stripe's ledger has under operations."""
        return {str(one["object"]) for one in self.simulator.ledger().entries if one["operation"] in operations}

    def script_charges(self, operation: str) -> str:
        """A forgotten script takes money under the metadata of an operation; the id of its intent."""
        paid: Any = {"amount": PRICE, "currency": "usd", "confirm": True, "payment_method": "pm_card_visa"}
        paid["metadata"] = {METADATA_KEY: operation}
        intent = self.client().v1.payment_intents.create(paid)
        self.scripted |= {str(intent.id), str(intent.latest_charge)}
        return str(intent.id)


@fault(
    "X15/script",
    "a forgotten script charges under the metadata of our operations",
    soak="operations_proved",
    quiet=True,
    points=("reconciler.in_look",),
)
def forgotten_script(world: World, dice: Random) -> str:
    """A second charge under an operation that has succeeded, and one under an id that nobody asked for: found, told with the money, not doubled by us."""
    assert isinstance(world, ProvedOperationsWorld)
    with world.asking() as asking:
        asking.charge()
        asking.charge()
    world.wait_states(asking.ids, "succeeded")
    reconciler = world.parts["reconciler"]
    reconciler.arm("reconciler.in_look", "kill9")
    doubled = world.script_charges(asking.ids[0])
    stranger = world.script_charges(str(uuid.UUID(int=dice.getrandbits(128), version=4)))
    killed = reconciler.wait_fired()
    assert reconciler.wait_ended() == -signal.SIGKILL
    world.restart("reconciler")
    about_doubled = wait_finding(world, "operation_doubled", "open")
    about_stranger = wait_finding(world, "object_without_operation", "open")
    assert [doubled in text for text in about_doubled] == [True], about_doubled
    assert [stranger in text for text in about_stranger] == [True], about_stranger
    rows = world.rows(
        "SELECT kind, amount, currency FROM onceflow.finding WHERE kind IN ('operation_doubled', 'object_without_operation') ORDER BY 1"
    )
    assert [(amount, currency) for _, amount, currency in rows] == [(PRICE, "usd")] * 2, rows
    ledger = world.simulator.ledger()
    ours = [
        one
        for one in ledger.entries
        if one["kind"] == "charge" and one["operation"] in asking.ids and one["object"] not in world.scripted
    ]
    fired(len(world.scripted) == 4, "the script has charged")
    world.expected = frozenset({"operation_doubled", "object_without_operation"})
    assert len(ours) == 2, ours
    return f"{killed}; found: {sorted(kind for kind, *_ in rows)}, {PRICE} usd at stake each; our own charges: {len(ours)} of 2"


@fault(
    "D6/operations",
    "PostgreSQL is put back behind operations that were done",
    soak="operations_restored",
    breaks=OPERATION_GONE,
    last=True,
    quiet=True,
)
def operations_put_back(world: World, dice: Random) -> str:
    """One that waits again is sent under its key; of one that nobody knows any more a person is told; none is charged twice."""
    assert isinstance(world, ProvedOperationsWorld)
    world.parts["operator"].stop()
    with world.asking() as before:
        before.charge()
        before.charge()
    copy = copy_postgres(world)
    world.heal()
    world.wait_states(before.ids, "succeeded")
    with world.asking() as after:
        after.charge()
    world.wait_states(after.ids, "succeeded")
    assert world.settle() is None, world.proved()
    for name in ("bridge", "processor", "relay", "operator", "reconciler"):
        world.parts[name].stop()
    put_postgres_back(world, copy)
    fired(
        world.states([*before.ids, *after.ids]) == dict.fromkeys(before.ids, "requested"),
        "the rows know less than Stripe",
    )
    world.heal()
    world.wait_states(before.ids, "succeeded")
    [stranger] = wait_finding(world, "object_without_operation", "open")
    charges = Counter(one["operation"] for one in world.simulator.ledger().entries if one["kind"] == "charge")
    assert charges == dict.fromkeys([*before.ids, *after.ids], 1), charges
    world.scripted |= world.objects_of(after.ids)
    world.restored |= set(before.ids)
    world.expected = frozenset({"object_without_operation"})
    return f"2 waiting again and succeeded under their keys, 1 told to a person ({stranger}); {charges.total()} charges of 3"


@fault(
    "R4/refund",
    "a refund fails while nobody can list its event any more",
    soak="operations_away",
    last=True,
    quiet=True,
)
def refund_failed_out_of_reach(world: World, dice: Random) -> str:
    """35 days later the event is out of reach: the object is compared again, the workers settle what it shows, and a person is asked."""
    assert isinstance(world, ProvedOperationsWorld)
    with world.asking() as asking:
        asking.refund()
    [refund] = asking.ids
    world.wait_states([refund], "succeeded")
    assert world.settle() is None, world.proved()
    object_id = str(world.value("SELECT external_id FROM onceflow.operation WHERE id = %s", uuid.UUID(refund)))
    for name in ("bridge", "processor", "operator", "reconciler"):
        world.parts[name].stop()
    world.let_pass(2 * DAY)
    # Nor is its webhook tried again until somebody is back.
    for endpoint in world.simulator.call("GET", "/webhooks")["endpoints"]:
        world.simulator.change_webhook(endpoint["id"], drop=1.0)
    world.simulator.act("refund_fails", object_id)
    world.let_pass(33 * DAY)
    for name in ("bridge", "processor", "operator", "reconciler"):
        world.restart(name)
    wait_finding(world, "events_out_of_reach", "open")
    wait_finding(world, "refund_failed_later", "open")
    wait_finding(world, "operation_behind", "healed")
    [facts] = [row[0] for row in world.rows("SELECT facts FROM onceflow.finding WHERE kind = 'operation_behind'")]
    assert facts["object_id"] == object_id
    assert facts["derived"] is True, facts
    accept_what_nobody_lists(world)
    assert world.states([refund]) == {refund: "failed"}
    return f"derived from the object: {facts['why']}; the operation has failed, and a person is asked (refund_failed_later)"
