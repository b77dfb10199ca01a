"""The running system with workers of operations and a simulator as its Stripe, whose webhooks come back to the bridge.

Rule: every request that reaches the simulator stands in its journal, because the last rule in force meets all of them; the
checker compares it, and the ledger of money, with our tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import stripe

from onceflow import Tx, attach
from onceflow_simulator import Simulator
from tests.chaos.part import Part
from tests.chaos.world import COMMANDS, SETTLE_SECONDS, World
from tests.checker.judge import Verdict
from tests.checker.judge_operations import judge_operations, judge_operations_pair
from tests.checker.operation_reading import read_operations
from tests.checker.operation_snapshot import Operations
from tests.checker.violation import Violation
from tests.checker.waiting import NotReached, wait_for
from tests.load.counted_operations import SETTLEMENT_TABLE, give_part_back, take_card

CALL_SECONDS_MAX = 3
OPERATION_LEASE_SECONDS = 14
STATES_SECONDS = 60.0
PRICE = 2_000
PART_OF_IT = 500
CARD = "pm_card_visa"
API_KEY = "sk_test_chaos"
"""The workers' key; others have their own."""


Rule = dict[str, Any]
"""A fault of the simulator, as ``/_sim/faults`` takes it."""


@dataclass(slots=True)
class Asking:
    """An application's transaction that asks for operations; their faults are in force before it commits."""

    world: OperationsWorld
    tx: Tx
    number: int
    ids: list[str] = field(default_factory=list)
    rules: list[Rule] = field(default_factory=list)

    def charge(self, *, card: str = CARD, amount: int = PRICE, **more: Any) -> str:
        """Ask for a charge."""
        given = {"amount": amount, "currency": "usd", "payment_method": card, **more}
        return self._note(self.tx.request(take_card, subject=self._subject(), **given))

    def refund(self, *, charge: str | None = None, amount: int = PART_OF_IT, **more: Any) -> str:
        """Ask for a part of a charge back: of one made for this, or of the given one."""
        subject = self._subject()
        paid = charge or self.world.paid_charge(subject)
        return self._note(self.tx.request(give_part_back, subject=subject, charge=paid, amount=amount, **more))

    def fault(self, name: str, key: str, **rule: Any) -> None:
        """Let the simulator do something wrong with the POST of this key: an id of an operation, or ``<id>.confirm``."""
        self.rules.append({"fault": name, "match": {"method": "POST", "key": key}, **rule})

    def _subject(self) -> str:
        return f"order-{self.number}-{len(self.ids) + 1}"

    def _note(self, made: str) -> str:
        self.ids.append(made)
        return made


class OperationsWorld(World):
    """See the module; arguments as those of ``World``."""

    commands: Mapping[str, str] = {**COMMANDS, "operator": "operate"}
    handlers = "tests.load.counted_operations:handlers"

    def __init__(
        self, folder: Path, *, seed: int, shifted_clock: bool = False, settings: Mapping[str, Any] | None = None
    ) -> None:
        own = {
            "operations.call_seconds_max": CALL_SECONDS_MAX,
            "operations.connect_seconds": CALL_SECONDS_MAX,
            "operations.lease_seconds": OPERATION_LEASE_SECONDS,
            "operations.callback_deadline_seconds": 1,
            "operations.requests_per_second": 500,
            "operations.burst": 200,
            "operations.poll_seconds": 0.5,
        }
        super().__init__(folder, seed=seed, settings={**own, **(settings or {})}, shifted_clock=shifted_clock)
        self.simulator = Simulator(seed=seed)
        self.closed: dict[str, int] = {}
        self.asleep: set[str] = set()
        self.restored: set[str] = set()
        self._asked = 0
        self._operations: Operations | None = None
        self._rules: list[str] = []

    # Life

    def start(self) -> None:
        """Start the simulator, then everything; returns when all are ready."""
        if not self.simulator.pid:
            self.simulator.__enter__()
        self._settings |= {"stripe.api_base": self.simulator.url, "stripe.api_key": API_KEY}
        self.script()
        super().start()
        self.simulator.add_webhook(self.webhook_url, secrets=[self.secret], retry_scale=0.01)

    def stop(self) -> None:
        """End everything."""
        try:
            super().stop()
        finally:
            if self.simulator.pid:
                self.simulator.stop()

    def _prepare(self) -> None:
        super()._prepare()
        self.rows(f"CREATE TABLE {SETTLEMENT_TABLE} (operation text NOT NULL, state text NOT NULL)")

    def heal(self) -> None:
        """Bring everything back; the simulator does nothing wrong any more."""
        self.script()
        self.simulator.set(latency_ms=0, search_refused=False)
        super().heal()

    @property
    def operator(self) -> Part:
        """The first worker."""
        return self.parts["operator"]

    # Stripe

    def script(self, *rules: Rule) -> None:
        """Put these rules in force instead of all others; the last one only notes what comes."""
        former, self._rules = self._rules, []
        for rule in (*rules, {"fault": "slow", "name": "watch", "times": None}):
            self._rules.append(str(self.simulator.call("POST", "/faults", body={"times": 1, **rule})["ids"][0]))
        for rule_id in former:
            self.simulator.call("DELETE", f"/faults/{rule_id}")

    def client(self) -> stripe.StripeClient:
        """Stripe's own library, as somebody else uses it."""
        stripe.enable_telemetry = False
        bases: Any = {"api": self.simulator.url}
        return stripe.StripeClient(self.simulator.api_key, base_addresses=bases, max_network_retries=0)

    def paid_charge(self, order: str, *, card: str = CARD, amount: int = PRICE) -> str:
        """A charge that was made before, by somebody else, for an order; its id."""
        paid: Any = {"amount": amount, "currency": "usd", "confirm": True, "payment_method": card}
        paid["metadata"] = {"order": order}
        return str(self.client().v1.payment_intents.create(paid).latest_charge)

    def journal(self, *keys: str) -> list[dict[str, Any]]:
        """The requests so far; with ``keys`` only those POSTs whose key begins with one."""
        entries = self.simulator.journal()
        return [one for one in entries if not keys or (one["method"] == "POST" and (one["key"] or "").startswith(keys))]

    # Operations

    @contextmanager
    def asking(self) -> Iterator[Asking]:
        """Ask for operations in a transaction of an application's own."""
        self._asked += 1
        with psycopg.connect(self.database_url) as connection:
            asking = Asking(self, attach(connection, cause=f"chaos:{self._asked}"), self._asked)
            yield asking
            if asking.rules:
                self.script(*asking.rules)

    def states(self, ids: Sequence[str]) -> dict[str, str]:
        """The states of operations, by id."""
        found = self.rows("SELECT id, state FROM onceflow.operation WHERE id = ANY(%s)", [UUID(one) for one in ids])
        return {str(identity): state for identity, state in found}

    def wait_states(
        self, ids: Sequence[str], *states: str, limit_seconds: float = STATES_SECONDS, hasten: bool = True
    ) -> dict[str, str]:
        """Wait until all of them are in one of these states; time that they only wait for is left out."""

        def reached() -> dict[str, str] | None:
            if hasten:
                self.hasten()
            found = self.states(ids)
            return found if len(found) == len(ids) and set(found.values()) <= set(states) else None

        try:
            return wait_for(reached, limit_seconds=limit_seconds, what=f"{ids} are {states}", step_seconds=0.3)
        except NotReached as error:
            raise NotReached(f"{error}; they are {self.described(ids)}") from error

    def described(self, ids: Sequence[str]) -> list[tuple[Any, ...]]:
        """What stands in the rows, for people."""
        return self.rows(
            "SELECT left(operation.id::text, 8), effect, state, step, tries, last_error,"
            " (SELECT string_agg(concat_ws(':', name, evidence), ' ' ORDER BY n) FROM onceflow.attempt"
            "  WHERE operation_id = operation.id)"
            " FROM onceflow.operation WHERE id = ANY(%s)",
            [UUID(one) for one in ids],
        )

    def evidences(self, identity: str) -> list[str | None]:
        """What the attempts of an operation proved, in their order."""
        rows = self.rows("SELECT evidence FROM onceflow.attempt WHERE operation_id = %s ORDER BY n", UUID(identity))
        return [row[0] for row in rows]

    def hasten(self) -> None:
        """Let nothing that nobody has leased wait any longer: a worker decides by the clock what may be done then."""
        self.rows(
            "UPDATE onceflow.operation SET next_attempt_at = clock_timestamp()"
            " WHERE lease_owner IS NULL AND next_attempt_at < 'infinity' AND next_attempt_at > clock_timestamp()"
        )

    def end_leases(self) -> None:
        """Let the leases of workers that are dead end now."""
        self.rows(
            "UPDATE onceflow.operation SET lease_until = clock_timestamp(), next_attempt_at = clock_timestamp()"
            " WHERE lease_owner IS NOT NULL"
        )

    def age(self, ids: Sequence[str], *, hours: float) -> None:
        """Let so much time pass for these operations; after 20 hours their window is closed, after 24 Stripe forgets all keys."""
        wanted = [UUID(one) for one in ids]
        self.rows(
            "UPDATE onceflow.operation SET requested_at = requested_at - make_interval(secs => %s),"
            " window_from = window_from - make_interval(secs => %s), looked_up_at = looked_up_at - make_interval(secs => %s)"
            " WHERE id = ANY(%s)",
            *[hours * 3600.0] * 3,
            wanted,
        )
        self.rows(
            "UPDATE onceflow.attempt SET sent_at = sent_at - make_interval(secs => %s),"
            " settled_at = settled_at - make_interval(secs => %s) WHERE operation_id = ANY(%s)",
            *[hours * 3600.0] * 2,
            wanted,
        )
        if hours >= 24:
            self.simulator.prune_keys()
        if hours >= 20:
            self.close_windows(ids)

    def close_windows(self, ids: Sequence[str]) -> None:
        """From now on each send of these operations must follow a look-up."""
        self.closed |= {one: len(self.simulator.journal()) for one in ids}

    def review_codes(self, identity: str) -> list[str]:
        """The codes of its open reviews."""
        rows = self.rows(
            "SELECT code FROM onceflow.review WHERE operation_id = %s AND decided_at IS NULL", UUID(identity)
        )
        return [row[0] for row in rows]

    # Verdict

    def settle(self, limit_seconds: float = SETTLE_SECONDS) -> str | None:
        """Wait until nothing is under way at Stripe, here, and between; return why not, when the limit has passed."""
        self.simulator.wait_delivered(timeout_seconds=limit_seconds)
        reason = super().settle(limit_seconds)
        if reason is not None:
            return reason
        try:
            wait_for(self._at_rest, limit_seconds=limit_seconds, what="operations are settled", step_seconds=1.0)
        except NotReached as error:
            return f"{error}: {self._left()}"
        return super().settle(limit_seconds)

    def _at_rest(self) -> bool:
        """Nothing is left to do; what waits for time to pass gets an hour each time."""
        waiting = self.rows("SELECT id::text FROM onceflow.operation WHERE state = 'unknown' AND lease_owner IS NULL")
        self.age([identity for (identity,) in waiting], hours=1)
        self.hasten()
        return not self._left()

    def _left(self) -> list[tuple[Any, ...]]:
        return self.rows(
            "SELECT operation.id, state, last_error FROM onceflow.operation"
            " WHERE next_attempt_at < 'infinity' OR lease_owner IS NOT NULL"
            " UNION ALL SELECT id, 'hint', event FROM onceflow.operation_hint JOIN onceflow.operation ON id = operation_id"
            " WHERE taken_at IS NULL"
        )

    def read_operations(self) -> Operations:
        """Operations as both ledgers have them."""
        return read_operations(
            self.database_url,
            self.simulator.url,
            settlement_table=SETTLEMENT_TABLE,
            closed=self.closed,
            asleep=frozenset(self.asleep),
            restored=frozenset(self.restored),
        )

    def verdict(self, limit_seconds: float = SETTLE_SECONDS) -> Verdict:
        """Judge the whole road, and the operations against Stripe's ledger."""
        settled = self.settle(limit_seconds)
        verdict = super().verdict(limit_seconds)
        found = self.read_operations()
        violations = judge_operations(found)
        if settled is not None:
            violations.append(Violation("I8", settled))
        if self._operations is not None:
            violations += judge_operations_pair(self._operations, found)
        self._operations = found
        violations += [Violation("I10", f"a bug of the simulator: {bug}") for bug in self.simulator.state()["bugs"]]
        fresh = tuple(one for one in violations if one not in self._told)
        self._told |= set(fresh)
        return Verdict((*verdict.violations, *fresh), verdict.counts)
