"""What of the outcome topic comes back into a database that was put back.  Pure.

Rule: the topic is believed only where it is plainly ours: each record right behind the last known sequence, of this deployment and
lane, with the record id that follows from its outcome id and revision.  The first one that is not ends the import with the reason;
nothing behind it is taken, and the lane stays closed.

    record                                          decided
    ----------------------------------------------  ---------------------------------------------
    a refill of a known sequence                    passed over
    sequence below the head                         passed over (the rows are compared afterwards)
    sequence at the head, same id as its row        passed over
    sequence at the head, another id                not_importable
    the next sequence, all headers ours             imported
    the next sequence, any header not ours          not_importable
    a later sequence                                not_importable (a hole)
    not an outcome of this lane                     not_importable
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

import orjson

from onceflow_processor.relay.cursor import Disagrees, OutcomeRecord, read_record
from onceflow_schemas.identity import ce_id
from onceflow_schemas.outcome_record import OUTCOME_TYPE_PATTERN, WITHHELD_VALUE
from onceflow_schemas.times import parse_time
from onceflow_schemas.told_facts import FACTS_HEADER, told_digests

_REVISION = re.compile(r"[1-9][0-9]{0,8}")
_CAUSE = re.compile(r"(event|operation|app):.+", re.DOTALL)
_CODE = re.compile(r"[a-z][a-z_]{0,63}")
_OURS: Final = frozenset(
    {
        "ce_specversion",
        "ce_id",
        "ce_source",
        "ce_type",
        "ce_time",
        "ce_subject",
        "content-type",
        "onceflow_lane",
        "onceflow_sequence",
        "onceflow_cause",
        "onceflow_outcome_id",
        "onceflow_revision",
        "onceflow_withheld",
    }
)
"""Headers that have a column; every other one is kept as it came, and the facts are read besides."""


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """A record of the outcome topic as it was read."""

    offset: int
    headers: Sequence[tuple[str, bytes | None]]
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True, slots=True)
class Imported:
    """A row of ``onceflow.outcome`` as a record tells it; ``headers`` is JSON, ``created_at`` RFC 3339, ``facts`` digests of its cause's."""

    seq: int
    outcome_id: UUID
    revision: int
    ce_id: UUID
    type: str
    key: str
    value: bytes
    headers: str
    cause: str
    withheld: str | None
    created_at: str
    facts: Sequence[bytes] = ()


@dataclass(frozen=True, slots=True)
class Lane:
    """Where the import stands: the lane, its deployment, its last known sequence and that row's id (None when there is no row)."""

    number: int
    deployment: str
    head: int
    head_id: UUID | None


def not_importable(detail: str) -> Disagrees:
    """Return what is said of a lane whose topic is ahead with what cannot be believed."""
    return Disagrees("not_importable", detail)


def next_row(record: TopicRecord, *, lane: Lane) -> Imported | Disagrees | None:
    """Decide about one record of a lane that is behind; None when it is passed over.  See the table of the module."""
    found = read_record(record.offset, lane=lane.number, headers=record.headers)
    if not isinstance(found, OutcomeRecord):
        return not_importable(f"the record at offset {record.offset} is no outcome of this lane")
    if found.seq < lane.head or (found.refill and found.seq == lane.head):
        return None
    if found.seq == lane.head:
        if lane.head_id in (None, found.ce_id):
            return None
        return not_importable(f"sequence {found.seq} is {found.ce_id} in the topic, {lane.head_id} in the database")
    if found.seq != lane.head + 1 or found.refill:
        return not_importable(f"offset {record.offset} has sequence {found.seq}, expected {lane.head + 1}")
    try:
        return _row(record, found, deployment=lane.deployment)
    except ValueError as error:
        return not_importable(f"sequence {found.seq} at offset {record.offset}: {error}")


def _row(record: TopicRecord, found: OutcomeRecord, *, deployment: str) -> Imported:
    named: dict[str, str] = {}
    for name, raw in record.headers:
        if raw is None:
            raise ValueError(f"its header {name} has no value")
        # The first one counts: the relay writes its own headers before those of a user.
        named.setdefault(name, _text(raw, f"header {name}"))
    if named.get("ce_source") != f"urn:onceflow:{deployment}":
        raise ValueError("it is of another deployment")
    revision = int(_shaped(named, "onceflow_revision", _REVISION))
    outcome_id = UUID(named.get("onceflow_outcome_id", ""))
    if ce_id(outcome_id, revision) != found.ce_id:
        raise ValueError("its ce_id does not follow from its outcome id and revision")
    key = _text(record.key or b"", "key")
    if record.key is None or named.get("ce_subject") != key:
        raise ValueError("its key and ce_subject differ")
    withheld = _shaped(named, "onceflow_withheld", _CODE) if "onceflow_withheld" in named else None
    created_at = named.get("ce_time", "")
    parse_time(created_at)
    return Imported(
        found.seq,
        outcome_id,
        revision,
        found.ce_id,
        _shaped(named, "ce_type", OUTCOME_TYPE_PATTERN),
        key,
        _value(record.value, withheld=withheld),
        orjson.dumps({name: text for name, text in named.items() if name not in _OURS}).decode(),
        _shaped(named, "onceflow_cause", _CAUSE),
        withheld,
        created_at,
        told_digests(named[FACTS_HEADER]) if FACTS_HEADER in named else (),
    )


def _value(value: bytes | None, *, withheld: str | None) -> bytes:
    if value is None or (withheld is not None and value != WITHHELD_VALUE):
        raise ValueError("its value is not an outcome's")
    orjson.loads(value)
    if not value.startswith(b"{"):
        raise ValueError("its value is no JSON object")
    return value


def _shaped(named: dict[str, str], name: str, pattern: re.Pattern[str]) -> str:
    text = named.get(name, "")
    if not pattern.fullmatch(text):
        raise ValueError(f"its header {name} is not in its form")
    return text


def _text(raw: bytes, what: str) -> str:
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        raise ValueError(f"its {what} is not UTF-8") from None
    if "\x00" in text:
        raise ValueError(f"its {what} holds a zero byte")
    return text
