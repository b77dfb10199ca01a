"""Findings and remedies in their tables.

Rule: whoever finds a drift again finds its row; nothing here decides what is found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
from psycopg import Connection

from onceflow_processor.arrays import Texts
from onceflow_schemas.sql import queries

_SQL = queries("reconcile")


@dataclass(frozen=True, slots=True)
class Finding:
    """One drift.

    Attributes:
        kind: one of ``FINDING_KINDS``.
        subject: what it is about, in words that stay the same.
        account, mode: where it belongs to one.
        facts: ids, counts and times; nothing personal.
        amount, currency: money at stake, in the currency's smallest unit.
    """

    kind: str
    subject: str
    account: str | None = None
    mode: str | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    amount: int | None = None
    currency: str | None = None


def record(connection: Connection[Any], findings: Sequence[Finding]) -> list[int]:
    """Write findings that are seen now; return their ids."""
    if not findings:
        return []
    given = {
        "kinds": Texts(one.kind for one in findings),
        "subjects": Texts(one.subject for one in findings),
        "accounts": Texts(one.account for one in findings),
        "modes": Texts(one.mode for one in findings),
        "facts": Texts(orjson.dumps(one.facts).decode() for one in findings),
        "amounts": [one.amount for one in findings],
        "currencies": Texts(one.currency for one in findings),
    }
    return [row[0] for row in connection.execute(_SQL["found"], given).fetchall()]


def remedied(connection: Connection[Any], finding_ids: Sequence[int], *, action: str, who: str, result: str) -> None:
    """Write what was done about findings."""
    if finding_ids:
        given = {"finding_ids": list(finding_ids), "action": action, "who": who, "result": result}
        connection.execute(_SQL["remedied"], given)
