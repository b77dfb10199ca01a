"""What ``onceflow parked`` and ``onceflow quarantine`` print.

Rule: a list holds no content of an event and no message of an error.  What a record or an error says is shown for one event
only, bounded, and without characters that a terminal would obey.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from onceflow.redaction import redacted
from onceflow_processor.failures.overview import Group, Kind, Shown, ids_of
from onceflow_schemas.failure import hint_for
from onceflow_schemas.failure_decisions import Verdict
from onceflow_schemas.times import format_time

BYTES_SHOWN_MAX = 16_384
GROUP_COLUMNS = ("events", "type", "handler", "error", "first", "last", "one of them")
LIST_COLUMNS: Mapping[Kind, Sequence[str]] = {
    "parked": ("id", "type", "code", "handler", "error", "key", "waits for", "tried", "due", "parked", "read at"),
    "quarantine": ("id", "type", "code", "handler", "error", "key", "blocks", "decision", "quarantined", "read at"),
}
WAITS_FOR = {"retry": "its next try", "quarantined": "a decision", "reading": "an object"}

_LISTED: Mapping[Kind, Sequence[str]] = {
    "parked": (
        "account", "mode", "event_id", "type", "state", "code", "handler", "error", "order_key", "seq", "reason", "is_head",
        "in_hand", "due_at", "attempts", "parked_at", "topic", "topic_id", "partition", "offset",
    ),
    "quarantine": (
        "account", "mode", "event_id", "type", "state", "code", "handler", "error", "order_key", "blocks", "attempts", "asked",
        "decision", "decided_at", "decided_by", "dead_lettered_at", "quarantined_at", "topic", "topic_id", "partition", "offset",
    ),
}  # fmt: skip


def listed(kind: Kind, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of the list as JSON; ``id`` is what the other commands take."""
    return {"id": exact_id(kind, row), **{name: _plain(row[name]) for name in _LISTED[kind]}}


def exact_id(kind: Kind, row: Mapping[str, Any]) -> str:
    """Return the id that names this row and no other."""
    return ids_of(row)[0] if kind == "parked" else ids_of(row)[-2]


def listed_cells(kind: Kind, row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a row of the list as cells; the id is the shortest one that a person would use."""
    place = f"{row['topic']}/{row['partition']}/{row['offset']}"
    name = row["event_id"] or place
    failed = (name, row["type"], row["code"] or "", row["handler"], row["error"], row["order_key"] or "")
    if kind == "parked":
        waits = WAITS_FOR[row["reason"]] if row["is_head"] or row["reason"] == "quarantined" else "the one before it"
        due = _time(row["due_at"]) if row["is_head"] else ""
        return (*failed, waits, str(row["attempts"]), due, _time(row["parked_at"]), place)
    decision = row["decision"] or ("asked again" if row["asked"] else "")
    return (*failed, "yes" if row["blocks"] else "", decision, _time(row["quarantined_at"]), place)


def group_object(group: Group) -> dict[str, Any]:
    """Return a group as JSON."""
    return {
        "group": group.name,
        "type": group.type,
        "handler": group.handler or None,
        "error": group.error or None,
        "events": group.events,
        "first_at": _plain(group.first_at),
        "last_at": _plain(group.last_at),
        "sample": group.sample,
    }


def group_cells(group: Group) -> tuple[str, ...]:
    """Return a group as cells."""
    seen = (_time(group.first_at), _time(group.last_at), group.sample)
    return (f"{group.events:,}", group.type, group.handler, group.error, *seen)


def shown(found: Shown) -> dict[str, Any]:
    """Return everything about one event as JSON."""
    row, record = found.row, found.record
    said = {name: record[name] for name in ("detail", "traceback")}
    more = {name: _plain(value) for name, value in record.items() if name not in (*_RECORD, *said)}
    return {
        **listed(found.kind, row),
        **more,
        **{name: None if text is None else redacted(text) for name, text in said.items()},
        "record": {
            "key": bytes_shown(record["key"]),
            "value": bytes_shown(record["value"]),
            "headers": [[name, header_shown(value)] for name, value in record["headers"] or []],
            "time": _plain(record["record_time"]),
        },
        "behind": {"events": found.behind_count, "first": [dict(one) for one in found.behind]},
        "audit": [_plain(dict(one)) for one in found.audits],
        "decisions": {action: verdict.value for action, verdict in found.verdicts.items()},
        "next_step": next_step(found),
    }


_RECORD = ("key", "value", "headers", "record_time")


def bytes_shown(content: bytes | None) -> dict[str, Any] | None:
    """Return bytes as text where they are text that may be printed, else as base64; the first part of long ones."""
    if content is None:
        return None
    part = content[:BYTES_SHOWN_MAX]
    text = part.decode("utf-8", "ignore")
    is_text = part.startswith(text.encode()) and len(part) - len(text.encode()) < LONGEST_CHARACTER_BYTES
    is_text = is_text and (len(part) == len(text.encode()) or len(part) < len(content)) and text == printable(text)
    return {
        "bytes": len(content),
        "shown": len(text.encode()) if is_text else len(part),
        "as": "text" if is_text else "base64",
        "content": text if is_text else base64.b64encode(part).decode(),
    }


LONGEST_CHARACTER_BYTES = 4


def header_shown(value: str | None) -> str | None:
    """Return a header's value, kept in base64, as text where it may be printed; else as it is kept, and so marked."""
    if value is None:
        return None
    content = bytes_shown(base64.b64decode(value))
    assert content is not None, "a value was given"
    return content["content"] if content["as"] == "text" else f"base64:{content['content']}"


def printable(text: str) -> str:
    """Return a text without what a terminal would obey."""
    return "".join(one if one.isprintable() or one in "\n\t" else "\N{REPLACEMENT CHARACTER}" for one in text)


def next_step(found: Shown) -> str:
    """Return what a person does next about an event."""
    row, name = found.row, exact_id(found.kind, found.row)
    can = [action for action, verdict in found.verdicts.items() if verdict.acts]
    if not can:
        return f"Nothing is left to decide: {found.verdicts['retry'].becomes}."
    commands = " or ".join(f"`onceflow {found.kind} {action} {name} --reason '...' --execute`" for action in can)
    if found.kind == "parked":
        meant = found.verdicts["retry"]
        head = "/".join(str(found.record[f"head_{part}"]) for part in ("account", "mode", "event_id"))
        if meant is Verdict.HEAD_QUARANTINED:
            return f"Its key waits for a decision about {head}: `onceflow quarantine show {head}`."
        if meant is Verdict.BEHIND_ITS_HEAD:
            return f"It follows {head} by itself: `onceflow parked show {head}`."
        return f"It goes on by itself. To decide: {commands}."
    hint = hint_for(row["code"])
    return f"{hint} Then {commands}."


def shown_lines(found: Shown) -> list[str]:
    """Return everything about an event for a person."""
    one = shown(found)
    skipped = ("record", "behind", "audit", "decisions", "next_step", "traceback", "topic_id", "seq")
    lines = [
        f"{name.replace('_', ' '):17}{value}" for name, value in one.items() if _said(value) and name not in skipped
    ]
    for name in ("key", "value"):
        part = one["record"][name]
        if part is not None:
            lines += [f"\n{name}, {part['shown']:,} of {part['bytes']:,} bytes as {part['as']}", part["content"]]
    if one["record"]["headers"]:
        lines += [
            "\nheaders",
            *(f"  {name}: {'(null)' if value is None else value}" for name, value in one["record"]["headers"]),
        ]
    if one["traceback"]:
        lines += ["\ntraceback", one["traceback"].rstrip()]
    if one["behind"]["events"]:
        waiting = one["behind"]["first"]
        lines += [
            f"\nwaiting behind it: {one['behind']['events']:,}",
            *(f"  {row['event_id']}  {row['type']}" for row in waiting),
        ]
        more = one["behind"]["events"] - len(waiting)
        lines += [f"  and {more:,} more"] if more else []
    if one["audit"]:
        lines += [
            "\naudit",
            *(f"  {row['at']}  {row['action']} by {row['who']}: {row['reason']}" for row in one["audit"]),
        ]
    return [printable(line) for line in [*lines, "", one["next_step"]]]


def _said(value: object) -> bool:
    return value not in (None, "", False)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return format_time(value)
    if isinstance(value, Mapping):
        return {name: _plain(inner) for name, inner in value.items()}
    return value


def _time(value: datetime | None) -> str:
    return "" if value is None else format_time(value)[:19] + "Z"
