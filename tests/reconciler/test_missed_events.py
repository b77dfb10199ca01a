"""Events that never came by webhook: found in Stripe's list, brought, and done once, whatever is killed meanwhile."""

from __future__ import annotations

from collections import Counter
from typing import Any

import psycopg
import pytest

from tests.every_run import mostly_long
from tests.processor.armed import KILLED, armed
from tests.processor.processor_process import wait_until
from tests.reconciler.conftest import CONNECTED, PLATFORM, MakeReconcilerRoad, ReconcilerRoad
from tests.reconciler.test_findings import command

READS_MAX = 5
"""Of an account, in a look that finds nothing new."""
ODD_LISTS = {
    "repeat_page": "repeated",
    "endless_list": "repeated",
    "item_without_id": "without_id",
    "empty_page": "endless",
}


def told(**counts: int) -> dict[str, Any]:
    return {"listed": 0, "missed": 0, "brought": 0, "objects": 0, "drifts": 0, "waits": None, **counts}


def seen(road: ReconcilerRoad) -> Counter[str]:
    return Counter(row["event_id"] for row in road.rows("SELECT event_id FROM public.seen"))


def test_what_was_missed_is_brought_done_once_and_healed(road: ReconcilerRoad) -> None:
    events = road.customers(120)
    road.stripe.advance(5)
    dry = road.once_by_command("--dry-run", status=1)
    assert dry[PLATFORM] == told(listed=120, missed=120)
    assert (road.states(), road.findings(), road.cursor()) == ({}, [], None), "nothing was written"
    first = road.once_by_command()
    assert first[PLATFORM] == told(listed=120, missed=120, brought=120)
    # Nothing has read them yet: they wait in the topic, and are not missed a second time.
    assert road.once()[PLATFORM]["missed"] == 0
    assert {row["state"] for row in road.findings()} == {"open"}
    with road.processor():
        road.wait_for_events(120)
    assert seen(road) == Counter(events)
    assert set(road.states().values()) == {"processed"}
    assert road.once()[PLATFORM] == told(listed=120)
    found = road.findings()
    assert {(row["kind"], row["state"], row["times"]) for row in found} == {("missed_event", "healed", 1)}
    assert sorted(row["facts"]["event_id"] for row in found) == sorted(events)
    assert road.rows("SELECT count(*) AS n FROM onceflow.remedy") == [{"n": 120}]
    assert len(road.outcome_ids()) == 120


@pytest.mark.parametrize("point", ["reconciler.before_publish", "reconciler.after_publish"])
def test_a_reconciler_that_is_killed_loses_and_doubles_nothing(road: ReconcilerRoad, point: str) -> None:
    events = road.customers(150)
    road.stripe.advance(5)
    with armed(road, point, "kill9", command="reconcile") as process:
        wait_until(lambda: process.poll() is not None, "it is killed")
        assert process.returncode == KILLED
    cursor = road.cursor()
    # Its lease ends by itself.
    wait_until(lambda: _leased_no_more(road), "its lease has ended")
    found = road.once()[PLATFORM]
    assert found["listed"] == 150
    assert road.cursor() > cursor
    with road.processor():
        road.wait_for_events(150)
    assert seen(road) == Counter(events)


def _leased_no_more(road: ReconcilerRoad) -> bool:
    query = "SELECT lease_until <= clock_timestamp() AS over FROM onceflow.lease WHERE name LIKE 'reconciler:%%'"
    return all(row["over"] for row in road.rows(query))


@pytest.mark.parametrize("fault", mostly_long(ODD_LISTS, every_run=["endless_list", "repeat_page"]))
def test_a_list_that_cannot_be_believed_moves_nothing_and_others_go_on(road: ReconcilerRoad, fault: str) -> None:
    road.stripe.connect(CONNECTED)
    road.once(accounts=CONNECTED)
    cursor = road.cursor()
    road.customers(3)
    road.customers(2, account=CONNECTED)
    road.stripe.advance(60)
    match = {"path": "/v1/events", "account": PLATFORM}
    # The first answer only tells Stripe's time.
    road.stripe.faults.add(fault, match=match, skip=1, times=1000)
    found = road.once(status=1, accounts=CONNECTED)
    assert found[CONNECTED] == told(listed=2, missed=2, brought=2)
    assert found[PLATFORM]["waits"] == ODD_LISTS[fault]
    assert road.cursor() == cursor
    [finding] = [row for row in road.findings() if row["kind"] == "list_unbelievable"]
    assert (finding["state"], finding["facts"]["why"]) == ("open", ODD_LISTS[fault])
    road.stripe.faults.clear()
    assert road.once(accounts=CONNECTED)[PLATFORM]["waits"] is None
    assert [row["state"] for row in road.findings() if row["kind"] == "list_unbelievable"] == ["healed"]
    with road.processor(ONCEFLOW_STRIPE_ACCOUNTS=CONNECTED):
        road.wait_for_events(5)


def test_what_is_hard_to_write_is_brought_all_the_same(road: ReconcilerRoad) -> None:
    now = int(road.stripe.state()["now"])
    subject = {"id": "cus_1", "object": "customer", "name": "half \ud83d of it", "note": "a\x00b", "number": 10**30}
    told_event = {
        "id": "evt_hard",
        "type": "customer.created",
        "created": now,
        "livemode": False,
        "data": {"object": subject},
    }
    road.stripe.tell_events([told_event])
    road.stripe.advance(5)
    assert road.once()[PLATFORM]["brought"] == 1
    with road.processor():
        road.wait_for_events(1)
    assert road.states() == {"evt_hard": "processed"}
    assert road.once()[PLATFORM]["missed"] == 0


def test_what_can_never_be_brought_is_told_and_keeps_no_other_waiting(make_road: MakeReconcilerRoad) -> None:
    road = make_road(partitions=1)
    now = int(road.stripe.state()["now"])
    common = {"type": "customer.created", "created": now, "livemode": False}
    small, large = {"id": "cus_1", "object": "customer"}, {"id": "cus_2", "object": "customer", "note": "x" * 1_200_000}
    told_events = [
        {**common, "id": "evt_large", "data": {"object": large}},
        {**common, "id": "evt-odd", "data": {"object": small}},
        {**common, "id": "evt_theirs", "account": "acct_other", "data": {"object": small}},
        {**common, "id": "evt_good", "data": {"object": small}},
    ]
    road.stripe.tell_events(told_events)
    road.stripe.advance(5)
    first = road.once(status=1)[PLATFORM]
    assert (first["missed"], first["brought"], first["waits"]) == (4, 1, None)
    refused = {row["facts"]["event_id"]: row["facts"].get("refused", "") for row in road.findings()}
    assert "the topic does not take its record" in refused["evt_large"]
    assert "none that an event of this account has" in refused["evt-odd"] == refused["evt_theirs"]
    assert refused["evt_good"] == ""
    assert road.rows("SELECT count(*) AS n FROM onceflow.remedy") == [{"n": 1}]
    with road.processor():
        road.wait_for_events(1)
    second = road.once(status=1)[PLATFORM]
    assert (second["missed"], second["brought"]) == (3, 0), "the cursor has moved: the overlap shows them again"
    assert _positions(road) == 1, "nothing was written in vain"
    for status in (1, 0):
        road.stripe.advance(3600)
        road.once(status=status)
    waiting = road.rows("SELECT id, subject FROM onceflow.finding WHERE kind = 'missed_event' AND state = 'open'")
    assert sorted(row["subject"].rpartition("/")[2] for row in waiting) == ["evt-odd", "evt_large", "evt_theirs"]
    # What a person took as it is, is none any more.
    numbers = [str(row["id"]) for row in waiting]
    healed = command(road, "heal", *numbers, "--reason", "again", "--execute", status=1)
    assert healed.stderr.count("none that an event of this account has") == 2
    command(road, "accept", *numbers, "--reason", "known", "--execute")
    with psycopg.connect(road.database_url) as connection:
        connection.execute("UPDATE onceflow.reconcile_cursor SET done_until = done_until - interval '2 hours'")
    assert road.once()[PLATFORM] == told(listed=4)


def test_a_look_with_nothing_to_do_reads_little_of_each_account(road: ReconcilerRoad) -> None:
    road.stripe.connect(CONNECTED)
    # No hour is due to be read as a whole.
    road._environment["ONCEFLOW_RECONCILER_FIRST_HOURS"] = "1"
    road.customers(3)
    road.customers(2, account=CONNECTED)
    road.stripe.advance(5)
    road.once(accounts=CONNECTED)
    with road.processor(ONCEFLOW_STRIPE_ACCOUNTS=CONNECTED):
        road.wait_for_events(5)
    before = _reads(road)
    road.once(accounts=CONNECTED)
    # The time, events, payments, refunds, and webhook endpoints, which a service looks at only now and then.
    read = _reads(road) - before
    assert set(read) == {PLATFORM, CONNECTED}
    assert max(read.values()) <= READS_MAX, read


def _reads(road: ReconcilerRoad) -> Counter[str]:
    found: Counter[str] = Counter()
    for one in road.stripe.call("GET", "/reads")["reads"]:
        found[one["account"]] += one["count"]
    return found


def test_events_that_become_visible_late_are_found_in_the_overlap(road: ReconcilerRoad) -> None:
    road.once()
    road.stripe.set(event_lag_seconds=300)
    assert road.customers(4) == [], "nobody sees them yet"
    road.stripe.advance(200)
    assert road.once()[PLATFORM]["listed"] == 0
    road.stripe.advance(200)
    assert road.once()[PLATFORM]["brought"] == 4


def test_a_webhook_that_comes_after_all_is_a_duplicate_and_no_conflict(make_road: MakeReconcilerRoad) -> None:
    """The list writes the event with other bytes than the webhook has."""
    road = make_road(partitions=1)
    [event_id] = road.customers(1)
    road.stripe.advance(5)
    road.once()
    with road.processor():
        road.wait_for_events(1)
        road.deliver(event_id)
        wait_until(lambda: _positions(road) == 2, "the webhook's record is read")
    assert road.rows("SELECT code FROM onceflow.quarantine") == []
    assert seen(road) == Counter([event_id])


def _positions(road: ReconcilerRoad) -> int:
    return int(road.rows("SELECT sum(next_offset) AS n FROM onceflow.progress")[0]["n"])
