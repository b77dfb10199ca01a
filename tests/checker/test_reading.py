"""The reader and the judge together, on a real broker and a real database filled by hand, once with each great fault."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from confluent_kafka import Producer

from tests.checker.hand_writing import ACCOUNT, Hand, failed_payment
from tests.checker.judge import Verdict, judge
from tests.checker.reading import ForeignTopic, System, find_canaries, take_snapshot, wait_until_quiet
from tests.checker.snapshot import Delivery, Hit
from tests.checker.topics import shown_partition
from tests.conftest import create_topic

EVENTS = 40
QUIET_SECONDS = 30.0


@pytest.fixture
def hand(kafka_bootstrap: str, fresh_database: str) -> Hand:
    return Hand(
        bootstrap=kafka_bootstrap,
        database_url=fresh_database,
        event_topic=create_topic(kafka_bootstrap, prefix="hand.events"),
        outcome_topic=create_topic(kafka_bootstrap, prefix="hand.outcomes"),
    )


def system_of(hand: Hand) -> System:
    return System(hand.bootstrap, hand.database_url, hand.event_topic, hand.outcome_topic)


def verdict_on(hand: Hand) -> Verdict:
    return judge(take_snapshot(system_of(hand), hand.deliveries, limit_seconds=QUIET_SECONDS))


def same_lane(hand: Hand) -> list[tuple[int, int, int]]:
    """Two neighbours of the fullest lane."""
    lane = max(hand.heads, key=lambda name: hand.heads[name])
    return [outcome for outcome in hand.outcomes if outcome[0] == lane][:2]


def test_sound_world_is_acquitted(hand: Hand) -> None:
    hand.write_world(EVENTS)
    hand.publish(hand.outcomes)
    verdict = verdict_on(hand)
    assert verdict.violations == ()
    counts = verdict.counts
    assert (counts.answered, counts.distinct, counts.processed, counts.published) == (EVENTS, EVENTS, EVENTS, EVENTS)


def test_aborted_records_at_the_end_are_nobodys_to_process(hand: Hand) -> None:
    hand.write_world(EVENTS)
    hand.publish(hand.outcomes)
    feeder = Producer({"bootstrap.servers": hand.bootstrap, "transactional.id": f"feeder-{hand.event_topic}"})
    feeder.init_transactions(QUIET_SECONDS)
    feeder.begin_transaction()
    feeder.produce(hand.event_topic, b"aborted", partition=0)
    feeder.flush(QUIET_SECONDS)
    feeder.abort_transaction(QUIET_SECONDS)
    assert verdict_on(hand).violations == ()
    feeder.begin_transaction()
    feeder.produce(hand.event_topic, b"committed", partition=0)
    feeder.commit_transaction(QUIET_SECONDS)
    assert wait_until_quiet(system_of(hand), limit_seconds=1.0) is not None


def other_road(hand: Hand, *, passed: int) -> System:
    """Copies of two events and a stranger on a second topic of one partition, of which so many were passed."""
    topic = create_topic(hand.bootstrap, prefix="hand.bus", partitions=1)
    producer = hand.producer()
    for value in (failed_payment(3), failed_payment(4), b"nobody vouches for it"):
        producer.produce(topic, value, partition=0)
    assert producer.flush(QUIET_SECONDS) == 0
    with psycopg.connect(hand.database_url) as connection:
        connection.execute(
            "INSERT INTO onceflow.progress (cluster_id, topic_id, partition, topic, next_offset, epoch, owner, clean,"
            " batch_end) VALUES ('c', 'bus', 0, %s, %s, 1, 'hand', true, %s)",
            [topic, passed, passed],
        )
        connection.execute(
            'INSERT INTO onceflow.quarantine (topic_id, partition, "offset", topic, code, detail, value, headers)'
            " VALUES ('bus', 0, 2, %s, 'unauthenticated', '', 'nobody vouches for it', '[]')",
            [topic],
        )
    return replace(system_of(hand), foreign=(ForeignTopic(topic, ACCOUNT),))


def test_a_second_topic_is_judged_as_the_first(hand: Hand) -> None:
    hand.write_world(EVENTS)
    hand.publish(hand.outcomes)
    system = other_road(hand, passed=3)
    stranger = {(shown_partition(1, 0), 2): frozenset({"unauthenticated"})}
    verdict = judge(take_snapshot(system, hand.deliveries, planted=stranger, limit_seconds=QUIET_SECONDS))
    assert verdict.violations == ()
    assert (verdict.counts.records, verdict.counts.duplicates, verdict.counts.quarantined) == (EVENTS + 3, 2, 1)
    with psycopg.connect(hand.database_url) as connection:
        connection.execute("DELETE FROM onceflow.quarantine")
    assert {"I5"} == judge(take_snapshot(system, hand.deliveries, limit_seconds=QUIET_SECONDS)).codes()


def test_a_second_topic_that_is_behind_is_not_quiet(hand: Hand) -> None:
    hand.write_world(EVENTS)
    hand.publish(hand.outcomes)
    reason = wait_until_quiet(other_road(hand, passed=2), limit_seconds=1.0)
    assert reason is not None
    assert "progress 2 of 3" in reason


@pytest.mark.parametrize(("decision", "codes"), [(None, set()), ("skipped", {"I1"})])
def test_who_waits_for_a_person_must_have_something_to_decide(
    hand: Hand, decision: str | None, codes: set[str]
) -> None:
    """An event that was left behind in parking is lost, whatever its key says."""
    hand.write_world(EVENTS)
    waits, head = 7, "evt_hand6"
    with psycopg.connect(hand.database_url) as connection:
        connection.execute("DELETE FROM onceflow.outcome WHERE key = %s", [f"pi_hand{waits}"])
        connection.execute("UPDATE onceflow.inbox SET state = 'parked' WHERE event_id = %s", [f"evt_hand{waits}"])
        connection.execute(
            "INSERT INTO onceflow.parked_key (order_key, reason, account, mode, event_id, due_at)"
            " VALUES ('k', 'quarantined', %s, 'test', %s, 'infinity')",
            [ACCOUNT, head],
        )
        connection.execute(
            'INSERT INTO onceflow.parked (account, mode, event_id, order_key, topic_id, partition, "offset", topic, value,'
            " headers, type) VALUES (%s, 'test', %s, 'k', 'hand', 0, %s, %s, '', '[]', 'payment_intent.payment_failed')",
            [ACCOUNT, f"evt_hand{waits}", waits, hand.event_topic],
        )
        connection.execute(
            'INSERT INTO onceflow.quarantine (topic_id, partition, "offset", topic, account, mode, event_id, code, detail, value,'
            " headers, order_key, decision) VALUES ('hand', 0, 6, %s, %s, 'test', %s, 'handler_failed', '', '', '[]', 'k', %s)",
            [hand.event_topic, ACCOUNT, head, decision],
        )
    found = take_snapshot(system_of(hand), hand.deliveries, limit_seconds=0.0)
    told = {one.code for one in judge(found).violations if f"evt_hand{waits}'" in one.sentence}
    assert told == codes


def test_dropped_outcome_is_convicted(hand: Hand) -> None:
    hand.write_world(EVENTS)
    dropped = hand.outcomes[EVENTS // 2]
    hand.publish([outcome for outcome in hand.outcomes if outcome != dropped])
    verdict = verdict_on(hand)
    assert {"I4"} == verdict.codes()
    assert any("is not in the topic" in violation.sentence for violation in verdict.violations)


def test_doubled_outcome_is_convicted(hand: Hand) -> None:
    hand.write_world(EVENTS)
    hand.publish([*hand.outcomes, hand.outcomes[7]])
    verdict = verdict_on(hand)
    assert {"I4"} == verdict.codes()
    assert any("stands 2 times in the topic" in violation.sentence for violation in verdict.violations)


def test_swapped_outcomes_are_convicted(hand: Hand) -> None:
    hand.write_world(EVENTS)
    first, second = same_lane(hand)
    rest = [outcome for outcome in hand.outcomes if outcome not in (first, second)]
    hand.publish([second, first, *rest])
    verdict = verdict_on(hand)
    assert {"I4"} == verdict.codes()
    assert any("sequence 2, expected 1" in violation.sentence for violation in verdict.violations)


def test_lost_event_is_convicted(hand: Hand) -> None:
    hand.write_world(EVENTS)
    hand.publish(hand.outcomes)
    hand.deliveries.append(Delivery(hashlib.sha256(b"answered 200, never published").digest(), 200))
    assert {"I1"} == verdict_on(hand).codes()


def test_event_that_progress_passed_is_convicted(hand: Hand) -> None:
    """The lost event of the other kind: in the topic, before progress, and nobody knows it."""
    hand.write_world(EVENTS)
    hand.publish(hand.outcomes)
    with psycopg.connect(hand.database_url) as connection:
        connection.execute("DELETE FROM onceflow.inbox WHERE event_id = 'evt_hand3'")
    verdict = verdict_on(hand)
    assert {"I1", "I3", "I5"} == verdict.codes()


def test_aborted_records_are_not_counted(hand: Hand) -> None:
    hand.write_world(EVENTS)
    hand.publish(hand.outcomes)
    lane = hand.outcomes[0][0]

    producer = Producer({"bootstrap.servers": hand.bootstrap, "transactional.id": "hand-aborted"})
    producer.init_transactions(QUIET_SECONDS)
    producer.begin_transaction()
    producer.produce(hand.outcome_topic, b"{}", b"k", partition=lane)
    producer.flush(QUIET_SECONDS)
    producer.abort_transaction(QUIET_SECONDS)
    assert verdict_on(hand).violations == ()


def test_stranger_in_the_outcome_topic_is_convicted(hand: Hand) -> None:
    hand.write_world(EVENTS)
    hand.publish(hand.outcomes)
    producer = hand.producer()
    producer.produce(hand.outcome_topic, b"{}", b"k", partition=2)
    assert producer.flush(QUIET_SECONDS) == 0
    assert {"I4"} == verdict_on(hand).codes()


def test_unpublished_outcomes_are_not_quiet(hand: Hand) -> None:
    hand.write_world(EVENTS)
    reason = wait_until_quiet(system_of(hand), limit_seconds=1.0)
    assert reason is not None
    assert "published" in reason


def test_canary_is_found_across_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.checker.reading.LOG_PAGE_BYTES", 16)
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "bridge.log").write_text("0123456789 my-canary-12 and more text behind it")
    (folder / "relay.log").write_text("nothing here")
    assert [Hit(str(folder / "bridge.log"), "my-canary-12")] == list(find_canaries(folder, ["my-canary-12", "other"]))
