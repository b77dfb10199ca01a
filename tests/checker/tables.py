"""Raw tables read in one repeatable-read transaction, as rows and nothing more.

Rule: what the tables say is not interpreted here.  Names come from the contract, so a test that plants a fault in a
real table is read back the same way.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import psycopg

from tests.checker.snapshot import Fact, Identity, Lane, Marker, Outcome, Progress, QuarantineRow
from tests.checker.topics import numbers_of, shown_partition

CONNECT_SECONDS = 5
STATEMENT_MILLISECONDS = 60_000
PAGE_ROWS = 2_000


@dataclass(frozen=True, slots=True)
class Tables:
    """The rows of the product's tables that concern the event topics."""

    markers: tuple[Marker, ...]
    waiting: frozenset[Identity]
    quarantine: tuple[QuarantineRow, ...]
    progress: tuple[Progress, ...]
    lanes: tuple[Lane, ...]
    rows: tuple[Outcome, ...]
    facts: tuple[Fact, ...]
    effects: tuple[str, ...] | None
    guard_rows: int
    topic_ids: frozenset[str]


def connect(database_url: str) -> psycopg.Connection[tuple[Any, ...]]:
    """Return a connection that reads one consistent moment and gives up instead of hanging."""
    connection = psycopg.connect(
        database_url,
        connect_timeout=CONNECT_SECONDS,
        options=f"-c statement_timeout={STATEMENT_MILLISECONDS} -c default_transaction_read_only=on",
    )
    connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    return connection


def read_tables(
    database_url: str, *, ends: Mapping[str, Mapping[int, tuple[int, int]]], effect_table: str | None
) -> Tables:
    """Read the tables.

    Args:
        database_url: of the product's database.
        ends: (log start, log end) of each partition of each event topic, the bridge's own first; rows of ``progress``
            for other topics are left out.
        effect_table: a table of the user whose column ``event_id`` names the event behind each row, or None.
    """
    numbers = {topic: number for number, topic in enumerate(ends)}
    with connect(database_url) as connection:
        progress_rows = connection.execute(
            # A topic that was made again has left its positions: the later ones count.
            "SELECT DISTINCT ON (topic, partition) topic, partition, next_offset, epoch, stopped, topic_id"
            " FROM onceflow.progress WHERE topic = ANY (%s) ORDER BY topic, partition, updated_at DESC",
            [list(ends)],
        ).fetchall()
        shown = {row[5]: numbers[row[0]] for row in progress_rows}
        effects = None
        if effect_table is not None:
            effects = tuple(row[0] for row in connection.execute(f"SELECT event_id FROM {effect_table}"))
        return Tables(
            markers=_markers(connection, shown),
            waiting=_waiting(connection),
            quarantine=_quarantine(connection, shown),
            progress=tuple(
                Progress(
                    shown_partition(numbers[topic], partition),
                    next_offset,
                    epoch,
                    stopped,
                    *ends[topic].get(partition, (0, 0)),
                )
                for topic, partition, next_offset, epoch, stopped, _ in progress_rows
            ),
            lanes=tuple(
                Lane(*row)
                for row in connection.execute(
                    "SELECT lane, head_seq, published_seq, state FROM onceflow.lane ORDER BY 1"
                )
            ),
            rows=_outcome_rows(connection),
            facts=tuple(Fact(*row) for row in connection.execute("SELECT namespace, key, cause FROM onceflow.fact")),
            effects=effects,
            guard_rows=_count(connection, "SELECT count(*) FROM onceflow.batch_guard"),
            topic_ids=frozenset(row[5] for row in progress_rows),
        )


def _count(connection: psycopg.Connection[tuple[Any, ...]], query: str) -> int:
    row = connection.execute(query).fetchone()
    assert row is not None
    return int(row[0])


def _markers(connection: psycopg.Connection[tuple[Any, ...]], shown: Mapping[str, int]) -> tuple[Marker, ...]:
    rows = connection.execute(
        'SELECT account, mode, event_id, state, type, topic_id, partition, "offset", body_sha256 FROM onceflow.inbox'
    )
    return tuple(
        Marker(
            (account, mode, event_id),
            state,
            event_type,
            (shown_partition(shown.get(topic_id, 0), partition), offset),
            bytes(digest),
        )
        for account, mode, event_id, state, event_type, topic_id, partition, offset, digest in rows
    )


def _waiting(connection: psycopg.Connection[tuple[Any, ...]]) -> frozenset[Identity]:
    """Return the parked events whose key waits for a person who can be asked, for a read, or for a time that has not come."""
    rows = connection.execute(
        "SELECT parked.account, parked.mode, parked.event_id FROM onceflow.parked JOIN onceflow.parked_key USING (order_key)"
        " WHERE CASE parked_key.reason WHEN 'retry' THEN parked_key.due_at > clock_timestamp() - interval '5 seconds'"
        "   WHEN 'quarantined' THEN EXISTS (SELECT FROM onceflow.quarantine AS head"
        "     WHERE head.order_key = parked_key.order_key AND head.event_id = parked_key.event_id AND head.decision IS NULL)"
        "   ELSE true END"
    )
    return frozenset((account, mode, event_id) for account, mode, event_id in rows)


def _quarantine(connection: psycopg.Connection[tuple[Any, ...]], shown: Mapping[str, int]) -> tuple[QuarantineRow, ...]:
    with connection.cursor("checker_quarantine") as cursor:
        cursor.itersize = PAGE_ROWS
        cursor.execute(
            'SELECT topic_id, partition, "offset", code, account, mode, event_id, value, json_array_length(headers)'
            " FROM onceflow.quarantine WHERE decision IS DISTINCT FROM 'retried'"
        )
        return tuple(
            QuarantineRow(
                position=(shown_partition(shown.get(topic_id, 0), partition), offset),
                code=code,
                identity=(account, mode, event_id) if event_id is not None else None,
                value_sha256=None if value is None else hashlib.sha256(bytes(value)).digest(),
                header_count=header_count,
            )
            for topic_id, partition, offset, code, account, mode, event_id, value, header_count in cursor
        )


def _outcome_rows(connection: psycopg.Connection[tuple[Any, ...]]) -> tuple[Outcome, ...]:
    with connection.cursor("checker_outcomes") as cursor:
        cursor.itersize = PAGE_ROWS
        cursor.execute(
            "SELECT lane, seq, outcome_id, revision, ce_id, type, key, value, cause, created_at"
            " FROM onceflow.outcome ORDER BY lane, seq"
        )
        return tuple(
            Outcome(
                lane=lane,
                seq=seq,
                outcome_id=str(outcome_id),
                revision=revision,
                ce_id=str(ce_id),
                type=outcome_type,
                key=key,
                value_sha256=hashlib.sha256(bytes(value)).digest(),
                cause=cause,
                created_at=created_at,
                numbers=numbers_of(bytes(value)),
            )
            for lane, seq, outcome_id, revision, ce_id, outcome_type, key, value, cause, created_at in cursor
        )
