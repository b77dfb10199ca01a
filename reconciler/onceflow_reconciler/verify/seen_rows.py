"""What of a record is compared with the ledger.

Rule: a record's own words are taken here and judged elsewhere; whether somebody vouches for it is asked only where no row can
say it, since that is what costs.  Pure.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple

import orjson

from onceflow_processor.admission import Item, Rules, admit
from onceflow_processor.inputs.rendering import digest_of
from onceflow_processor.records import Headers, Record
from onceflow_schemas.event_record import RECONCILER_ENDPOINT, TYPE_PREFIX
from onceflow_schemas.times import parse_time

_SOURCE_PARTS: Final = 4
_RECONCILER: Final = RECONCILER_ENDPOINT.encode()
_OURS: Final = frozenset(
    {
        "ce_specversion", "ce_id", "ce_source", "ce_type", "ce_time", "content-type", "onceflow_lane", "onceflow_sequence",
        "onceflow_cause", "onceflow_outcome_id", "onceflow_revision", "onceflow_refill", "onceflow_withheld", "ce_subject",
    }
)  # fmt: skip

SEQ_MAX: Final = 2**63 - 1
REVISION_MAX: Final = 2**31 - 1
TIME_MS_MAX: Final = 253_402_300_799_000
"""The end of the year 9999: a record may say any time."""

EventRow = tuple[
    str,
    int,
    int,
    int,
    str | None,
    str | None,
    str | None,
    str | None,
    str | None,
    str | None,
    bytes,
    bytes | None,
    bool | None,
]
"""Topic id, partition, offset, time in milliseconds; account, mode, event id, type, created, received at; what the marker's and, where it is another,
the value's digest must be; whether somebody vouches for it, None where that was not asked."""


class OutcomeRowSeen(NamedTuple):
    """A record of the outcome topic; ``why`` says why it is none of ours, and then the rest is empty."""

    lane: int
    offset: int
    seq: int | None = None
    ce_id: str | None = None
    outcome_id: str | None = None
    revision: int | None = None
    type: str | None = None
    key: str | None = None
    cause: str | None = None
    created_at: str | None = None
    withheld: str | None = None
    own_headers: str | None = None
    refill: bool = False
    digest: bytes | None = None
    why: str | None = None


def event_row(record: Record, *, topic_id: str, rules: Rules, now: datetime, passed: bool) -> EventRow:
    """Return what is compared of a record of an event topic.

    Args:
        record: as it came.
        topic_id: of its topic.
        rules: what the deployment takes.
        now: aware.
        passed: the processor's position is behind it: a row says what it is.
    """
    place = (topic_id, record.partition.number, record.offset, _time_of(record))
    value = record.value or b""
    given = rules.inputs.get(record.partition.topic)
    if given is not None and given.format != "onceflow":
        return (*place, *_foreign(admit(record, rules=rules, now=now), value))
    said = dict(record.headers)
    source = _text(said.get("ce_source")).split(":")
    account, mode = (source[2], source[3]) if len(source) == _SOURCE_PARTS else (None, None)
    created, received = _moment(said.get("ce_time")), _text(said.get("onceflow_received_at")) or None
    by_us = said.get("onceflow_endpoint") == _RECONCILER
    plain = hashlib.sha256(value).digest()
    digest, value_digest = (digest_of(value), plain) if by_us and value else (plain, None)
    trusted = None if passed else admit(record, rules=rules, now=now).event is not None
    event_id = _text(said.get("ce_id")) or None
    told = _text(said.get("ce_type"))
    event_type = told.removeprefix(TYPE_PREFIX) if told.startswith(TYPE_PREFIX) else None
    return (*place, account, mode, event_id, event_type, created, received, digest, value_digest, trusted)


def _foreign(
    item: Item, value: bytes
) -> tuple[str | None, str | None, str | None, str | None, str | None, str | None, bytes, bytes | None, bool]:
    event, plain = item.event, hashlib.sha256(value).digest()
    if event is None:
        return None, None, None, None, None, None, plain, None, False
    account, mode, event_id = event.identity
    return account, mode, event_id, event.type, event.created_text, None, event.body_sha256, plain, True


def outcome_row(
    lane: int, offset: int, *, key: bytes | None, value: bytes | None, headers: Headers, source: str
) -> OutcomeRowSeen:
    """Return what is compared of a record of the outcome topic; ``source`` is what ours say in ``ce_source``."""
    try:
        said = _texts(headers)
        if said["ce_source"] != source:
            return OutcomeRowSeen(lane, offset, why="it was written by somebody else")
        if said["onceflow_lane"] != str(lane):
            return OutcomeRowSeen(lane, offset, why=f"it says lane {said['onceflow_lane']}")
        if value is None or key is None or said["ce_subject"] != key.decode():
            return OutcomeRowSeen(lane, offset, why="its key is not its subject, or it has no value")
        parse_time(said["ce_time"])
        seq, revision = int(said["onceflow_sequence"]), int(said["onceflow_revision"])
        if not (0 < seq <= SEQ_MAX and 0 < revision <= REVISION_MAX):
            return OutcomeRowSeen(lane, offset, why="its sequence or revision is no number of ours")
        own = {name: text for name, text in said.items() if name not in _OURS}
        return OutcomeRowSeen(
            lane,
            offset,
            seq,
            said["ce_id"],
            said["onceflow_outcome_id"],
            revision,
            said["ce_type"],
            said["ce_subject"],
            said["onceflow_cause"],
            said["ce_time"],
            said.get("onceflow_withheld"),
            orjson.dumps(own).decode() if own else None,
            refill="onceflow_refill" in said,
            digest=hashlib.sha256(value).digest(),
        )
    except (KeyError, ValueError):
        return OutcomeRowSeen(lane, offset, why="its headers cannot be read")


def _texts(headers: Sequence[tuple[str, bytes | None]]) -> Mapping[str, str]:
    said = {name: raw.decode() for name, raw in headers if raw is not None}
    if len(said) != len(headers) or any("\x00" in text for text in said.values()):
        message = "a header is doubled, null or no text"
        raise ValueError(message)
    return said


def _time_of(record: Record) -> int:
    return min(max(0, record.timestamp_ms), TIME_MS_MAX)


def _text(raw: bytes | None) -> str:
    """Return a header as text that a database takes."""
    return (raw or b"").decode("utf-8", "replace").replace("\x00", "�")


def _moment(raw: bytes | None) -> str | None:
    """Return a time as text, None where it is none."""
    text = _text(raw)
    try:
        parse_time(text)
    except ValueError:
        return None
    return text
