"""A dry run on real services: what it tells, what it refuses, and that it moves nothing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import psycopg
from confluent_kafka import Producer

from tests.processor.conftest import event_body, record
from tests.processor.processor_process import MakeRoad, Road, ids
from tests.processor.replay.replaying import error_of, replayed, untouched


def _old_event(road: Road, event_id: str) -> None:
    made = record(
        event_body(event_id, "invoice.paid", {"id": "in_old", "object": "invoice"}),
        0,
        topic=road.events,
        deployment=road.deployment,
        received_at=datetime.now(UTC) - timedelta(days=40),
    )
    producer = Producer({"bootstrap.servers": road.bootstrap})
    road.produce(producer, made.key, made.value, headers=made.headers, partition=0)
    road.produce(producer, b"k", b"nobody vouches for this", headers=[], partition=0)
    assert producer.flush(10) == 0


def test_a_dry_run_tells_the_fate_of_every_record_and_moves_nothing(make_road: MakeRoad) -> None:
    road = make_road(partitions=2)
    road.publish(ids("a", 6), partition=0)
    road.publish(ids("b", 4), partition=1)
    road.publish(ids("i", 2), partition=1, event_type="customer.created")
    with road.processor():
        road.wait_for_events(12)
    with psycopg.connect(road.database_url) as database:
        database.execute("DELETE FROM onceflow.inbox WHERE event_id IN ('evt_a1', 'evt_i1')")
        database.execute("UPDATE onceflow.inbox SET state = 'parked' WHERE event_id = 'evt_a2'")
        database.execute("UPDATE onceflow.inbox SET state = 'quarantined' WHERE event_id = 'evt_a3'")
    _old_event(road, "evt_old")
    road.publish(ids("later", 1), partition=1)
    with psycopg.connect(road.database_url) as database:
        # As after a decision to skip: the records before it are the processor's no more.
        database.execute("UPDATE onceflow.progress SET next_offset = 8 WHERE partition = 0")
    before = untouched(road)
    answer = replayed(road)
    assert answer["executed"] is False
    assert answer["records"] == 15
    assert answer["fates"] == {
        "skipped": 7, "run": 1, "parked": 1, "quarantined": 1, "refused": 1, "untrusted": 1, "ignored": 1,
        "unhandled": 1, "ahead": 1,
    }  # fmt: skip
    assert answer["codes"] == {"too_old": 1, "unauthenticated": 1}
    assert answer["types"]["customer.created"] == {"ignored": 1, "unhandled": 1}
    assert untouched(road) == before
    assert len(road.outcome_ids()) == 10


def test_a_record_that_cannot_be_the_bridges_is_not_told_as_one_that_would_run(make_road: MakeRoad) -> None:
    """Its attestation holds, and its key or subject, which nobody attests, says that somebody copied it."""
    road = make_road(partitions=1)
    made = record(
        event_body("evt_1", "invoice.paid", {"id": "in_1", "object": "invoice"}),
        0,
        topic=road.events,
        deployment=road.deployment,
    )
    producer = Producer({"bootstrap.servers": road.bootstrap})
    moved = [(name, b"in_2" if name == "ce_subject" else value) for name, value in made.headers]
    road.produce(producer, b"acct_test/in_other", made.value, headers=made.headers, partition=0)
    road.produce(producer, made.key, made.value, headers=moved, partition=0)
    assert producer.flush(10) == 0
    answer = replayed(road)
    assert (answer["fates"], answer["codes"]) == ({"untrusted": 2}, {"bad_key": 1, "bad_headers": 1})
    executed = replayed(road, "--execute", "--reason", "a test")
    assert (executed["fates"], executed["done"]) == ({"untrusted": 2}, {})


def test_the_range_and_the_filters(make_road: MakeRoad) -> None:
    road = make_road(partitions=2)
    road.publish(ids("a", 6), partition=0)
    road.publish(ids("b", 4), partition=1)
    road.publish(ids("i", 2), partition=1, event_type="customer.created")
    assert replayed(road)["fates"] == {"run": 10, "unhandled": 2}
    some = replayed(road, "--partition", "0", "--from-offset", "2", "--to-offset", "5")
    assert (some["records"], some["fates"]) == (3, {"run": 3})
    assert some["stretches"] == [{"partition": 0, "from_offset": 2, "to_offset": 5}]
    assert replayed(road, "--type", "invoice.*", "--partition", "1")["fates"] == {"run": 4}
    one = replayed(road, "--event-id", "evt_b2", "--event-id", "evt_none")
    assert (one["fates"], one["passed_over"]) == ({"run": 1}, 11)
    assert replayed(road, "--key", "in_evt_a3")["fates"] == {"run": 1}
    assert replayed(road, "--from-time", "2026-01-01T00:00:00Z")["records"] == 12
    assert replayed(road, "--to-time", "2026-01-01T00:00:00Z")["records"] == 0
    assert replayed(road, "--include", "ignored")["fates"] == {"run": 10, "unhandled": 2}


def test_what_cannot_be_meant_is_refused_and_nothing_moved(make_road: MakeRoad) -> None:
    road = make_road(partitions=2)
    road.publish(ids("a", 3), partition=0)
    before = untouched(road)
    for arguments, code in (
        (("--partition", "0", "--from-offset", "-5"), "replay_range_refused"),
        (("--partition", "0", "--to-offset", "4"), "replay_range_refused"),
        (("--partition", "0", "--from-offset", "3", "--to-offset", "2"), "replay_range_refused"),
        (("--partition", "7"), "replay_partition_refused"),
        (("--topic", road.outcomes), "replay_topic_refused"),
        (("--from-offset", "0"), "replay_flags_refused"),
        (("--include", "nope"), "replay_flags_refused"),
        (("--from-time", "yesterday"), "replay_flags_refused"),
    ):
        status = 2 if code == "replay_flags_refused" else 1
        assert error_of(replayed(road, *arguments, status=status)) == (code, 1), arguments
    many = ("--partition", "7", "--partition", "0", "--from-offset", "-5", "--to-offset", "9")
    # Two offsets that need one partition, one below 0, a partition that there is not, and an end beyond the log's.
    assert error_of(replayed(road, *many, status=1)) == ("replay_refused", 5)
    unread = ("--include", "nope", "--to-time", "tomorrow")
    assert error_of(replayed(road, *many, *unread, status=1)) == ("replay_refused", 7)
    assert untouched(road) == before
