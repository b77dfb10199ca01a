"""What ``onceflow operations`` prints: rows of the list, and everything about one operation.

Rule: of a frozen call that is shown which is enough to find it at the other side; texts of mails and bodies are only
measured, and whatever looks like a secret is masked.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from onceflow.redaction import redacted
from onceflow_processor.operations.overview import Shown
from onceflow_schemas.operations.operation import Step
from onceflow_schemas.times import format_time

LIST_COLUMNS = (
    "number",
    "id",
    "state",
    "effect",
    "subject",
    "account",
    "object",
    "asked",
    "next look",
    "tries",
    "reason",
)
ACCOUNT_COLUMNS = ("account", "mode", "open operations", "until", "reason")
STEP_COLUMNS = ("step", "now", "policy", "call", "key", "says")
ATTEMPT_COLUMNS = ("n", "step", "sent", "answered", "evidence", "http", "request id", "detail", "worker")
HINT_COLUMNS = ("webhook", "object", "status", "noted", "looked at")
REVIEW_COLUMNS = ("opened", "code", "detail", "decided", "by", "decision", "reason")
MEASURED = ("text", "html", "body")
"""Parts of a request that may hold anything, and of which only the length is shown."""


def listed(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of the list as JSON."""
    return {name: _plain(value) for name, value in row.items()}


def listed_cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a row of the list as cells."""
    subject = row["subject"] if row["occurrence"] == 1 else f"{row['subject']} #{row['occurrence']}"
    return (
        str(row["seq"]), str(row["id"]), row["state"], row["effect"], subject, row["account"], row["external_id"] or "",
        _time(row["requested_at"]), _time(row["next_attempt_at"]), str(row["attempts"]),
        redacted(row["review_code"] or row["last_error"] or ""),
    )  # fmt: skip


def account_cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return an account as cells."""
    reason = account_reason(row)
    return (row["account"], row["mode"], str(row["waiting"]), _time(row["blocked_until"]) if reason else "", reason)


def account_reason(row: Mapping[str, Any]) -> str:
    """Return why nothing is sent for an account; empty while it works."""
    if row["paused_reason"] is not None:
        return redacted(row["paused_reason"])
    blocked = row["blocked_until"] is not None and row["blocked_until"] > row["read_at"]
    return "its limit is met" if blocked else ""


def shown(found: Shown) -> dict[str, Any]:
    """Return everything about an operation as JSON."""
    read, operation = found.read, found.read.operation
    result = {
        **{name: getattr(operation, name) for name in _SAID},
        "seq": read.facts["seq"],
        "kind": read.facts["kind"],
        "cause": read.facts["cause"],
        "step": operation.present.name,
        "args": dict(operation.args),
        "result": operation.result,
        "settled_at": read.facts["settled_at"],
        "next_attempt_at": read.around.next_attempt_at,
        "lease_owner": read.around.lease_owner,
        "lease_until": read.around.lease_until,
        "attempts": [dict(one) for one in found.attempts],
        "steps": [_step(one) for one in operation.steps],
        "hints": [dict(one) for one in found.hints],
        "reviews": [dict(one) for one in found.reviews],
        "why": found.why,
        "decisions": list(found.decisions),
    }
    masked: dict[str, Any] = json.loads(redacted(json.dumps(_plain(result), ensure_ascii=False)))
    return masked


_SAID = (
    "id",
    "state",
    "effect",
    "subject",
    "occurrence",
    "order_key",
    "account",
    "mode",
    "api_version",
    "requested_at",
    "window_from",
    "external_id",
    "action_until",
    "cancel_asked",
    "last_error",
    "review_code",
)


def shown_lines(found: Shown) -> dict[str, str]:
    """Return what an operation is, by name, for a person."""
    one, operation = shown(found), found.read.operation
    facts = {
        "operation": one["id"],
        "state": f"{one['state']}, step {operation.step + 1} of {len(operation.steps)} ({one['step']})",
        "effect": one["effect"],
        "subject": f"{one['subject']}, occurrence {one['occurrence']}",
        "order key": one["order_key"],
        "account": f"{one['account']} ({one['mode']})",
        "asked": f"{_time(operation.requested_at)} by {one['cause']}",
        "arguments": _json(one["args"]),
        "window from": _time(operation.window_from),
        "object": one["external_id"],
        "result": None if one["result"] is None else _json(one["result"]),
        "last error": one["last_error"],
        "settled": _time(found.read.facts["settled_at"]),
    }
    return {name: value for name, value in facts.items() if value}


def shown_tables(found: Shown) -> list[tuple[str, Sequence[str], list[tuple[str, ...]]]]:
    """Return the tables about an operation that are not empty, each with its title and columns."""
    one = shown(found)
    tables = [
        ("Frozen calls", STEP_COLUMNS, [_step_cells(step, one) for step in one["steps"]]),
        ("Attempts", ATTEMPT_COLUMNS, [_attempt_cells(attempt) for attempt in one["attempts"]]),
        ("Webhooks about it", HINT_COLUMNS, [_hint_cells(hint) for hint in one["hints"]]),
        ("Reviews", REVIEW_COLUMNS, [_review_cells(review) for review in one["reviews"]]),
    ]
    return [table for table in tables if table[2]]


def _step(step: Step) -> dict[str, Any]:
    """Return a frozen call without what may be private."""
    request = {
        name: f"{len(value)} characters" if name in MEASURED and isinstance(value, str) else value
        for name, value in step.request.items()
    }
    return {"name": step.name, "kind": step.kind, "policy": step.policy.value, "key": step.key, "request": request}


def _step_cells(step: Mapping[str, Any], one: Mapping[str, Any]) -> tuple[str, ...]:
    request = dict(step["request"])
    method, where = request.pop("method", step["kind"]), request.pop("path", None) or request.pop("url", "")
    says = request.get("params", request)
    now = "*" if step["name"] == one["step"] else ""
    return (step["name"], now, step["policy"], f"{method} {where}".strip(), step["key"], _json(says))


def _attempt_cells(one: Mapping[str, Any]) -> tuple[str, ...]:
    names = ("n", "name", "sent_at", "settled_at", "evidence", "http_status", "request_id", "detail", "owner")
    return tuple(_cell(one[name]) for name in names)


def _hint_cells(one: Mapping[str, Any]) -> tuple[str, ...]:
    thing = f"{one['object']} {one['object_id']}"
    return (_cell(one["event"]), thing, _cell(one["status"]), _cell(one["noted_at"]), _cell(one["taken_at"]))


def _review_cells(one: Mapping[str, Any]) -> tuple[str, ...]:
    names = ("opened_at", "code", "detail", "decided_at", "decided_by", "decision", "reason")
    return tuple(_cell(one[name]) for name in names)


def _cell(value: object) -> str:
    return "" if value is None else str(value)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return format_time(value)
    if isinstance(value, Mapping):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value if value is None or isinstance(value, str | int | float) else str(value)


def _time(value: datetime | None) -> str:
    return "" if value is None else format_time(value)[:19] + "Z"
