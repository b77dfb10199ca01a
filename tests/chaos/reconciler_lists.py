"""R2, R4, R7, P10: lists that lag, grow while they are read and speak another version; long outages; endpoints that Stripe switches off.

Rule: what Stripe lists is done once, what it does not list any more is named; and the system's own clock is never moved, only Stripe's.
"""

from __future__ import annotations

import signal
import threading
import time
from random import Random
from typing import Any

import stripe

from tests.chaos.fault import fault, fired
from tests.chaos.operating import run_command
from tests.chaos.reconciler_world import API_KEY, ReconcilerWorld
from tests.chaos.sending import body_of, event, post
from tests.chaos.world import World
from tests.checker.waiting import wait_for

DONE_SECONDS = 90.0
DAY = 86_400
LAG_SECONDS = 4
ONE_SECOND_EVENTS = 250
"""More than two pages of a list."""
EVENTS_A_DAY = 40
LATER_SECRET = "whsec_" + "bGF0ZXI" * 4
OTHER_VERSION = "2026-10-28.endive"


def client(world: ReconcilerWorld) -> stripe.StripeClient:
    """Stripe's own library, as somebody else uses it."""
    stripe.enable_telemetry = False
    bases: Any = {"api": world.simulator.url}
    return stripe.StripeClient("sk_test_somebody", base_addresses=bases, max_network_retries=2)


def make_customers(world: ReconcilerWorld, count: int) -> None:
    """Customers at Stripe: each is an event of its own."""
    by = client(world)
    for number in range(count):
        by.v1.customers.create({"name": f"customer {number}"})


def wait_all_listed_done(world: ReconcilerWorld, *, least: int) -> list[str]:
    """Wait until every event that Stripe lists has its marker; return their ids."""

    def done() -> list[str] | None:
        ids = [one["id"] for one in world.listed()]
        known = world.value("SELECT count(*) FROM onceflow.inbox WHERE event_id = ANY(%s)", ids)
        return ids if len(ids) >= least and known == len(ids) else None

    return wait_for(done, limit_seconds=DONE_SECONDS, what="all that Stripe lists is done", step_seconds=1.0)


def wait_finding(world: ReconcilerWorld, kind: str, state: str, *, limit_seconds: float = DONE_SECONDS) -> list[str]:
    """Wait until a finding of this kind is in this state; return what they are about."""

    def found() -> list[str]:
        return [subject for subject, is_in in world.findings(kind).items() if is_in == state]

    return wait_for(found, limit_seconds=limit_seconds, what=f"a finding {kind} is {state}", step_seconds=0.5)


def doubled(world: World) -> int:
    """Events of which the user's row stands more than once."""
    query = "SELECT count(*) FROM (SELECT event_id FROM shop.effect GROUP BY 1 HAVING count(*) > 1) AS doubled"
    return int(world.value(query))


@fault("R2", "events that are listed late, come while a list is read, and share their second", soak="reconciler")
def lagging_list(world: World, dice: Random) -> str:
    """Half of what happens is listed seconds later; a second has three pages; customers are made while pages are read."""
    assert isinstance(world, ReconcilerWorld)
    created = int(time.time()) - 30
    before = len(list(world.listed()))
    world.tell([{**event(), "created": created} for _ in range(ONE_SECOND_EVENTS)])
    world.simulator.set(event_lag_seconds=LAG_SECONDS, event_lag_share=0.5)
    maker = threading.Thread(target=make_customers, args=(world, 120), name="customers")
    maker.start()
    maker.join()
    shown = len(list(world.listed())) - before - ONE_SECOND_EVENTS
    world.simulator.set(event_lag_seconds=0)
    ids = wait_all_listed_done(world, least=before + ONE_SECOND_EVENTS + 120)
    assert doubled(world) == 0
    return fired(shown < 120, f"{shown} of 120 were listed at once, {len(ids)} listed in the end, all done once")


@fault("R7", "the list renders an event in another API version than its webhook", soak="reconciler", quiet=True)
def other_rendering(world: World, dice: Random) -> str:
    """Whichever comes first is done; the other is a duplicate and no conflict, whether version, order of fields or count differ."""
    assert isinstance(world, ReconcilerWorld)
    kept = world.value("SELECT count(*) FROM onceflow.quarantine")
    created = int(time.time()) - 20
    listed = [{**event(), "created": created} for _ in range(60)]
    world.tell(listed)
    wait_all_listed_done(world, least=len(listed))
    duplicates = 0
    for number, one in enumerate(listed):
        other = dict(reversed(one.items())) | {"pending_webhooks": 1 + number % 3}
        if number % 2:
            other |= {"api_version": OTHER_VERSION, "data": {"object": {**one["data"]["object"], "new_field": number}}}
        assert post(world, body_of(other), note=False)[0] == 200
        duplicates += 1
    assert world.settle() is None, world.proved()
    assert world.value("SELECT count(*) FROM onceflow.quarantine") == kept, "no conflict was found"
    assert doubled(world) == 0
    return f"{duplicates} webhooks of events from the list, half in another version: all duplicates, no conflict"


@fault("P10/endpoint", "Stripe disables the endpoint, and its secret is rolled", soak="reconciler")
def endpoint_disabled(world: World, dice: Random) -> str:
    """The endpoint is a finding while it is off, its events are brought; while the secret is rolled both are taken."""
    assert isinstance(world, ReconcilerWorld)
    endpoint = world.simulator.add_webhook(world.webhook_url, secrets=[world.secret], retry_scale=0.01)
    make_customers(world, 5)
    world.simulator.change_webhook(endpoint, enabled=False)
    missed = set(world.findings())
    make_customers(world, 20)
    wait_finding(world, "endpoint_disabled", "open")
    wait_all_listed_done(world, least=20)
    brought = set(world.findings()) - missed
    # A bridge that knows the new secret as well, as it is rolled out; Stripe signs with both, later with the new one alone.
    secrets = f"local={world.secret},later={LATER_SECRET}"
    url = world.join("bridge", stripe__webhook_secret=secrets).state["url"] + "/webhooks/stripe"
    world.canaries.append(LATER_SECRET)
    sent = len(world.simulator.deliveries())
    for given in ([world.secret], [world.secret, LATER_SECRET], [LATER_SECRET]):
        world.simulator.change_webhook(endpoint, enabled=True, url=url, secrets=given)
        make_customers(world, 5)
        world.simulator.wait_delivered(timeout_seconds=DONE_SECONDS)
    statuses = [one["status"] for one in world.simulator.deliveries()[sent:]]
    assert statuses == [200] * 15, statuses
    wait_finding(world, "endpoint_disabled", "healed")
    world.simulator.change_webhook(endpoint, url=world.webhook_url, secrets=[world.secret])
    return fired(
        len(brought) >= 20, f"{len(brought)} events brought while it was off; healed; 15 taken while the secret rolled"
    )


@fault("R4/3_days", "everything is away for 3 days of Stripe's clock", soak="reconciler_away", quiet=True)
def away_three_days(world: World, dice: Random) -> str:
    """Bridge, processor and reconciler are away; what happened meanwhile is brought, and nothing is out of reach."""
    assert isinstance(world, ReconcilerWorld)
    _load(world)
    _sleep(world)
    for _ in range(3):
        world.let_pass(DAY)
        make_customers(world, EVENTS_A_DAY)
    _wake(world)
    wait_all_listed_done(world, least=3 * EVENTS_A_DAY)
    assert world.findings("events_out_of_reach") == {}
    assert world.findings("reconcile_behind") == {}
    return f"{len(world.findings())} events of 3 days brought, 0 out of reach"


@fault(
    "R4/35_days",
    "nobody reads the list for 35 days of Stripe's clock, and who reads it then is killed",
    soak="reconciler_away",
    last=True,
    quiet=True,
    points=("reconciler.before_set_back",),
)
def away_35_days(world: World, dice: Random) -> str:
    """The alarm comes before the 30 days are over; of 35 days the last 30 are brought, and the others are named."""
    assert isinstance(world, ReconcilerWorld)
    _load(world)
    # The key is refused: the reconciler runs, and cannot read.
    world.simulator.add_key(API_KEY, revoked=True)
    wait_finding(world, "account_not_readable", "open")
    make_customers(world, 10)
    lost = max(one["created"] for one in world.listed())
    world.let_pass(26 * DAY)
    wait_finding(world, "reconcile_behind", "open")
    _sleep(world)
    make_customers(world, EVENTS_A_DAY)
    world.let_pass(9 * DAY)
    make_customers(world, EVENTS_A_DAY)
    world.simulator.add_key(API_KEY)
    reconciler = world.parts["reconciler"]
    reconciler.arm("reconciler.before_set_back", "kill9")
    for name in ("bridge", "processor"):
        world.restart(name)
    reconciler.start()
    killed = reconciler.wait_fired()
    assert reconciler.wait_ended() == -signal.SIGKILL
    world.restart("reconciler")
    ids = wait_all_listed_done(world, least=EVENTS_A_DAY)
    [named] = wait_finding(world, "events_out_of_reach", "open")
    query = (
        "SELECT (facts ->> 'since')::timestamptz <= to_timestamp(%s) AND (facts ->> 'until')::timestamptz > to_timestamp(%s)"
        " FROM onceflow.finding WHERE kind = 'events_out_of_reach'"
    )
    assert world.value(query, lost, lost), "the time of the lost events is named"
    wait_finding(world, "reconcile_behind", "healed")
    wait_finding(world, "account_not_readable", "healed")
    accept_what_nobody_lists(world)
    return f"alarm at 26 days, {killed}, {len(ids)} listed and done, named: {named}"


def accept_what_nobody_lists(world: ReconcilerWorld) -> None:
    """A person takes hours as they are that Stripe does not list any more, and whose list nobody kept."""
    kinds = ["events_out_of_reach", "hours_unproved"]
    told = world.verify("--findings")
    fired(told["unexplained"], f"{told['unexplained']} unexplained before somebody accepts them")
    rows = world.rows("SELECT id FROM onceflow.finding WHERE kind = ANY(%s) AND state = 'open'", kinds)
    numbers = [str(number) for (number,) in rows]
    run_command(world, ["findings", "accept", *numbers, "--reason", "out of reach", "--execute"], role="reconciler")


def _load(world: World) -> None:
    with world.loaded() as load:
        load.wait_for_answers(60)
    why = world.settle()
    assert why is None, why


def _sleep(world: World) -> None:
    for name in ("bridge", "processor", "reconciler"):
        world.parts[name].stop()


def _wake(world: World) -> None:
    for name in ("bridge", "processor", "reconciler"):
        world.restart(name)
