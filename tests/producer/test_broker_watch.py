"""Watching a broker: ready, not ready and why, and the size limits that follow from the topic."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import KafkaError
from structlog.testing import capture_logs

from onceflow_producer.broker_watch import GIVEN_UP_MAX, PROBE_SECONDS, BrokerWatch
from onceflow_producer.metrics import BridgeMetrics
from tests.conftest import create_topic
from tests.producer.fatal_error import make_fatal
from tests.waiting import wait_until


@contextmanager
def watching(bootstrap: str, topic: str, *, body_bytes_max: int = 1_000_000) -> Iterator[BrokerWatch]:
    watch = BrokerWatch(
        {"bootstrap.servers": bootstrap},
        topic=topic,
        body_bytes_max=body_bytes_max,
        message_timeout_ms=1_000,
        metrics=BridgeMetrics(),
    )
    watch.start()
    try:
        yield watch
    finally:
        watch.close(within_seconds=2.0)


def codes(watch: BrokerWatch) -> list[str]:
    return [reason.code for reason in watch.reasons]


def is_open(watch: BrokerWatch) -> bool:
    return watch.closed is None


def test_the_road_opens_with_the_first_proof_and_both_are_logged(kafka_bootstrap: str, topic: str) -> None:
    with capture_logs() as lines, watching(kafka_bootstrap, topic) as watch:
        assert watch.closed is not None or watch.reasons == ()
        wait_until(lambda: is_open(watch), within_seconds=10, why="it does not open")
        wait_until(lambda: watch.limits.topic == 1_048_588, within_seconds=10, why="the limit is not read")
    assert [line["event"] for line in lines if line["event"] == "bridge_ready"] == ["bridge_ready"]


def test_a_missing_topic_is_found_when_it_comes(kafka_bootstrap: str) -> None:
    with watching(kafka_bootstrap, "no.such.topic") as watch:
        wait_until(lambda: codes(watch) == ["topic_missing"], within_seconds=10, why="not said")
        assert watch.closed is not None
        assert watch.closed.code == "topic_missing"


def test_a_broker_that_never_answers_is_told_at_once_and_once(topic: str) -> None:
    with capture_logs() as lines, watching("127.0.0.1:1", topic) as watch:

        def says_why() -> bool:
            watch.producer.poll()
            return "Connection refused" in watch.reasons[0].said

        wait_until(says_why, within_seconds=10, why="the client says nothing")
        assert codes(watch) == ["broker_unavailable"]
        assert "127.0.0.1" not in watch.reasons[0].detail
    (told,) = [line for line in lines if line["event"] == "bridge_not_ready"]
    assert (told["code"], told["waiting_for"]) == ("broker_unavailable", "Kafka at 127.0.0.1:1")


def test_the_producer_follows_the_limit_of_the_topic(kafka_bootstrap: str) -> None:
    small = create_topic(kafka_bootstrap, config={"max.message.bytes": "100000"})
    with capture_logs() as lines, watching(kafka_bootstrap, small) as watch:
        first = watch.producer
        wait_until(lambda: watch.producer is not first, within_seconds=10, why="the producer stays")
        assert (watch.limits.producer, watch.limits.smallest) == (100_000, "producer")
    assert [line["log_level"] for line in lines if line["event"] == "bridge_size_limits"] == ["error"]


def test_only_the_failure_of_the_producer_in_use_counts(kafka_bootstrap: str, topic: str) -> None:
    with watching(kafka_bootstrap, topic) as watch:
        wait_until(lambda: is_open(watch), within_seconds=10, why="it does not open")
        first = watch.producer
        make_fatal(first._producer)
        first.poll()
        assert not is_open(watch)
        wait_until(lambda: watch.producer is not first and is_open(watch), within_seconds=10, why="it does not heal")
        second = watch.producer
        watch.note_client_error(KafkaError(KafkaError._FATAL), generation=1)
        assert is_open(watch)
        assert watch.producer is second


def test_a_refusal_of_records_is_shown_until_one_is_delivered(kafka_bootstrap: str, topic: str) -> None:
    with watching(kafka_bootstrap, topic) as watch:
        wait_until(lambda: is_open(watch), within_seconds=10, why="it does not open")
        watch.note_delivery_error(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
        assert codes(watch) == ["broker_refused"]
        assert is_open(watch)
        watch.note_delivery()
        assert codes(watch) == []


def test_a_producer_that_delivers_nothing_while_the_broker_answers_is_replaced(
    kafka_bootstrap: str, topic: str
) -> None:
    timed_out = KafkaError(KafkaError._MSG_TIMED_OUT)
    with watching(kafka_bootstrap, topic) as watch:
        wait_until(lambda: is_open(watch), within_seconds=10, why="it does not open")
        first = watch.producer
        for _ in range(GIVEN_UP_MAX - 1):
            watch.note_delivery_error(timed_out)
        watch.note_delivery()
        for _ in range(GIVEN_UP_MAX - 1):
            watch.note_delivery_error(timed_out)
        threading.Event().wait(2 * PROBE_SECONDS)
        assert watch.producer is first, "one delivery in between proves it"
        watch.note_delivery_error(timed_out)
        wait_until(lambda: watch.producer is not first, within_seconds=10, why="it is not replaced")


def test_closing_leaves_no_thread(kafka_bootstrap: str, topic: str) -> None:
    with watching(kafka_bootstrap, topic) as watch:
        wait_until(lambda: is_open(watch), within_seconds=10, why="it does not open")
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("bridge-")] == []
