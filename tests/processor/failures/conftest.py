"""Rows of events that failed, planted in a real PostgreSQL as a processor leaves them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
from psycopg import Connection
from psycopg.rows import dict_row

ACCOUNT = "acct_test"
TOPIC = "stripe.events.v1"
TOPIC_ID = "topic+id/1="
SHOWN_TOPIC_ID = "topic-id_1"
BODY = b'{"id": "evt"}'


@dataclass
class Desk:
    """A database, and what a test plants in it and reads of it."""

    url: str
    connection: Connection[Any]

    def run(self, query: str, *parameters: Any) -> None:
        with psycopg.connect(self.url, autocommit=True) as other:
            other.execute(query.encode(), parameters or None)

    def rows(self, query: str, *parameters: Any) -> list[dict[str, Any]]:
        with psycopg.connect(self.url, row_factory=dict_row) as other:
            return other.execute(query.encode(), parameters).fetchall()

    def marker(self, event_id: str, state: str, *, offset: int, type: str = "invoice.paid") -> None:
        self.run(
            'INSERT INTO onceflow.inbox (account, mode, event_id, state, type, object_id, topic_id, partition, "offset",'
            " body_sha256, received_at, handler_set) VALUES (%s, 'test', %s, %s, %s, 'in_1', %s, 0, %s, %s, now(), 'h')",
            ACCOUNT, event_id, state, type, TOPIC_ID, offset, hashlib.sha256(BODY).digest(),
        )  # fmt: skip

    def key(self, key: str, reason: str, event_id: str, *, due: str = "infinity") -> None:
        self.run(
            "INSERT INTO onceflow.parked_key (order_key, reason, account, mode, event_id, due_at)"
            " VALUES (%s, %s, %s, 'test', %s, %s::timestamptz)",
            f"{ACCOUNT}/{key}", reason, ACCOUNT, event_id, due,
        )  # fmt: skip

    def quarantined(
        self,
        event_id: str,
        *,
        offset: int,
        key: str | None = None,
        record_key: bytes | None = b"acct_test/in_1",
        code: str = "handler_failed",
        detail: str = "KeyError: 'tax of ada@example.com'",
        type: str = "invoice.paid",
        handler: str | None = "bookkeeping",
        state: str = "quarantined",
        headers: str = "[]",
        value: bytes | None = BODY,
    ) -> None:
        """One with an identity; with ``key`` it blocks that key."""
        self.marker(event_id, state, offset=offset, type=type)
        self.run(
            'INSERT INTO onceflow.quarantine (topic_id, partition, "offset", topic, account, mode, event_id, code, detail,'
            " handler, traceback, key, value, headers, order_key, type) VALUES (%s, 0, %s, %s, %s, 'test', %s, %s, %s, %s,"
            " 'Traceback ...', %s, %s, %s, %s, %s)",
            TOPIC_ID, offset, TOPIC, ACCOUNT, event_id, code, detail, handler, record_key, value, headers,
            key and f"{ACCOUNT}/{key}", type,
        )  # fmt: skip
        if key is not None:
            self.key(key, "quarantined", event_id)

    def stranger(self, offset: int, *, code: str = "unauthenticated") -> None:
        """A record that nobody vouches for."""
        self.run(
            'INSERT INTO onceflow.quarantine (topic_id, partition, "offset", topic, code, detail, value, headers)'
            " VALUES (%s, 0, %s, %s, %s, 'no attestation', 'x', '[]')",
            TOPIC_ID, offset, TOPIC, code,
        )  # fmt: skip

    def parked(self, event_id: str, *, key: str, offset: int, failed: bool = False, type: str = "invoice.paid") -> None:
        """One of a key that is there already."""
        self.marker(event_id, "parked", offset=offset, type=type)
        code, detail, handler = (
            ("handler_failed", "TimeoutError: slow", "bookkeeping") if failed else (None, None, None)
        )
        self.run(
            'INSERT INTO onceflow.parked (account, mode, event_id, order_key, topic_id, partition, "offset", topic, value,'
            " headers, type, code, detail, handler, attempts, failure_group) VALUES (%s, 'test', %s, %s, %s, 0, %s, %s, %s, '[]',"
            " %s, %s, %s, %s, %s, %s)",
            ACCOUNT, event_id, f"{ACCOUNT}/{key}", TOPIC_ID, offset, TOPIC, BODY, type, code, detail, handler, int(failed),
            f"{type} bookkeeping TimeoutError" if failed else None,
        )  # fmt: skip

    def states(self) -> dict[str, str]:
        return {row["event_id"]: row["state"] for row in self.rows("SELECT event_id, state FROM onceflow.inbox")}

    def keys(self) -> dict[str, tuple[str, str, bool]]:
        """By key: what it waits for, its head, and whether it is due."""
        rows = self.rows(
            "SELECT order_key, reason, event_id, due_at <= clock_timestamp() AS due FROM onceflow.parked_key"
        )
        return {row["order_key"].split("/")[1]: (row["reason"], row["event_id"], row["due"]) for row in rows}

    def waiting(self, key: str) -> list[str]:
        """Event ids of a key in their order."""
        query = "SELECT event_id FROM onceflow.parked WHERE order_key = %s ORDER BY seq"
        return [row["event_id"] for row in self.rows(query, f"{ACCOUNT}/{key}")]

    def decisions(self) -> dict[int, str | None]:
        """By offset."""
        rows = self.rows('SELECT "offset", decision FROM onceflow.quarantine ORDER BY "offset"')
        return {row["offset"]: row["decision"] for row in rows}

    def audits(self) -> list[tuple[str, str]]:
        rows = self.rows("SELECT action, subject FROM onceflow.audit ORDER BY id")
        return [(row["action"], row["subject"]) for row in rows]


@pytest.fixture
def desk(fresh_database: str) -> Iterator[Desk]:
    with psycopg.connect(fresh_database) as connection:
        yield Desk(fresh_database, connection)
