"""``onceflow replay --execute`` on real services: what is missing runs once, whatever happens meanwhile."""

from __future__ import annotations

import json
import signal
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from confluent_kafka import Producer

from tests.every_run import mostly_long
from tests.processor.conftest import event_body, record
from tests.processor.processor_process import MakeRoad, Road, ids, wait_until
from tests.processor.replay.killed import armed_replay, killed_replay, runs
from tests.processor.replay.replaying import REPLAY_SECONDS_MAX, error_of, ran, replayed, untouched

EXECUTE = ("--execute", "--reason", "a test")


def _processed(road: Road, count: int, *, prefix: str = "a", **publish: Any) -> None:
    """Have a processor do events, and leave the positions behind them."""
    before = len(road.states())
    road.publish(ids(prefix, count), partition=0, **publish)
    with road.processor():
        road.wait_for_events(before + count)
        wait_until(lambda: _position(road) >= before + count, "the position is behind them")


def _position(road: Road) -> int:
    rows = road.rows("SELECT max(next_offset) AS next FROM onceflow.progress")
    return int(rows[0]["next"] or 0)


def _forget(road: Road, *event_ids: str) -> None:
    """Make events missing, as they are after a decision to skip them."""
    with psycopg.connect(road.database_url) as database:
        database.execute("DELETE FROM onceflow.inbox WHERE event_id = ANY(%s)", [list(event_ids)])
        database.execute("DELETE FROM public.seen WHERE event_id = ANY(%s)", [list(event_ids)])
        # As if the lane's outcomes of these events had never been: their ids are taken otherwise.
        for event_id in event_ids:
            database.execute(
                "UPDATE onceflow.outcome SET outcome_id = gen_random_uuid() WHERE cause LIKE %s", [f"%/{event_id}"]
            )


def _seen(road: Road) -> dict[str, int]:
    rows = road.rows("SELECT event_id, count(*) AS times FROM public.seen GROUP BY 1")
    return {row["event_id"]: row["times"] for row in rows}


def test_what_is_missing_runs_once_and_everything_else_stays(make_road: MakeRoad) -> None:
    road = make_road(partitions=1)
    _processed(road, 12)
    _processed(road, 2, prefix="i", event_type="customer.created")
    _forget(road, "evt_a3", "evt_a7", "evt_i0")
    outcomes, before = len(road.outcome_ids()), untouched(road)
    answer = replayed(road, *EXECUTE)
    assert (answer["executed"], answer["finished"]) == (True, True)
    assert answer["fates"] == {
        "skipped": 10,
        "run": 2,
        "ignored": 1,
        "unhandled": 1,
    }
    assert answer["done"] == {"processed": 2, "ignored": 1, "outcomes": 2}
    assert _seen(road) == dict.fromkeys(ids("a", 12), 1)
    assert road.states()["evt_i0"] == "ignored"
    assert len(road.outcome_ids()) == outcomes + 2
    assert untouched(road) == before
    again = replayed(road, *EXECUTE)
    assert (again["fates"], again["done"]) == ({"skipped": 12, "ignored": 2}, {})
    assert len(road.outcome_ids()) == outcomes + 2
    [first, second] = runs(road)
    assert (first["state"], first["counts"], first["reason"]) == ("done", _counts(answer), "a test")
    assert second["counts"] == _counts(again)
    audits = road.rows("SELECT action, reason, after FROM onceflow.audit ORDER BY id")
    assert [row["action"] for row in audits] == ["replay_begun", "replay_ended"] * 2
    assert audits[1]["after"] == _counts(answer)


def test_what_is_older_than_the_horizon_is_refused_with_the_reason_and_never_runs(make_road: MakeRoad) -> None:
    road = make_road(partitions=1)
    made = record(
        event_body("evt_old", "invoice.paid", {"id": "in_old", "object": "invoice"}),
        0,
        topic=road.events,
        deployment=road.deployment,
        received_at=datetime.now(UTC) - timedelta(days=40),
    )
    producer = Producer({"bootstrap.servers": road.bootstrap})
    road.produce(producer, made.key, made.value, headers=made.headers, partition=0)
    assert producer.flush(20) == 0
    road.publish(ids("a", 2), partition=0)
    for _ in range(2):
        # Its marker was deleted long ago: nothing tells whether it had its effects.
        answer = replayed(road, "--include", "ignored", *EXECUTE)
        assert (answer["fates"]["refused"], answer["codes"]) == (1, {"too_old": 1})
    assert set(road.states()) == set(ids("a", 2))
    assert len(road.outcome_ids()) == 2


def test_a_failing_event_waits_as_a_live_one_does_and_handlers_that_never_run_again_stay_out(
    make_road: MakeRoad,
) -> None:
    road = make_road(partitions=1)
    road.publish(["evt_same0", "evt_fails0", "evt_same1"], partition=0)
    handlers = ("--handlers", "tests.processor.replay.mended_handlers:handlers")
    answer = replayed(road, *EXECUTE, *handlers)
    assert answer["left_out_handlers"] == ["mails"]
    assert answer["done"] == {"processed": 2, "quarantined": 1, "outcomes": 2}
    assert road.states() == {"evt_same0": "processed", "evt_fails0": "quarantined", "evt_same1": "processed"}
    by_handler = road.rows("SELECT pid, count(*) AS n FROM public.seen GROUP BY 1 ORDER BY 1")
    assert by_handler == [{"pid": 1, "n": 2}, {"pid": 2, "n": 2}]
    assert [row["order_key"] for row in road.rows("SELECT order_key FROM onceflow.parked_key")] == [
        "acct_test/in_evt_fails0"
    ]
    assert replayed(road, *EXECUTE, *handlers)["fates"] == {"skipped": 2, "quarantined": 1}


def test_before_it_is_told_what_would_be_done_and_after_it_what_was(make_road: MakeRoad) -> None:
    road = make_road(partitions=1)
    road.publish(ids("a", 2), partition=0)
    road.publish(["evt_c"], partition=0, event_type="customer.created")
    looked, done = ran(road).stdout, ran(road, *EXECUTE).stdout
    assert looked.count("would ") == 2, looked
    assert "would " not in done
    assert "taken up: it had no marker" in done
    assert "marked as ignored" in done


def _counts(answer: dict[str, Any]) -> dict[str, Any]:
    return {name: answer[name] for name in ("records", "passed_over", "fates", "codes", "types", "done")}


def test_ignored_events_are_taken_up_once_where_something_handles_their_type_now(make_road: MakeRoad) -> None:
    road = make_road(partitions=1)
    _processed(road, 3)
    _processed(road, 3, prefix="i", event_type="customer.created")
    with psycopg.connect(road.database_url) as database:
        # As if the handler of invoice.paid had been added only after the first two events.
        database.execute("UPDATE onceflow.inbox SET state = 'ignored' WHERE event_id IN ('evt_a0', 'evt_a1')")
        database.execute("DELETE FROM public.seen")
        database.execute("UPDATE onceflow.outcome SET outcome_id = gen_random_uuid()")
    assert replayed(road, *EXECUTE)["done"] == {}
    answer = replayed(road, "--include", "ignored", *EXECUTE)
    assert (answer["fates"], answer["done"]) == (
        {"run": 2, "skipped": 1, "ignored": 3},
        {"processed": 2, "outcomes": 2},
    )
    assert _seen(road) == {"evt_a0": 1, "evt_a1": 1}
    assert road.states()["evt_a0"] == "processed"
    assert replayed(road, "--include", "ignored", *EXECUTE)["done"] == {}
    assert _seen(road) == {"evt_a0": 1, "evt_a1": 1}


KILLED_AT = ("processor.before_commit", "processor.after_commit", "processor.after_markers")


@pytest.mark.parametrize("point", mostly_long(KILLED_AT, every_run=["processor.before_commit"]))
def test_a_killed_replay_goes_on_where_its_last_commit_ended(make_road: MakeRoad, point: str) -> None:
    road = make_road(partitions=2)
    road.publish(ids("a", 20), partition=0)
    road.publish(ids("b", 20), partition=1)
    before = untouched(road)
    given = ("--topic", road.events, *EXECUTE, "--rate", "8")
    killed_replay(road, *given, point=point, at=3)
    done = len(road.states())
    assert done in (16, 20)
    [run] = runs(road)
    assert run["state"] == "running"
    assert run["counts"]["done"]["processed"] == done
    answer = replayed_again(road, run["id"])
    assert answer["done"] == {"processed": 40, "outcomes": 40}
    assert answer["fates"] == {"run": 40}
    assert _seen(road) == dict.fromkeys([*ids("a", 20), *ids("b", 20)], 1)
    assert len(road.outcome_ids()) == 40
    assert untouched(road) == before
    assert error_of(replayed_again(road, run["id"], status=1)) == ("replay_run_refused", 1)
    assert error_of(replayed_again(road, 999, status=1)) == ("replay_run_refused", 1)
    assert [row["action"] for row in road.rows("SELECT action FROM onceflow.audit ORDER BY id")] == [
        "replay_begun", "replay_resumed", "replay_ended",
    ]  # fmt: skip


def replayed_again(road: Road, run_id: int, *, status: int = 0) -> dict[str, Any]:
    return replayed(road, "--resume", str(run_id), topic=False, status=status)


def test_a_replay_that_was_only_thought_dead_writes_nothing_more(make_road: MakeRoad) -> None:
    road = make_road(partitions=1)
    road.publish(ids("a", 20), partition=0)
    given = ("--topic", road.events, *EXECUTE, "--rate", "5")
    with armed_replay(road, *given, point="processor.after_begin", at=2, action="stop") as zombie:
        wait_until(lambda: _is_stopped(zombie.pid), "it is stopped in front of its second batch")
        [run] = runs(road)
        answer = replayed_again(road, run["id"])
        assert answer["done"] == {"processed": 20, "outcomes": 20}
        zombie.send_signal(signal.SIGCONT)
        output, _ = zombie.communicate(timeout=REPLAY_SECONDS_MAX)
        assert zombie.returncode == 5
        assert json.loads(output)["error"]["code"] in ("fenced", "database_unavailable")
    assert _seen(road) == dict.fromkeys(ids("a", 20), 1)
    assert len(road.outcome_ids()) == 20
    [run] = runs(road)
    assert (run["state"], run["counts"]["done"]["processed"]) == ("done", 20)


def _is_stopped(pid: int) -> bool:
    from pathlib import Path  # noqa: PLC0415

    return "State:\tT" in Path(f"/proc/{pid}/status").read_text("utf-8")


def test_two_replays_at_once_and_a_processor_run_each_event_once(make_road: MakeRoad) -> None:
    road = make_road(partitions=1)
    road.publish(ids("a", 60), partition=0)
    given = ("--topic", road.events, *EXECUTE, "--rate", "20")
    with (
        armed_replay(road, *given, point="processor.after_markers", at=1, action="sleep:0.5") as first,
        armed_replay(road, *given, point="processor.after_handlers", at=1, action="sleep:0.5") as second,
        road.processor(),
    ):
        answers = [json.loads(one.communicate(timeout=REPLAY_SECONDS_MAX)[0]) for one in (first, second)]
        road.wait_for_events(60)
        wait_until(lambda: _position(road) == 60, "the processor has read all")
    assert _seen(road) == dict.fromkeys(ids("a", 60), 1)
    assert len(road.outcome_ids()) == 60
    assert all(answer["finished"] for answer in answers)


def test_events_run_no_faster_than_the_rate_and_ctrl_c_leaves_a_run_that_goes_on(make_road: MakeRoad) -> None:
    road = make_road(partitions=1)
    road.publish(ids("a", 30), partition=0)
    begun = time.monotonic()
    answer = replayed(road, "--rate", "10", *EXECUTE)
    assert time.monotonic() - begun >= 2.0, "30 events at 10 a second, of which the first chunk runs at once"
    assert answer["done"]["processed"] == 30
    road.publish(ids("b", 30), partition=0)
    given = ("--topic", road.events, *EXECUTE, "--rate", "2")
    with armed_replay(road, *given, point="processor.after_commit", at=99) as process:
        wait_until(lambda: len(road.states()) >= 34, "some of it ran")
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=REPLAY_SECONDS_MAX)
        assert process.returncode == 130, errors
    stopped = json.loads(output)
    assert stopped["finished"] is False
    assert f"--resume {stopped['run']}" in errors
    assert replayed(road, "--resume", str(stopped["run"]), topic=False)["done"]["processed"] == 30
    assert _seen(road) == dict.fromkeys([*ids("a", 30), *ids("b", 30)], 1)


def test_a_closed_lane_holds_the_replay_and_it_goes_on_when_the_lane_is_open(make_road: MakeRoad) -> None:
    road = make_road(partitions=1)
    road.publish(ids("a", 5), partition=0)
    with psycopg.connect(road.database_url) as database:
        # A database that was put back: the topic is ahead of it.
        database.execute("UPDATE onceflow.lane SET state = 'stopped:diverged'")
    held = replayed(road, *EXECUTE, status=1)
    assert error_of(held) == ("replay_held", 1)
    assert "stopped:diverged" in held["error"]["message"]
    assert (road.states(), road.outcome_ids()) == ({}, [])
    with psycopg.connect(road.database_url) as database:
        database.execute("UPDATE onceflow.lane SET state = 'ok'")
    [run] = runs(road)
    assert replayed(road, "--resume", str(run["id"]), topic=False)["done"] == {"processed": 5, "outcomes": 5}


def test_resume_takes_nothing_but_a_rate(make_road: MakeRoad) -> None:
    road = make_road(partitions=1)
    for wrong in (
        ("--resume", "1", "--type", "a.b"),
        ("--resume", "1", "--reason", "x"),
        ("--resume", "1", "--rate", "0"),
        (),
    ):
        assert error_of(replayed(road, *wrong, topic=False, status=2)) == ("command_line_wrong", 1)
