"""What the relay reads from and writes to PostgreSQL.

Rule: every write names the lease's token and is checked on the server in the same statement; rows of a lane are read
in the order of their sequence, which is the order in which they were committed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from uuid import UUID

import psycopg
from psycopg.rows import tuple_row

from onceflow_processor.arrays import Bigints, Blobs, Integers, Texts, Uuids
from onceflow_processor.relay.cursor import Disagrees, Lane
from onceflow_processor.relay.encoding import StoredOutcome
from onceflow_processor.relay.importing import Imported, not_importable
from onceflow_processor.sqlstates import Meaning, meaning_of, pooler_fault
from onceflow_schemas.failure import LeaseLost, Misconfigured, Unavailable
from onceflow_schemas.sql import queries

CONNECT_TIMEOUT_SECONDS: Final = 5
LOCK_TIMEOUT_MS: Final = 2_000
STATEMENT_TIMEOUT_MS: Final = 5_000
KEEPALIVE_IDLE_SECONDS: Final = 5
KEEPALIVE_INTERVAL_SECONDS: Final = 2
KEEPALIVE_COUNT: Final = 3
TCP_USER_TIMEOUT_MS: Final = 10_000
"""With the three above: a host that vanished is noticed within about ten seconds."""

PREPARE_AFTER: Final = 5
_FENCED: Final = "OF005"
_AWAY: Final = frozenset({Meaning.AWAY, Meaning.RERUN, Meaning.LANE})
_AS_STORED_OUTCOME: Final[Callable[[tuple[Any, ...]], StoredOutcome]] = partial(tuple.__new__, StoredOutcome)
"""Names the columns of a row without a call of Python for each: the query has as many as the tuple."""
_SQL = queries("relay")


@dataclass(frozen=True, slots=True)
class LaneRow:
    """A row of ``onceflow.lane``."""

    lane: int
    head: int
    published: int
    topic_id: str
    state: str
    detail: str

    @property
    def numbers(self) -> Lane:
        """What a verdict needs of it."""
        return Lane(self.head, self.published)


@dataclass(frozen=True, slots=True)
class ImportPage:
    """Outcomes of the topic that follow right behind the head of a lane, and the last sequence that the topic has."""

    lane: int
    head: int
    topic_head: int
    rows: Sequence[Imported]


def connect(database_url: str, *, role: str, prepared: bool) -> psycopg.Connection[Any]:
    """Open an autocommit connection.

    Args:
        database_url: given to libpq as it is.
        role: the application name, unless the address has its own.
        prepared: False behind a pooler without prepared statements.

    Raises:
        Unavailable: the database does not answer.
        Misconfigured: libpq cannot read the address.
    """
    try:
        return psycopg.connect(
            database_url,
            autocommit=True,
            connect_timeout=CONNECT_TIMEOUT_SECONDS,
            fallback_application_name=role,
            prepare_threshold=PREPARE_AFTER if prepared else None,
            keepalives=1,
            keepalives_idle=KEEPALIVE_IDLE_SECONDS,
            keepalives_interval=KEEPALIVE_INTERVAL_SECONDS,
            keepalives_count=KEEPALIVE_COUNT,
            tcp_user_timeout=TCP_USER_TIMEOUT_MS,
        )
    except psycopg.OperationalError as error:
        raise Unavailable("database_unavailable", f"PostgreSQL does not answer ({type(error).__name__})") from error
    except psycopg.ProgrammingError:
        # The address is not shown, nor kept as a cause: it may hold a password.
        raise Misconfigured("settings_invalid", "database.url is not an address that libpq can read") from None


@contextmanager
def database_failures() -> Iterator[None]:
    """Turn errors of the database into failures by who must act; bugs stay what they are.

    Raises:
        LeaseLost: the lease has another token now.
        Unavailable: the database is away, busy, refuses us a right, or has moved a lane under us; look again later.
        Misconfigured: the tables are missing, or a pooler stands between that prepared statements cannot pass.
    """
    try:
        yield
    except psycopg.errors.UndefinedTable as error:
        raise Misconfigured("schema_missing", "the database has no onceflow tables") from error
    except psycopg.errors.InsufficientPrivilege as error:
        said = str(error).partition("\n")[0]
        raise Unavailable("database_unavailable", f"PostgreSQL refuses: {said}", "Run deploy/grants.sql.") from error
    except psycopg.Error as error:
        if error.sqlstate == _FENCED:
            raise LeaseLost("fenced", "another relay holds the lease") from error
        fault = pooler_fault(error)
        if fault is not None:
            raise fault from error
        if meaning_of(error) in _AWAY:
            raise Unavailable(
                "database_unavailable", f"PostgreSQL: {error.sqlstate or type(error).__name__}"
            ) from error
        raise


class LaneStore:
    """Lanes and outcomes of one database, over one connection that belongs to the calling thread."""

    def __init__(self, connection: psycopg.Connection[Any], *, lease_name: str) -> None:
        assert connection.autocommit, "reads must not leave a transaction open"
        self._connection = connection
        self._lease_name = lease_name
        self._limits = {"lock_timeout": str(LOCK_TIMEOUT_MS), "statement_timeout": str(STATEMENT_TIMEOUT_MS)}

    def lanes(self) -> list[LaneRow]:
        """Return all lanes in their order."""
        return [LaneRow(*row) for row in self._read("lanes", {})]

    def ids(self, asked: Iterable[tuple[int, int]]) -> dict[int, dict[int, UUID]]:
        """Return the record ids of rows: lane -> sequence -> id, for the (lane, sequence) pairs that exist."""
        pairs = list(asked)
        given = {"lanes": [lane for lane, _ in pairs], "seqs": [seq for _, seq in pairs]}
        found: dict[int, dict[int, UUID]] = {lane: {} for lane, _ in pairs}
        for lane, seq, ce_id in self._read("lane_ids", given):
            found[lane][seq] = ce_id
        return found

    def ids_between(self, lane: int, *, first_seq: int, last_seq: int) -> dict[int, UUID]:
        """Return the record ids of a stretch of a lane, both ends included."""
        given = {"lane": lane, "first_seq": first_seq, "last_seq": last_seq}
        return dict(self._read("lane_ids_between", given))

    def page(self, lane: int, *, after_seq: int, rows_max: int, bytes_max: int) -> list[StoredOutcome]:
        """Return the next rows of a lane.

        Args:
            lane: the lane.
            after_seq: the last sequence that is done.
            rows_max: the most rows.
            bytes_max: rows are added while the values before them are smaller than this together.
        """
        given = {"lane": lane, "after_seq": after_seq, "rows_max": rows_max, "bytes_max": bytes_max}
        return list(map(_AS_STORED_OUTCOME, self._read("outcome_page", given)))

    def mark_published(self, token: int, seqs: Mapping[int, int]) -> None:
        """Write how far lanes are published.

        Args:
            token: of the lease.
            seqs: lane -> last published sequence.

        Raises:
            LeaseLost: another relay holds the lease; nothing was written.
            Unavailable: the database is away, or a sequence would leave its bounds; nothing or all was written.
        """
        given = {"lanes": list(seqs), "seqs": list(seqs.values())}
        self._write("mark_published", {"token": token, **given})

    def set_state(self, token: int, row: LaneRow, *, state: str, detail: str) -> bool:
        """Change a lane's state from the one that was read; False when it was changed meanwhile.

        Raises:
            LeaseLost: another relay holds the lease.
            Unavailable: the database is away.
        """
        given = {"lane": row.lane, "from_state": row.state, "state": state, "detail": detail}
        if state == "behind":
            return self._note_restore({"token": token, **given})
        return self._write("set_lane_state", {"token": token, **given}) == 1

    def import_page(self, token: int, page: ImportPage, *, who: str) -> Disagrees | None:
        """Append a page behind the head of its lane; returns why the topic cannot be believed, None when it is done.

        Raises:
            LeaseLost: another relay holds the lease.
            Unavailable: the database is away, or the lane is not as it was read; nothing of the page was written.
        """
        given = {"lane": page.lane, "head": page.head, "topic_head": page.topic_head, "who": who, **_columns(page.rows)}
        limits, name = self._limits, self._lease_name
        try:
            with database_failures(), self._connection.transaction():
                self._connection.execute(_SQL["limits"], limits)
                cursor = self._connection.execute(_SQL["import_outcomes"], {"name": name, "token": token, **given})
                row = cursor.fetchone()
        except psycopg.errors.UniqueViolation:
            last = page.head + len(page.rows)
            return not_importable(f"one of the sequences {page.head + 1} to {last} repeats an outcome that is known")
        if row is None or not row[0]:
            raise Unavailable("database_unavailable", f"lane {page.lane} changed while it was imported")
        return None

    def _note_restore(self, given: Mapping[str, object]) -> bool:
        """Close a lane whose topic is ahead, and let operations know of the restore: the processor may look only after us.

        Lock order: operations before lanes.
        """
        closed = False
        with database_failures(), self._connection.transaction() as transaction:
            self._connection.execute(_SQL["limits"], self._limits)
            self._connection.execute(_SQL["restore_noticed"])
            cursor = self._connection.execute(_SQL["set_lane_state"], {"name": self._lease_name, **given})
            closed = cursor.rowcount == 1
            if not closed:
                raise psycopg.Rollback(transaction)
        return closed

    def _read(self, name: str, given: Mapping[str, object]) -> list[tuple[Any, ...]]:
        with database_failures(), self._connection.cursor(binary=True, row_factory=tuple_row) as cursor:
            return cursor.execute(_SQL[name], given).fetchall()

    def _write(self, name: str, given: Mapping[str, object]) -> int:
        """Run one statement with its limits.

        No pipeline: a backend that waits for the rest of one is not idle in its transaction, and so a process that was
        stopped in between would hold the lease's row, and keep its heir away, for as long as it is stopped.
        """
        with database_failures(), self._connection.transaction():
            self._connection.execute(_SQL["limits"], self._limits)
            cursor = self._connection.execute(_SQL[name], {"name": self._lease_name, **given})
        return cursor.rowcount


def _columns(rows: Sequence[Imported]) -> dict[str, object]:
    return {
        "seqs": Bigints(row.seq for row in rows),
        "outcome_ids": Uuids(row.outcome_id for row in rows),
        "revisions": Integers(row.revision for row in rows),
        "ce_ids": Uuids(row.ce_id for row in rows),
        "types": Texts(row.type for row in rows),
        "keys": Texts(row.key for row in rows),
        "bodies": Blobs(row.value for row in rows),
        "headers": Texts(row.headers for row in rows),
        "causes": Texts(row.cause for row in rows),
        "withhelds": Texts(row.withheld for row in rows),
        "created": Texts(row.created_at for row in rows),
        "fact_digests": Blobs(digest for row in rows for digest in row.facts),
        "fact_causes": Texts(row.cause for row in rows for _ in row.facts),
    }
