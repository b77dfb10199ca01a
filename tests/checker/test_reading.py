"""The reader and the judge together, on a real broker and a real database filled by hand, once with each great fault."""

from __future__ import annotations

import hashlib
from pathlib import Path

import psycopg
import pytest
from confluent_kafka import Producer

from tests.checker.hand_writing import Hand
from tests.checker.judge import Verdict, judge
from tests.checker.reading import System, find_canaries, take_snapshot, wait_until_quiet
from tests.checker.snapshot import Delivery, Hit
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
