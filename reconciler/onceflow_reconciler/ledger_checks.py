"""What the tables alone show: what waits too long, what nobody works at, what stands still.

Rule: a look finds and heals in one transaction, so that what is gone is healed by the very look that no longer sees it; a kind
of which more was found than is written at a time heals nothing.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final

from psycopg import Connection

from onceflow_reconciler.finding import Finding
from onceflow_reconciler.finding_store import record
from onceflow_schemas.sql import queries

ROWS_MAX: Final = 1_000
"""Findings of one kind that one look writes."""

_CHECKS = queries("reconcile_ledger")
_SQL = queries("reconcile")


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long something may wait before it is a finding."""

    parked_hours: float = 6.0
    quarantined_hours: float = 24.0
    unknown_minutes: float = 60.0
    lease_minutes: float = 10.0
    unpublished_minutes: float = 10.0


def look_at_tables(connection: Connection[Any], patience: Patience) -> dict[str, int]:
    """Write what is found, heal what is gone; return how many there are of each kind."""
    found: dict[str, int] = {}
    for kind, query in _CHECKS.items():
        with connection.transaction():
            rows = connection.execute(query, {**asdict(patience), "rows_max": ROWS_MAX}).fetchall()
            findings = [
                Finding(kind, subject, account, mode, facts, amount, currency)
                for subject, account, mode, facts, amount, currency in rows
            ]
            record(connection, findings)
            found[kind] = len(findings)
            if len(findings) < ROWS_MAX:
                seen = [finding.subject for finding in findings]
                connection.execute(_SQL["gone_of_kind"], {"kind": kind, "subjects": seen})
    return found
