"""The duty that publishes quarantined records to the dead-letter topic, in a thread of the processor.

Rule: a row is marked only after the broker has confirmed its record, so a record is published at least once: killed between the
two, it is published again.  What the topic does not take is marked with a code, never tried for ever; everything else is
tried again with growing pauses, and holds up nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import psycopg
import structlog
from confluent_kafka import KafkaError, KafkaException, Producer
from psycopg import Connection
from psycopg.rows import dict_row

from onceflow_processor.arrays import Bigints, Integers, Texts
from onceflow_processor.database import connect, first_line
from onceflow_processor.failures.dead_letter import dead_letter
from onceflow_processor.kafka_client import kafka_failure, kafka_log
from onceflow_producer.failpoint import hit
from onceflow_schemas.failure import Failure, Unavailable
from onceflow_schemas.sql import queries

PAGE_RECORDS_MAX = 100
PAGE_BYTES_MAX = 16_777_216
POLL_SECONDS = 1.0
RETRY_SECONDS_FIRST = 1.0
RETRY_SECONDS_MAX = 30.0
CONFIRM_MS_MAX = 10_000
FLUSH_SECONDS_MAX = 12.0
CLOSE_SECONDS_MAX = 2.0
LOCK_TIMEOUT_MS = 5_000
STATEMENT_TIMEOUT_MS = 10_000
CLIENT_BYTES_MAX = 1_000_000_000
"""The broker alone decides what is too large: it knows the topic's limit."""

TOO_LARGE = "dead_letter_too_large"
REFUSED = "dead_letter_refused"
_OF_THE_RECORD: Mapping[int, str] = {
    KafkaError.MSG_SIZE_TOO_LARGE: TOO_LARGE,
    KafkaError.RECORD_LIST_TOO_LARGE: TOO_LARGE,
    KafkaError.INVALID_RECORD: REFUSED,
    KafkaError.INVALID_MSG: REFUSED,
    KafkaError.POLICY_VIOLATION: REFUSED,
}
"""Errors that no repetition would change; all others are the broker's or the operator's."""

_SQL = queries("dead_letters")
_OPERATING = queries("operating")
_IS_PRODUCER: Mapping[str, object] = {
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 1_000,
    "partitioner": "murmur2_random",
    "linger.ms": 5,
}
_FIXED: Mapping[str, object] = {
    "acks": "all",
    "enable.idempotence": True,
    "message.timeout.ms": CONFIRM_MS_MAX,
    # By itself the client takes a missing topic for a new one for so long that the record times out, which says nothing.
    "topic.metadata.propagation.max.ms": CONFIRM_MS_MAX // 2,
    "message.max.bytes": CLIENT_BYTES_MAX,
    # A record that is too large is refused with all of its batch, so that each one goes alone.
    "batch.num.messages": 1,
}

log = structlog.get_logger("onceflow.processor")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterOptions:
    """Where dead letters go.

    Args:
        kafka: librdkafka properties of the producer.
        topic: the dead-letter topic.
        deployment: named in the headers.
        database_url: given to libpq as it is.
        prepared: False behind a pooler in transaction mode.
    """

    kafka: Mapping[str, object] = field(repr=False)
    topic: str
    deployment: str
    database_url: str = field(repr=False)
    prepared: bool = True


class DeadLetterDuty:
    """Publishes what is quarantined until it is closed; several processors take turns.

    Args:
        options: where dead letters go.
        count: is told of what went wrong, by a word.
    """

    def __init__(self, options: DeadLetterOptions, *, count: Callable[[str], None]) -> None:
        self._options = options
        self._count = count
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="dead-letters", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """End the thread; one that waits for Kafka is left behind, and what it has not marked is published again."""
        self._stopping.set()
        self._thread.join(CLOSE_SECONDS_MAX)

    def _run(self) -> None:
        pause_seconds = RETRY_SECONDS_FIRST
        while not self._stopping.is_set():
            try:
                with connect(
                    self._options.database_url,
                    application_name="onceflow-dead-letters",
                    prepared=self._options.prepared,
                ) as connection:
                    producer = Producer({**_IS_PRODUCER, **self._options.kafka, **_FIXED, "logger": kafka_log})
                    while not self._stopping.is_set():
                        if publish_page(connection, producer, options=self._options) == 0:
                            self._stopping.wait(POLL_SECONDS)
                        pause_seconds = RETRY_SECONDS_FIRST
            except (Failure, KafkaException, psycopg.Error) as error:
                code = error.code if isinstance(error, Failure) else "database_unavailable"
                log.warning("dead_letters_wait", topic=self._options.topic, code=code, reason=first_line(error))
                self._count("dead_letters_wait")
                self._stopping.wait(pause_seconds)
                pause_seconds = min(2 * pause_seconds, RETRY_SECONDS_MAX)


def publish_page(connection: Connection[Any], producer: Producer, *, options: DeadLetterOptions) -> int:
    """Publish some of what waits, and mark it; return how many, 0 when nothing waits or another has the turn.

    Args:
        connection: idle; left idle.
        producer: of this duty alone.
        options: where dead letters go.

    Raises:
        Failure: the broker does not confirm; what it has confirmed is marked.
        psycopg.Error: the database does not answer; what was published will be again.
    """
    limits = {"lock_timeout": f"{LOCK_TIMEOUT_MS}ms", "statement_timeout": f"{STATEMENT_TIMEOUT_MS}ms"}
    with connection.transaction(), connection.cursor(row_factory=dict_row) as cursor:
        cursor.execute(_OPERATING["limits"], limits)
        turn = cursor.execute(_SQL["turn"]).fetchone()
        if turn is None or not turn["mine"]:
            return 0
        given = {"count": PAGE_RECORDS_MAX, "bytes_max": PAGE_BYTES_MAX}
        rows = cursor.execute(_SQL["page"], given).fetchall()
        ends = _send(producer, rows, options=options)
        hit("dead_letters.before_mark")
        _mark(connection, [(row, end.code) for row, end in zip(rows, ends, strict=True) if end.is_final])
    failures = [end.error for end in ends if end.error is not None]
    if failures:
        raise kafka_failure(KafkaException(failures[0]), topic=options.topic, right="WRITE")
    return len(rows)


@dataclass(slots=True)
class _End:
    """How the publication of one record ended: not final without the broker's word about this very record."""

    is_final: bool = False
    code: str | None = None
    error: KafkaError | None = None

    def note(self, error: KafkaError | None) -> None:
        """Take what the broker said of it, or what the client refused at once."""
        self.code = None if error is None else _OF_THE_RECORD.get(error.code())
        self.is_final = error is None or self.code is not None
        self.error = None if self.is_final else error

    def reported(self, error: KafkaError | None, _message: object) -> None:
        """Take a delivery report, in the client's form."""
        self.note(error)


def _send(producer: Producer, rows: Sequence[Mapping[str, Any]], *, options: DeadLetterOptions) -> list[_End]:
    ends = [_End(error=KafkaError(KafkaError._MSG_TIMED_OUT)) for _ in rows]  # noqa: SLF001 - its public name
    for row, end in zip(rows, ends, strict=True):
        letter = dead_letter(row, deployment=options.deployment)
        try:
            producer.produce(
                options.topic,
                key=letter.key,
                value=letter.value,
                headers=list(letter.headers),
                on_delivery=end.reported,
            )
        except KafkaException as error:
            end.note(error.args[0])
        except BufferError as error:
            raise Unavailable("broker_unavailable", "Kafka takes no more dead letters just now") from error
    producer.flush(FLUSH_SECONDS_MAX)
    return ends


def _mark(connection: Connection[Any], ends: Sequence[tuple[Mapping[str, Any], str | None]]) -> None:
    for row, code in ends:
        if code is not None:
            log.warning(
                "dead_letter_left_out", code=code, partition=f"{row['topic']}/{row['partition']}", offset=row["offset"]
            )
    if ends:
        given = {
            "topic_ids": Texts(row["topic_id"] for row, _ in ends),
            "partitions": Integers(row["partition"] for row, _ in ends),
            "offsets": Bigints(row["offset"] for row, _ in ends),
            "codes": Texts(code for _, code in ends),
        }
        connection.execute(_SQL["mark"], given)
