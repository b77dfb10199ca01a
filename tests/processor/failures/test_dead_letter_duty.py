"""Dead letters on a real Kafka: once and marked, twice only where the process died in between, never for ever."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
from confluent_kafka import Message, Producer

from onceflow_processor.failures import dead_letter_duty
from onceflow_processor.failures.dead_letter_duty import DeadLetterDuty, DeadLetterOptions, publish_page
from onceflow_producer import failpoint
from onceflow_schemas.failure import Misconfigured
from tests.checker.topics import read_topic
from tests.conftest import create_topic
from tests.processor.failures.conftest import TOPIC, Desk
from tests.processor.processor_process import MakeRoad, wait_until


def headers_of(message: Message) -> list[tuple[str, bytes | None]]:
    found: Any = message.headers()
    return list(found or [])


@dataclass
class Mailbox:
    """A dead-letter topic and what publishes to it."""

    bootstrap: str
    desk: Desk
    topic: str

    @property
    def options(self) -> DeadLetterOptions:
        return DeadLetterOptions(
            kafka={"bootstrap.servers": self.bootstrap}, topic=self.topic, deployment="shop", database_url=self.desk.url
        )

    def publish(self) -> int:
        producer = Producer({"bootstrap.servers": self.bootstrap, **dead_letter_duty._FIXED})
        with psycopg.connect(self.desk.url) as connection:
            return publish_page(connection, producer, options=self.options)

    def offsets(self) -> list[int]:
        """Offsets of the records whose dead letters are in the topic."""
        letters = read_topic(self.bootstrap, self.topic, isolation="read_committed")
        return sorted(int(dict(headers_of(letter))["__connect.errors.offset"] or b"") for letter in letters)

    def marks(self) -> dict[int, tuple[bool, str | None]]:
        rows = self.desk.rows(
            'SELECT "offset", dead_lettered_at, dead_letter_code FROM onceflow.quarantine ORDER BY "offset"'
        )
        return {row["offset"]: (row["dead_lettered_at"] is not None, row["dead_letter_code"]) for row in rows}


@pytest.fixture
def mailbox(kafka_bootstrap: str, desk: Desk) -> Mailbox:
    return Mailbox(kafka_bootstrap, desk, create_topic(kafka_bootstrap, prefix="dead", partitions=1))


def test_what_is_quarantined_is_published_once_as_it_was(mailbox: Mailbox) -> None:
    mailbox.desk.quarantined("evt_1", offset=1, headers=json.dumps([["ce_id", "ZXZ0XzE="], ["odd", None]]))
    mailbox.desk.stranger(2)
    mailbox.desk.quarantined("evt_3", offset=3)
    mailbox.desk.run("UPDATE onceflow.quarantine SET decision = 'retried' WHERE event_id = 'evt_3'")
    assert (mailbox.publish(), mailbox.publish()) == (2, 0)
    assert mailbox.marks() == {1: (True, None), 2: (True, None), 3: (False, None)}
    first, second = read_topic(mailbox.bootstrap, mailbox.topic, isolation="read_committed")
    assert (first.key(), first.value()) == (b"acct_test/in_1", b'{"id": "evt"}')
    headers = headers_of(first)
    assert headers[:2] == [("ce_id", b"evt_1"), ("odd", None)]
    assert dict(headers[2:])["__connect.errors.exception.class.name"] == b"KeyError"
    assert dict(headers[2:])["__connect.errors.topic"] == TOPIC.encode()
    assert (second.key(), second.value()) == (None, b"x")


def test_killed_between_the_confirmation_and_the_mark_it_is_published_again(mailbox: Mailbox) -> None:
    class Killed(BaseException):
        pass

    def die(place: str) -> None:
        if place == "dead_letters.before_mark":
            raise Killed

    mailbox.desk.stranger(1)
    failpoint.install(die)
    try:
        with suppress(Killed):
            mailbox.publish()
    finally:
        failpoint.install(None)
    assert (mailbox.offsets(), mailbox.marks()) == ([1], {1: (False, None)})
    assert (mailbox.publish(), mailbox.publish()) == (1, 0)
    assert mailbox.offsets() == [1, 1]


def test_one_publisher_at_a_time(mailbox: Mailbox) -> None:
    mailbox.desk.stranger(1)
    with psycopg.connect(mailbox.desk.url) as other:
        other.execute("SELECT pg_advisory_xact_lock(1869505381, 1684365668)")
        assert mailbox.publish() == 0
    assert mailbox.publish() == 1


def test_a_record_that_is_too_large_is_marked_and_the_others_go_on(mailbox: Mailbox) -> None:
    small = create_topic(mailbox.bootstrap, prefix="dead", partitions=1, config={"max.message.bytes": "4000"})
    mailbox.topic = small
    for offset in (1, 2, 3):
        mailbox.desk.quarantined(f"evt_{offset}", offset=offset, value=b"x" * (100_000 if offset == 2 else 10))
    assert (mailbox.publish(), mailbox.publish()) == (3, 0)
    assert mailbox.marks() == {1: (True, None), 2: (True, "dead_letter_too_large"), 3: (True, None)}
    assert mailbox.offsets() == [1, 3]


def test_a_record_without_a_key_for_a_compacted_topic_is_marked(mailbox: Mailbox) -> None:
    mailbox.topic = create_topic(mailbox.bootstrap, prefix="dead", partitions=1, config={"cleanup.policy": "compact"})
    mailbox.desk.stranger(1)
    mailbox.desk.quarantined("evt_2", offset=2)
    mailbox.publish()
    assert mailbox.marks() == {1: (True, "dead_letter_refused"), 2: (True, None)}


def test_a_topic_that_is_not_there_marks_nothing(mailbox: Mailbox) -> None:
    mailbox.topic = "dead.nowhere"
    mailbox.desk.stranger(1)
    with pytest.raises(Misconfigured, match="topic_missing"):
        mailbox.publish()
    assert mailbox.marks() == {1: (False, None)}


def test_pages_are_bounded_in_records_and_bytes(mailbox: Mailbox, monkeypatch: Any) -> None:
    monkeypatch.setattr(dead_letter_duty, "PAGE_BYTES_MAX", 250)
    for offset in range(1, 6):
        mailbox.desk.quarantined(f"evt_{offset}", offset=offset, value=b"x" * 100)
    assert [mailbox.publish() for _ in range(3)] == [3, 2, 0]
    assert mailbox.offsets() == [1, 2, 3, 4, 5]


@pytest.fixture
def counted() -> list[str]:
    return []


@pytest.fixture
def duty(mailbox: Mailbox, counted: list[str], monkeypatch: Any) -> Iterator[DeadLetterDuty]:
    monkeypatch.setattr(dead_letter_duty, "RETRY_SECONDS_FIRST", 0.1)
    monkeypatch.setattr(dead_letter_duty, "POLL_SECONDS", 0.05)
    begun = DeadLetterDuty(mailbox.options, count=counted.append)
    yield begun
    begun.close()


def test_the_duty_goes_on_when_its_database_was_away(
    mailbox: Mailbox, duty: DeadLetterDuty, counted: list[str]
) -> None:
    mailbox.desk.stranger(1)
    duty.start()
    wait_until(lambda: mailbox.marks()[1][0], "the first is published")
    mailbox.desk.run(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE application_name = 'onceflow-dead-letters' AND datname = current_database()"
    )
    wait_until(lambda: counted, "the loss is noticed")
    mailbox.desk.stranger(2)
    wait_until(lambda: mailbox.marks()[2][0], "the second is published")
    assert mailbox.offsets() == [1, 2]
    assert counted == ["dead_letters_wait"]


def test_a_processor_publishes_what_it_quarantines(make_road: MakeRoad) -> None:
    road = make_road(partitions=1)
    dead = create_topic(road.bootstrap, prefix="dead", partitions=1)
    producer = Producer({"bootstrap.servers": road.bootstrap})
    road.produce(producer, b"acct_x/in_1", b"{}", headers=[("mine", b"1")])
    assert producer.flush(20) == 0
    query = "SELECT count(dead_lettered_at) AS n FROM onceflow.quarantine"
    with road.processor(ONCEFLOW_TOPICS_DEAD_LETTERS=dead):
        wait_until(lambda: road.rows(query)[0]["n"] == 1, "the record is published")
    [letter] = read_topic(road.bootstrap, dead, isolation="read_committed")
    assert (letter.key(), letter.value(), headers_of(letter)[0]) == (b"acct_x/in_1", b"{}", ("mine", b"1"))
