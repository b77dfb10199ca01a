"""Our own records as lines of COPY, in as few steps as Python allows.

Rule: what is odd in any way is not written here; a slower look takes it, and finds out what it is.  Pure.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from onceflow_schemas.event_record import RECONCILER_ENDPOINT, TYPE_PREFIX
from onceflow_schemas.times import parse_time

_RECONCILER: Final = RECONCILER_ENDPOINT.encode()
_PLAIN: Final = re.compile(rb"[A-Za-z0-9_.:\-]{1,255}")
_SOURCE: Final = re.compile(rb"urn:stripe:([A-Za-z0-9_.\-]{1,255}):(live|test)")
_REMEMBERED_MAX: Final = 65_536
_NUMBER: Final = re.compile(rb"[1-9][0-9]{0,17}")
_REVISION: Final = re.compile(rb"[1-9][0-9]{0,8}")
_WRITTEN: Final = re.compile(rb"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}Z")
_CAUSE: Final = re.compile(rb"[A-Za-z0-9_.:/\-]{1,600}")
_OUTCOME_HEADERS: Final = frozenset(
    {
        "ce_specversion", "ce_id", "ce_source", "ce_type", "ce_time", "ce_subject", "content-type", "onceflow_lane",
        "onceflow_sequence", "onceflow_cause", "onceflow_outcome_id", "onceflow_revision",
    }
)  # fmt: skip


def event_line(
    place: bytes, offset: int, time_ms: int, *, headers: Sequence[tuple[str, bytes | None]], value: bytes
) -> bytes | None:
    """Return the line of table ``seen_event`` for a record that the processor has passed; None where it is not plain.

    Args:
        place: topic id and partition, as they stand in a line.
        offset, time_ms: of the record.
        headers, value: as they came.
    """
    said = dict(headers)
    identity, created = _identity(said.get("ce_source")), _moment(said.get("ce_time"))
    event_type = _type(said.get("ce_type"))
    event_id, received = said.get("ce_id") or b"", said.get("onceflow_received_at") or b""
    if (
        identity is None
        or created is None
        or not _PLAIN.fullmatch(event_id)
        or not _PLAIN.fullmatch(received)
        or event_type is None
        or said.get("onceflow_endpoint") == _RECONCILER
    ):
        return None
    digest = hashlib.sha256(value).hexdigest().encode()
    return b"%b\t%d\t%d\t%b\t%b\t%b\t%b\t%b\t\\\\x%b\t\\N\t\\N\n" % (
        place, offset, time_ms, identity, event_id, event_type, created, received, digest,
    )  # fmt: skip


@lru_cache(maxsize=_REMEMBERED_MAX)
def _identity(source: bytes | None) -> bytes | None:
    """Return account and mode as they stand in a line."""
    found = _SOURCE.fullmatch(source or b"")
    return None if found is None else b"%b\t%b" % found.groups()


@lru_cache(maxsize=_REMEMBERED_MAX)
def _type(raw: bytes | None) -> bytes | None:
    """Return the event's type, which Stripe has plain."""
    event_type = (raw or b"").removeprefix(TYPE_PREFIX.encode())
    return event_type if raw != event_type and _PLAIN.fullmatch(event_type) else None


@lru_cache(maxsize=_REMEMBERED_MAX)
def _moment(raw: bytes | None) -> bytes | None:
    """Return a time that is one: many events share their second."""
    try:
        parse_time((raw or b"").decode("ascii"))
    except ValueError:
        return None
    return raw


def outcome_line(
    lane: bytes, offset: int, *, key: bytes, value: bytes, headers: Sequence[tuple[str, bytes | None]], source: bytes
) -> tuple[int, bytes] | None:
    """Return sequence and line of table ``seen_outcome`` for a plain outcome of ours; None where a closer look is due.

    Args:
        lane: as it stands in a line.
        offset, key, value, headers: of the record.
        source: what ours say in ``ce_source``.
    """
    said = dict(headers)
    if len(said) != len(headers) or not said.keys() <= _OUTCOME_HEADERS:
        return None
    got = said.get
    seq, revision, written = got("onceflow_sequence") or b"", got("onceflow_revision") or b"", got("ce_time") or b""
    ids = (got("ce_id") or b"", got("onceflow_outcome_id") or b"", got("ce_type") or b"", key)
    cause = got("onceflow_cause") or b""
    if (
        got("ce_source") != source
        or got("onceflow_lane") != lane
        or got("ce_subject") != key
        or not _NUMBER.fullmatch(seq)
        or not _REVISION.fullmatch(revision)
        or not _WRITTEN.fullmatch(written)
        or not _CAUSE.fullmatch(cause)
        or not all(map(_PLAIN.fullmatch, ids))
    ):
        return None
    digest = hashlib.sha256(value).hexdigest().encode()
    ce_id, outcome_id, kind, _ = ids
    line = b"%b\t%d\t%b\t%b\t%b\t%b\t%b\t%b\t%b\t%b\t\\N\t\\N\tf\t\\\\x%b\t\\N\n" % (
        lane, offset, seq, ce_id, outcome_id, revision, kind, key, cause, written, digest,
    )  # fmt: skip
    return int(seq), line
