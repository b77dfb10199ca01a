"""What the reconciler has written down and nobody needs any more goes, a little at a time.

Rule: the functions in the database decide what is old, under the token of the reconciler's lease; a look that cannot delete
anything loses nothing, and the next one tries again.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

import psycopg
import structlog
from psycopg import Connection

from onceflow_processor.database import first_line
from onceflow_processor.relay.lease import Lease
from onceflow_processor.retention.book import SWEEP_INTERVAL
from onceflow_producer.failpoint import hit
from onceflow_schemas.failure import LeaseLost, Unavailable
from onceflow_schemas.ledger_findings import KINDS_OF_ONE_ROW
from onceflow_schemas.sql import queries

KINDS_KEPT: Final = ("events_out_of_reach",)
"""Also when it is healed: a proof of that time asks why its hours were not kept."""
KINDS_PASSING: Final = ("missed_event", *KINDS_OF_ONE_ROW)
"""An accepted finding of these explains nothing any more when rows and records of its time are gone."""
ROWS_MAX: Final = 5_000
"""Rows of one slice."""
SLICES_MAX: Final = 20
"""Slices of one table in one look; the next look goes on."""
LOCK_TIMEOUT_MS: Final = 200
STATEMENT_TIMEOUT_MS: Final = 5_000
FENCED: Final = "OF005"

_SQL = queries("reconcile_retention")

log = structlog.get_logger("onceflow.reconciler")


def retire(connection: Connection[Any], lease: Lease, *, name: str, findings_days: int) -> int:
    """Delete what is old of what is due, and return how many rows were; in autocommit.

    Args:
        connection: the reconciler's own.
        lease: is held, and kept meanwhile.
        name: of the lease.
        findings_days: so long a finding stays that is healed, or accepted.

    Raises:
        LeaseLost: another reconciler works.
        Unavailable: nothing (more) is deleted now: a lock that a migration waits for, a right that is not granted yet, clocks that differ.
        psycopg.OperationalError: the database is away.
    """
    due = connection.execute(_SQL["due"], {"seconds": SWEEP_INTERVAL.total_seconds()}).fetchall()
    try:
        return sum(_sweep(connection, lease, table=table, name=name, findings_days=findings_days) for (table,) in due)
    except psycopg.Error as error:
        if error.sqlstate == FENCED:
            raise LeaseLost("fenced", "another reconciler took the lease") from error
        if error.sqlstate is None:
            raise
        raise Unavailable("retention_refused", f"the database deletes nothing: {first_line(error)}") from error


def _sweep(connection: Connection[Any], lease: Lease, *, table: str, name: str, findings_days: int) -> int:
    limits = {"lock_timeout": str(LOCK_TIMEOUT_MS), "statement_timeout": str(STATEMENT_TIMEOUT_MS)}
    given = {
        "lease": name,
        "keep_days": findings_days,
        "kinds_kept": list(KINDS_KEPT),
        "kinds_passing": list(KINDS_PASSING),
        "rows_max": ROWS_MAX,
    }
    deleted = 0
    for _ in range(SLICES_MAX):
        lease.keep()
        with connection.transaction():
            connection.execute(_SQL["limits"], limits)
            now = {"token": lease.token, "asked_at": datetime.now(UTC)}
            row = connection.execute(_SQL[table], {**given, **now}).fetchone()
            assert row is not None, "the function always returns one row"
            hit("reconciler.in_retention")
        deleted += row[0]
        if row[1]:
            break
    if deleted:
        log.info("retention_swept", table=table, deleted=deleted)
    return deleted
