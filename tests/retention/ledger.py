"""A ledger with rows of every age, put in by SQL, and a holder of the relay's lease."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import psycopg

from onceflow_processor.retention.store import RetentionStore

LEASE = "relay:outcomes"
TOKEN = 7


@dataclass
class Ledger:
    """The tables of one database."""

    url: str

    def sql(self, text: str, given: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(text.encode(), list(given))
            return cursor.fetchall() if cursor.description else []

    def hold_lease(self, token: int = TOKEN) -> None:
        self.sql(
            "INSERT INTO onceflow.lease VALUES (%s, 'test', %s, 'infinity') ON CONFLICT (name) DO UPDATE SET token = %s",
            [LEASE, token, token],
        )

    def add_markers(
        self,
        rows: int,
        *,
        days: float,
        state: str = "processed",
        processed_days: float | None = None,
        name: str = "evt",
    ) -> None:
        """Markers that were received ``days`` ago, and processed then or ``processed_days`` ago."""
        self.sql(
            'INSERT INTO onceflow.inbox (account, mode, event_id, state, type, object_id, topic_id, partition, "offset",'
            " body_sha256, received_at, processed_at, handler_set)"
            " SELECT 'acct_1', 'test', %s || '_' || %s || '_' || n, %s, 'payment_intent.succeeded', 'pi_' || n, 't', 0, n,"
            "        sha256(n::text::bytea), clock_timestamp() - make_interval(secs => %s * 86400),"
            "        clock_timestamp() - make_interval(secs => %s * 86400), 'h'"
            " FROM generate_series(1, %s) AS n",
            [name, f"{days:g}", state, days, days if processed_days is None else processed_days, rows],
        )

    def add_outcomes(self, lane: int, rows: int, *, days: float, published: bool = True) -> None:
        """Outcomes of an age, at the end of a lane."""
        self.sql(
            "INSERT INTO onceflow.lane (lane, topic_id) VALUES (%s, 't') ON CONFLICT DO NOTHING", [lane],
        )  # fmt: skip
        self.sql(
            "INSERT INTO onceflow.outcome (lane, seq, outcome_id, ce_id, type, key, value, cause, created_at)"
            " SELECT lane, head_seq + n, gen_random_uuid(), gen_random_uuid(), 'done', 'k', '{}', 'c',"
            "        clock_timestamp() - make_interval(secs => %s * 86400)"
            " FROM onceflow.lane, generate_series(1, %s) AS n WHERE lane = %s",
            [days, rows, lane],
        )
        self.sql("UPDATE onceflow.lane SET head_seq = head_seq + %s WHERE lane = %s", [rows, lane])
        if published:
            self.sql("UPDATE onceflow.lane SET published_seq = head_seq WHERE lane = %s", [lane])

    def markers(self) -> dict[str, int]:
        """How many markers there are, by name and age."""
        rows = self.sql(
            "SELECT regexp_replace(event_id, '_[0-9]+$', ''), count(*) FROM onceflow.inbox GROUP BY 1 ORDER BY 1"
        )
        return {str(name): int(count) for name, count in rows}

    def seqs(self, lane: int) -> list[int]:
        return [row[0] for row in self.sql("SELECT seq FROM onceflow.outcome WHERE lane = %s ORDER BY seq", [lane])]

    @contextmanager
    def store(self, *, token: int = TOKEN) -> Iterator[RetentionStore]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            yield RetentionStore(connection, lease_name=LEASE, token=token)

    def sweep_markers(self, *, keep_days: int = 72, pages_max: int = 256, slices_max: int = 1_000) -> int:
        """Slice until the end of the inbox; returns the number of deleted rows."""
        deleted = 0
        with self.store() as store:
            for _ in range(slices_max):
                done = store.retire_markers(keep_days=keep_days, pages_max=pages_max)
                deleted += done.deleted
                if done.swept:
                    return deleted
        raise AssertionError("the sweep does not come to its end")

    def sweep_outcomes(self, lane: int, *, keep_days: int = 72, rows_max: int = 5_000, slices_max: int = 1_000) -> int:
        """Slice until a lane is done; returns the number of deleted rows."""
        deleted = 0
        with self.store() as store:
            for _ in range(slices_max):
                done = store.retire_outcomes(lane, keep_days=keep_days, rows_max=rows_max)
                deleted += done.deleted
                if done.swept:
                    return deleted
        raise AssertionError("the sweep does not come to its end")


def utc_now() -> datetime:
    return datetime.now(UTC)
