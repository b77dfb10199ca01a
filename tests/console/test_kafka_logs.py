"""What the Kafka client says is told once in a while, and at a level that fits."""

from __future__ import annotations

import logging

from onceflow.kafka_logs import CLIENT_FORMAT, KafkaClientFilter
from onceflow_producer.repeat_limit import KINDS_MAX, RepeatLimit

REFUSED = "[thrd:{0}/bootstrap]: {0}/bootstrap: Connect to ipv4#{0} failed: Connection refused (after {1}ms in state CONNECT{2})"


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def record(
    text: str, *, client: str = "onceflow-bridge#producer-1", kind: str = "FAIL", level: int = logging.ERROR
) -> logging.LogRecord:
    return logging.LogRecord("onceflow.bridge.kafka", level, __file__, 1, CLIENT_FORMAT, (kind, client, text), None)


def refused(address: str = "127.0.0.1:9092", milliseconds: int = 0, more: str = "") -> str:
    return REFUSED.format(address, milliseconds, more)


def left_out(one: logging.LogRecord) -> object:
    return one.__dict__.get("suppressed")


def test_one_line_per_client_and_kind_in_ten_seconds_and_the_others_are_counted() -> None:
    clock = Clock()
    seen = KafkaClientFilter(logging.WARNING, clock=clock)
    first = record(refused())
    assert seen.filter(first)
    assert left_out(first) is None
    clock.now += 9.9
    assert not seen.filter(record(refused(milliseconds=3)))
    assert not seen.filter(record(refused(more=", 30 identical error(s) suppressed")))
    assert not seen.filter(record(refused(), client="onceflow-bridge#producer-2")), "its successor says nothing new"
    clock.now += 0.1
    later = record(refused())
    assert seen.filter(later)
    assert left_out(later) == 3
    clock.now += 10.0
    after = record(refused())
    assert seen.filter(after)
    assert left_out(after) is None


def test_another_broker_client_or_kind_is_another_line() -> None:
    seen = KafkaClientFilter(logging.WARNING, clock=Clock())
    assert seen.filter(record(refused()))
    assert seen.filter(record(refused("127.0.0.1:9093")))
    assert seen.filter(record(refused(), client="onceflow-relay-admin#producer-1"))
    assert seen.filter(record(refused(), kind="ERROR"))
    assert seen.filter(record("[thrd:main]: 1/1 brokers are down", kind="ERROR"))


def test_a_failed_connection_is_a_warning_and_the_rest_keeps_its_level() -> None:
    seen = KafkaClientFilter(logging.WARNING, clock=Clock())
    failed, fatal, quiet = record("a"), record("b", kind="FATAL"), record("c", level=logging.INFO)
    assert (seen.filter(failed), failed.levelno, failed.levelname) == (True, logging.WARNING, "WARNING")
    assert (seen.filter(fatal), fatal.levelname) == (True, "ERROR")
    assert not seen.filter(quiet)
    assert not KafkaClientFilter(logging.ERROR, clock=Clock()).filter(record("a")), "errors only were asked for"


def test_records_of_other_libraries_pass_as_they_are() -> None:
    seen = KafkaClientFilter(logging.WARNING, clock=Clock())
    for arguments in ((), ("FAIL",), ({"a": 1},)):
        other = logging.LogRecord("psycopg.pool", logging.ERROR, __file__, 1, "lost", arguments, None)
        assert seen.filter(other)
        assert seen.filter(other)
        assert other.levelname == "ERROR"


def test_the_memory_is_bounded() -> None:
    limit = RepeatLimit()
    for number in range(KINDS_MAX + 1):
        assert limit.admit((str(number),), now=0.0) == 0
    assert limit.admit(("1",), now=1.0) is None
    assert limit.admit(("0",), now=1.0) == 0, "the oldest was forgotten"
