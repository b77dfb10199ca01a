"""``onceflow replay --rerun`` on real services: a mended handler, and what may come of it."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import psycopg
import pytest
from confluent_kafka import Consumer, TopicPartition

from onceflow_schemas.identity import ce_id
from tests.every_run import mostly_long
from tests.processor.processor_process import LANES, MakeRoad, Road, end, wait_until
from tests.processor.replay.killed import armed_replay, killed_replay, runs
from tests.processor.replay.replaying import REPLAY_SECONDS_MAX, ran, replayed, untouched

EVENTS = (
    "evt_same0", "evt_changed0", "evt_changed1", "evt_new0", "evt_gone0", "evt_asks0", "evt_wants0", "evt_conflict0",
    "evt_fails0",
)  # fmt: skip
FIRST = {"ONCEFLOW_PROCESSOR_HANDLERS": "tests.processor.replay.first_handlers:handlers"}
UNMENDED = ("--handlers", "tests.processor.replay.first_handlers:handlers")
MENDED = ("--handlers", "tests.processor.replay.mended_handlers:handlers")
RERUN = ("--rerun",)
EXECUTE = ("--rerun", "--execute", "--reason", "a mended handler")


@pytest.fixture
def road(make_road: MakeRoad) -> Road:
    """Events that the first handlers have done."""
    return done_by_first(make_road, list(EVENTS))


def _next_offset(road: Road) -> int:
    return sum(row["next_offset"] for row in road.rows("SELECT next_offset FROM onceflow.progress"))


def _outcomes(road: Road) -> list[dict[str, Any]]:
    return road.rows(
        "SELECT lane, seq, outcome_id, revision, ce_id, type, key, convert_from(value, 'UTF8') AS value"
        " FROM onceflow.outcome ORDER BY type, key, revision"
    )


def _seen(road: Road, by: int) -> int:
    return int(road.rows("SELECT count(*) AS n FROM public.seen WHERE pid = %s", by)[0]["n"])


def _everything(road: Road) -> list[Any]:
    """What a look must leave as it is."""
    tables = (
        "inbox",
        "outcome",
        "fact",
        "operation",
        "booked",
        "booking",
        "lane",
        "audit",
        "replay_run",
        "parked",
        "quarantine",
    )
    return [road.rows(f"SELECT * FROM onceflow.{table} ORDER BY 1, 2, 3") for table in tables] + [
        road.rows("SELECT * FROM public.seen ORDER BY 1, 2"), untouched(road),
    ]  # fmt: skip


def _found(answer: dict[str, Any]) -> set[tuple[str, str]]:
    return {(line["found"], line["event"].rpartition("/")[2]) for line in answer["found"]}


def test_a_look_tells_what_would_change_and_leaves_everything_as_it_is(road: Road) -> None:
    before = _everything(road)
    answer = replayed(road, *RERUN, *MENDED)
    assert (answer["run"], answer["executed"], answer["fates"]) == (None, False, {"run": len(EVENTS)})
    assert answer["left_out_handlers"] == ["mails"]
    assert _found(answer) == {
        ("changed", "evt_changed0"), ("changed", "evt_changed1"), ("new", "evt_new0"), ("gone", "evt_gone0"),
        ("operation_exists", "evt_asks0"), ("operation_new", "evt_wants0"), ("held", "evt_wants0"),
        ("operation_conflict", "evt_conflict0"), ("failed", "evt_conflict0"), ("failed", "evt_fails0"),
    }  # fmt: skip
    # Facts are answered True again where the event itself had claimed them, and totals as they were booked.
    assert answer["done"] == {
        "rerun": 9, "unchanged": 4, "changed": 2, "new": 1, "gone": 1, "operations_exists": 1, "operations_new": 1,
        "operations_conflict": 1, "failed": 2, "held": 1,
    }  # fmt: skip
    assert _everything(road) == before
    unmended = replayed(road, *RERUN, *UNMENDED)
    assert unmended["done"] == {"rerun": 9, "unchanged": 10, "operations_exists": 2}
    assert _everything(road) == before


def test_changed_outcomes_become_revisions_and_the_second_time_all_is_unchanged(road: Road) -> None:
    first, before = _outcomes(road), untouched(road)
    answer = replayed(road, *EXECUTE, *MENDED, status=1)
    assert (answer["done"]["changed"], answer["done"]["new"], answer["done"]["failed"]) == (2, 1, 2)
    after = _outcomes(road)
    assert [row for row in after if row in first] == first
    added = [row for row in after if row not in first]
    assert [(row["type"], row["key"], row["revision"]) for row in added] == [
        ("paid", "in_evt_changed0", 2), ("paid", "in_evt_changed1", 2), ("thanks", "in_evt_new0", 1),
    ]  # fmt: skip
    for row in added:
        assert row["ce_id"] == ce_id(row["outcome_id"], row["revision"])
    assert json.loads(added[0]["value"]) == {"added": 1, "first": False}
    lanes = road.rows(
        "SELECT lane, head_seq, (SELECT count(*) FROM onceflow.outcome WHERE lane = lane.lane) AS n FROM onceflow.lane"
    )
    assert all(row["head_seq"] == row["n"] for row in lanes), "the sequences have no gap"
    # The handlers' own SQL stays undone, but for the one that is declared safe; a failed or held event leaves nothing.
    assert (_seen(road, 1), _seen(road, 2), _seen(road, 3)) == (9, 9 + 6, 9)
    assert len(road.rows("SELECT * FROM onceflow.operation")) == 2
    assert untouched(road) == before
    # What a mended handler books for the first time is booked once, although its own SQL is undone.
    booked = "SELECT booked.total, booking.difference FROM onceflow.booked JOIN onceflow.booking USING (namespace, key)"
    assert road.rows(f"{booked} WHERE namespace = 'tax'") == [{"total": 7, "difference": 7}]
    again = replayed(road, *EXECUTE, *MENDED, status=1)
    assert road.rows(f"{booked} WHERE namespace = 'tax'") == [{"total": 7, "difference": 7}]
    assert again["done"] == {
        "rerun": 9, "unchanged": 7, "gone": 1, "operations_exists": 1, "operations_new": 1, "operations_conflict": 1,
        "failed": 2, "held": 1,
    }  # fmt: skip
    assert _outcomes(road) == after
    assert [row["action"] for row in road.rows("SELECT action FROM onceflow.audit ORDER BY id")] == [
        "replay_begun", "replay_ended",
    ] * 2  # fmt: skip


def test_new_operations_are_asked_for_only_when_they_are_allowed_and_known_ones_never_again(road: Road) -> None:
    before = road.rows("SELECT * FROM onceflow.operation ORDER BY id")
    answer = replayed(
        road, *EXECUTE, "--allow-operations", "--event-id", "evt_wants0", "--event-id", "evt_asks0", *MENDED
    )
    assert answer["done"] == {"rerun": 2, "unchanged": 2, "operations_exists": 1, "operations_new": 1}
    after = road.rows("SELECT * FROM onceflow.operation ORDER BY id")
    assert [row for row in after if row in before] == before
    [new] = [row for row in after if row not in before]
    assert (new["subject"], new["state"]) == ("in_evt_wants0", "requested")
    replayed(road, *EXECUTE, "--allow-operations", "--event-id", "evt_wants0", "--event-id", "evt_asks0", *MENDED)
    assert road.rows("SELECT * FROM onceflow.operation ORDER BY id") == after


@pytest.mark.parametrize(
    "point",
    mostly_long(["processor.before_outcomes", "processor.before_commit"], every_run=["processor.before_commit"]),
)
def test_a_killed_rerun_goes_on_and_publishes_each_revision_once(make_road: MakeRoad, point: str) -> None:
    road = make_road(partitions=1)
    events = [f"evt_changed{number}" for number in range(12)]
    road.publish(events, partition=0)
    with road.processor(**FIRST):
        road.wait_for_events(12)
        wait_until(lambda: _next_offset(road) == 12, "the position is behind them")
    killed_replay(road, "--topic", road.events, *EXECUTE, "--rate", "4", *MENDED, point=point, at=2)
    assert sum(row["revision"] == 2 for row in _outcomes(road)) == 4
    [run] = runs(road)
    resumed = ran(road, "--json", "--resume", str(run["id"]), *MENDED, topic=False)
    answer = json.loads(resumed.stdout)
    assert answer["done"] == {"rerun": 12, "changed": 12}
    assert len(answer["found"]) == 8
    assert "before the run was taken up again only the counts were kept" in resumed.stderr
    revisions = [row["revision"] for row in _outcomes(road) if row["type"] == "paid"]
    assert (len(revisions), revisions.count(2)) == (24, 12)


def test_two_reruns_at_once_publish_each_revision_once(make_road: MakeRoad) -> None:
    road = make_road(partitions=1)
    events = [f"evt_changed{number}" for number in range(12)]
    road.publish(events, partition=0)
    with road.processor(**FIRST):
        road.wait_for_events(12)
        wait_until(lambda: _next_offset(road) == 12, "the position is behind them")
    given = ("--topic", road.events, *EXECUTE)
    with (
        armed_replay(road, *given, *MENDED, point="processor.before_outcomes", at=1, action="sleep:2") as first,
        armed_replay(road, *given, *MENDED, point="processor.before_outcomes", at=1, action="sleep:2") as second,
    ):
        answers = [json.loads(one.communicate(timeout=REPLAY_SECONDS_MAX)[0]) for one in (first, second)]
    assert sum(answer["done"].get("changed", 0) for answer in answers) == 12
    assert sum(answer["done"].get("unchanged", 0) for answer in answers) == 12
    revisions = [row["revision"] for row in _outcomes(road) if row["type"] == "paid"]
    assert (len(revisions), max(revisions)) == (24, 2)


def test_what_cannot_be_compared_any_more_is_passed_over(road: Road) -> None:
    with psycopg.connect(road.database_url) as database:
        database.execute("UPDATE onceflow.retention SET gone_before = clock_timestamp() WHERE name LIKE 'outcome/%'")
        database.execute(
            "INSERT INTO onceflow.retention (name, gone_before) SELECT 'outcome/0', clock_timestamp()"
            " WHERE NOT EXISTS (SELECT FROM onceflow.retention WHERE name LIKE 'outcome/%')"
        )
    before = _outcomes(road)
    assert replayed(road, *EXECUTE, *MENDED)["done"] == {"outcomes_deleted": 9}
    assert _outcomes(road) == before


def test_a_closed_lane_holds_a_rerun(road: Road) -> None:
    with psycopg.connect(road.database_url) as database:
        database.execute("UPDATE onceflow.lane SET state = 'stopped:diverged'")
    held = replayed(road, *EXECUTE, "--type", "invoice.paid", *MENDED, status=1)
    assert held["error"]["code"] == "replay_held"
    assert _seen(road, 2) == 9


def test_a_handler_that_breaks_the_transaction_or_never_returns_costs_its_own_event_only(make_road: MakeRoad) -> None:
    events = ["evt_changed0", "evt_breaks0", "evt_changed1", "evt_sleeps0", "evt_changed2"]
    road = done_by_first(make_road, events)
    seen = _seen(road, 1)
    quick = ("--set", "processor.handler_deadline_seconds=1")
    answer = replayed(road, *EXECUTE, *MENDED, *quick, status=1)
    assert answer["done"] == {"rerun": 5, "changed": 3, "failed": 2}
    codes = {line["event"].rpartition("/")[2]: line["code"] for line in answer["found"] if line["found"] == "failed"}
    assert codes == {"evt_breaks0": "handler_broke_transaction", "evt_sleeps0": "handler_timeout"}
    assert _seen(road, 1) == seen
    assert sum(row["revision"] == 2 for row in _outcomes(road)) == 3


def done_by_first(make_road: MakeRoad, events: list[str]) -> Road:
    """A road on which the first handlers have done these events."""
    road = make_road(partitions=1)
    road.publish(events, partition=0)
    with road.processor(**FIRST):
        road.wait_for_events(len(events))
        wait_until(lambda: _next_offset(road) == len(events), "the position is behind them")
    return road


def test_what_a_handler_booked_before_it_failed_is_not_booked_for_the_next_event(make_road: MakeRoad) -> None:
    road = done_by_first(make_road, ["evt_late_fails", "evt_late_books"])
    answer = replayed(road, *EXECUTE, *MENDED, status=1)
    assert (answer["done"]["failed"], answer["done"]["new"]) == (1, 1)
    assert [json.loads(row["value"]) for row in _outcomes(road) if row["type"] == "late"] == [{"added": 9}]
    booked = road.rows(
        "SELECT difference, split_part(cause, '/', 3) AS by FROM onceflow.booking WHERE namespace = 'late'"
    )
    assert booked == [{"difference": 9, "by": "evt_late_books"}]


@pytest.mark.long
def test_handlers_that_take_longer_than_a_transaction_may_are_rerun_in_several(make_road: MakeRoad) -> None:
    """The server ends a transaction after 16.2 s here, and all of them take 18 s."""
    events = [f"evt_takes_time{number}" for number in range(20)]
    road = done_by_first(make_road, events)
    short = ("--set", "processor.handler_deadline_seconds=1", "--set", "processor.batch_seconds_max=0.2")
    assert replayed(road, *EXECUTE, *MENDED, *short)["done"] == {"rerun": 20, "unchanged": 20}


@pytest.mark.parametrize(("event_type", "given"), [("customer.updated", "kept"), ("product.updated", "mirrored")])
def test_the_place_of_an_event_is_as_the_guard_said_at_its_first_run(
    make_road: MakeRoad, event_type: str, given: str
) -> None:
    road = make_road(partitions=1)
    for number, (created, name) in enumerate([(1_767_225_600, "new"), (1_767_225_500, "old")]):
        customer = {"id": "cus_1", "object": "customer", "name": name}
        road.publish([f"evt_c{number}"], partition=0, event_type=event_type, created=created, data={"object": customer})
    with road.processor(**FIRST):
        road.wait_for_events(2)
        wait_until(lambda: _next_offset(road) == 2, "the position is behind them")
    assert [(row["type"], row["value"]) for row in _outcomes(road)] == [
        (given, '{"name":"new"}'),
        ("noted", '{"event":"evt_c0","stale":false}'),
        ("noted", '{"event":"evt_c1","stale":true}'),
    ]
    before = _everything(road)
    # The guard has both applied by now: only the recorded place makes the newer one newer again, also where the handler that
    # asked for an order stays out.
    unchanged = 3 if given == "kept" else 2
    assert replayed(road, *RERUN, *MENDED)["done"] == {"rerun": 2, "unchanged": unchanged}
    assert _everything(road) == before


def _published(road: Road, count: int) -> list[dict[str, str]]:
    """Have the relay publish, and read the headers of so many records as a consumer does."""
    consumer = Consumer(
        {
            "bootstrap.servers": road.bootstrap,
            "group.id": "a reader",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([TopicPartition(road.outcomes, lane, 0) for lane in range(LANES)])
    found: list[dict[str, str]] = []
    relay = subprocess.Popen(
        [sys.executable, "-m", "onceflow", "relay"], env=road._environment, stderr=subprocess.DEVNULL
    )
    try:

        def all_read() -> bool:
            message = consumer.poll(0.5)
            if message is not None and message.error() is None:
                headers: Any = message.headers() or []
                found.append({name: value.decode() for name, value in headers if isinstance(value, bytes)})
            return len(found) >= count

        wait_until(all_read, "the outcomes are published")
    finally:
        end(relay)
        consumer.close()
    return found


def test_a_revision_is_published_as_the_contract_says(make_road: MakeRoad) -> None:
    road = make_road(partitions=1)
    road.publish(["evt_changed0"], partition=0)
    with road.processor(**FIRST):
        road.wait_for_events(1)
        wait_until(lambda: _next_offset(road) == 1, "the position is behind it")
    replayed(road, *EXECUTE, *MENDED)
    rows = {str(row["ce_id"]): row for row in _outcomes(road)}
    headers = _published(road, 3)
    assert {one["ce_id"] for one in headers} == set(rows)
    for one in headers:
        row = rows[one["ce_id"]]
        assert (one["onceflow_outcome_id"], one["onceflow_revision"]) == (str(row["outcome_id"]), str(row["revision"]))
        assert one["onceflow_sequence"] == str(row["seq"])
        assert one["onceflow_cause"].endswith("/evt_changed0")
    assert sorted(one["onceflow_revision"] for one in headers) == ["1", "1", "2"]
