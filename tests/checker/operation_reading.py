"""Operations read from the raw tables and, over HTTP, from the simulator's two books.

Rule: what is read is not interpreted here, but for what a frozen step would make.  No product code is imported.
"""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Mapping
from typing import Any

import psycopg

from tests.checker.operation_snapshot import AttemptRow, Movement, OperationRow, Operations, Request, Told
from tests.checker.tables import connect

OPERATION = "onceflow_operation"
TIMEOUT_SECONDS = 30.0
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_CAUSE = re.compile(rf"operation:({_UUID.pattern})/([a-z]+)")

Connection = psycopg.Connection[tuple[Any, ...]]


def read_operations(
    database_url: str,
    simulator_url: str,
    *,
    settlement_table: str,
    closed: Mapping[str, int] | None = None,
    asleep: frozenset[str] = frozenset(),
    restored: frozenset[str] = frozenset(),
) -> Operations:
    """Read everything about operations.

    Args:
        database_url: of the product's database.
        simulator_url: of the simulator that was called.
        settlement_table: the user's own, with the columns ``operation`` and ``state``.
        closed, asleep, restored: see ``Operations``.
    """
    ledger, journal = _get(simulator_url, "/_sim/ledger"), _get(simulator_url, "/_sim/journal")
    with connect(database_url) as connection:
        steps = {
            str(row[0]): json.loads(row[1])
            for row in connection.execute("SELECT id, steps::text FROM onceflow.operation")
        }
        return Operations(
            rows=_rows(connection, steps),
            attempts=_attempts(connection, steps),
            movements=tuple(_movement(entry) for entry in ledger["entries"]),
            requests=tuple(
                Request(entry["n"], entry["method"], entry["path"], entry["key"], entry["metadata"])
                for entry in journal["entries"]
            ),
            told=_told(connection),
            settlements=tuple(
                (str(row[0]), row[1]) for row in connection.execute(f"SELECT operation, state FROM {settlement_table}")
            ),
            closed=dict(closed or {}),
            asleep=asleep,
            restored=restored,
        )


def _get(url: str, path: str) -> dict[str, Any]:
    with urllib.request.urlopen(url + path, timeout=TIMEOUT_SECONDS) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


def _rows(connection: Connection, steps: Mapping[str, Any]) -> tuple[OperationRow, ...]:
    query = (
        "SELECT operation.id, subject, state, window_from, fence, told, review.code, lease_owner, conclusion IS NOT NULL,"
        " surplus, next_attempt_at < 'infinity'"
        " FROM onceflow.operation LEFT JOIN onceflow.review ON operation_id = operation.id AND decided_at IS NULL"
    )
    found = []
    for identity, subject, state, window_from, fence, told, code, owner, concluded, surplus, due in connection.execute(
        query
    ):
        wants, amount, currency = _wanted(steps[str(identity)])
        reasons = {
            f"{owner} has it": owner is not None,
            "its callback has not run": concluded,
            f"{surplus} are to be canceled": bool(surplus),
            "something is due": due,
        }
        busy = ", ".join(reason for reason, holds in reasons.items() if holds) or None
        found.append(
            OperationRow(
                str(identity), subject, state, wants, amount, currency, window_from, fence, tuple(told), code, busy
            )
        )
    return tuple(found)


def _wanted(steps: list[dict[str, Any]]) -> tuple[str | None, int | None, str | None]:
    """What kind of movement the frozen steps make, and how much."""
    request = steps[0]["request"]
    params = request.get("params", {})
    if request.get("path") == "/v1/refunds":
        return "refund", params.get("amount"), None
    if [step["name"] for step in steps] == ["create", "confirm", "cancel"] and params.get("capture_method") != "manual":
        return "charge", params["amount"], params["currency"]
    return None, None, None


def _attempts(connection: Connection, steps: Mapping[str, Any]) -> tuple[AttemptRow, ...]:
    rows = connection.execute("SELECT operation_id, n, step, fence, sent_at, evidence FROM onceflow.attempt")
    return tuple(
        AttemptRow(str(identity), n, steps[str(identity)][step]["key"] if step >= 0 else None, fence, sent_at, evidence)
        for identity, n, step, fence, sent_at, evidence in rows
    )


def _movement(entry: Mapping[str, Any]) -> Movement:
    """Only metadata names an operation: other clients' keys are nobody's."""
    named = entry["metadata"].get(OPERATION)
    return Movement(entry["kind"], entry["object"], named, entry["amount"], entry["currency"])


def _told(connection: Connection) -> tuple[Told, ...]:
    rows = connection.execute("SELECT cause, type, key FROM onceflow.outcome WHERE cause LIKE 'operation:%'")
    told = []
    for cause, kind, key in rows:
        match = _CAUSE.fullmatch(cause)
        told.append(Told(match[1] if match else cause, match[3] if match else "", kind, key))
    return tuple(told)
