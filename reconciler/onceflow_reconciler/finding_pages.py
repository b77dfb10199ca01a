"""What people see of findings, and what they decide.

Rule: an acceptance and its audit are one transaction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from psycopg import Connection
from psycopg.rows import dict_row

from onceflow_producer.failpoint import hit
from onceflow_reconciler.remedies import Action
from onceflow_schemas.failure import Refused
from onceflow_schemas.sql import queries

REMEDIES_MAX: Final = 100
OPEN: Final = ("open", "recurring")

_SQL = queries("finding_pages")


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingFilter:
    """Which findings are meant; None means any."""

    states: tuple[str, ...] | None = OPEN
    kind: str | None = None
    account: str | None = None
    before: int | None = None


def list_findings(connection: Connection[Any], wanted: FindingFilter, *, count: int) -> list[dict[str, Any]]:
    """Return findings, the latest first."""
    given = {
        "states": None if wanted.states is None else list(wanted.states),
        "kind": wanted.kind,
        "account": wanted.account,
        "before": wanted.before,
        "rows_max": count,
    }
    return connection.cursor(row_factory=dict_row).execute(_SQL["listed"], given).fetchall()


def show_finding(connection: Connection[Any], finding_id: int) -> dict[str, Any]:
    """Return one finding with what was done about it.

    Raises:
        Refused: ``finding_missing``.
    """
    cursor = connection.cursor(row_factory=dict_row)
    found = cursor.execute(_SQL["listed"], {**_ANY, "before": finding_id + 1, "rows_max": 1}).fetchone()
    if found is None or found["id"] != finding_id:
        raise Refused("finding_missing", f"there is no finding {finding_id}")
    remedies = cursor.execute(_SQL["remedies"], {"id": finding_id, "rows_max": REMEDIES_MAX}).fetchall()
    return {**found, "remedies": remedies}


def accept_findings(connection: Connection[Any], ids: Sequence[int], *, who: str, reason: str) -> list[dict[str, Any]]:
    """Accept findings as they are; return those that were open."""
    cursor = connection.cursor(row_factory=dict_row)
    with connection.transaction():
        accepted = cursor.execute(_SQL["accept"], {"ids": list(ids), "who": who, "reason": reason}).fetchall()
        subjects = [f"finding {row['id']} {row['kind']} {row['subject']}" for row in accepted]
        cursor.execute(_SQL["audit"], {"who": who, "reason": reason, "subjects": subjects})
        hit("findings.before_accept_commit")
    return accepted


def heal_in_tables(
    connection: Connection[Any], found: Sequence[Mapping[str, Any]], *, action: Action, who: str, reason: str
) -> None:
    """Have workers or processors take up what findings are about; ``republish`` is only written down here."""
    with connection.transaction():
        if action == "look":
            ids = [UUID(one["facts"]["operation_id"]) for one in found]
            connection.execute(_SQL["heal_look"], {"ids": ids})
        elif action == "retry":
            connection.execute(_SQL["heal_retry"], {"order_keys": [one["facts"]["order_key"] for one in found]})
        given = {"action": action, "who": who, "reason": reason}
        connection.execute(_SQL["healing"], {**given, "ids": [one["id"] for one in found]})
        subjects = [f"finding {one['id']} {one['kind']} {one['subject']}" for one in found]
        connection.execute(_SQL["heal_audit"], {**given, "subjects": subjects})
        hit("findings.before_heal_commit")


_ANY: Final = {"states": None, "kind": None, "account": None}
