"""Findings and remedies in their tables.

Rule: whoever finds a drift again finds its row; nothing here decides what is found.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson
from psycopg import Connection

from onceflow_processor.arrays import Texts
from onceflow_producer.failpoint import hit
from onceflow_reconciler.finding import Finding
from onceflow_schemas.sql import queries

_SQL = queries("reconcile")


def record(connection: Connection[Any], findings: Sequence[Finding]) -> list[int]:
    """Write findings that are seen now, each once; return their ids in the same order."""
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
    ids = {(row[1], row[2]): row[0] for row in connection.execute(_SQL["found"], given).fetchall()}
    hit("reconciler.in_findings")
    return [ids[one.kind, one.subject] for one in findings]


def remedied(connection: Connection[Any], finding_ids: Sequence[int], *, action: str, who: str, result: str) -> None:
    """Write what was done about findings."""
    if finding_ids:
        given = {"finding_ids": list(finding_ids), "action": action, "who": who, "result": result}
        connection.execute(_SQL["remedied"], given)


def count_open(connection: Connection[Any]) -> dict[str, int]:
    """Return how many findings are open, by kind."""
    return dict(connection.execute(_SQL["open_counts"]).fetchall())
