"""Records as they are kept beside the topic: columns of quarantined and parked ones, and the way back.

Rule: key, value and headers are kept byte for byte; whatever PostgreSQL's text cannot hold is replaced in messages only.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from onceflow_processor.admission import Fault, Item
from onceflow_processor.arrays import Bigints, Blobs, Integers, Texts
from onceflow_processor.handler_failure import failure_group
from onceflow_processor.records import Headers
from onceflow_schemas.identity import Identity

DETAIL_CHARACTERS_MAX = 1_000
_RECORD_TIME_MS_MAX = 253_402_300_799_000
_UNSAFE_TEXT = re.compile("[\x00\ud800-\udfff]")


def kept_columns(items: Sequence[Item], *, topic_ids: Mapping[str, str]) -> dict[str, Any]:
    """Return the records of items, and what their events are, as columns.

    Args:
        items: in the order of the rows.
        topic_ids: topic id by topic.
    """
    records = [item.record for item in items]
    return {
        **identity_columns(None if item.event is None else item.event.identity for item in items),
        "topic_ids": Texts(topic_ids[record.partition.topic] for record in records),
        "partitions": Integers(record.partition.number for record in records),
        "offsets": Bigints(record.offset for record in records),
        "topics": Texts(record.partition.topic for record in records),
        "keys": Blobs(record.key for record in records),
        "values": Blobs(record.value for record in records),
        "bodies": Blobs(None if item.body == (item.record.value or b"") else item.body for item in items),
        "headers": Texts(headers_json(record.headers) for record in records),
        "record_times": [_record_time(record.timestamp_ms) for record in records],
        "types": Texts(None if item.event is None else item.event.type for item in items),
    }


def fault_columns(kept: Sequence[tuple[Item, Fault | None]]) -> dict[str, Any]:
    """Return what failed, as columns; null where nothing did."""
    faults = [fault for _, fault in kept]
    return {
        "codes": Texts(None if fault is None else fault.code for fault in faults),
        "details": Texts(
            None if fault is None else safe_text(fault.detail)[:DETAIL_CHARACTERS_MAX] for fault in faults
        ),
        "handlers": Texts(None if fault is None else fault.handler for fault in faults),
        "tracebacks": Texts(
            None if fault is None or fault.traceback is None else safe_text(fault.traceback) for fault in faults
        ),
        "failure_groups": Texts(
            None if fault is None or item.event is None else safe_text(failure_group(item.event.type, fault))
            for item, fault in kept
        ),
    }


def identity_columns(identities: Iterable[Identity | None]) -> dict[str, Any]:
    """Return identities as columns; null where a record has none."""
    known = list(identities)
    return {
        "accounts": Texts(None if identity is None else identity.account for identity in known),
        "modes": Texts(None if identity is None else identity.mode for identity in known),
        "event_ids": Texts(None if identity is None else identity.event_id for identity in known),
    }


def headers_json(headers: Headers) -> str:
    """Return headers in the form in which they are kept."""
    return json.dumps([[name, None if value is None else base64.b64encode(value).decode()] for name, value in headers])


def headers_from(text: str) -> Headers:
    """Return kept headers as they were."""
    return [(name, None if value is None else base64.b64decode(value)) for name, value in json.loads(text)]


def timestamp_ms_of(record_time: datetime | None) -> int:
    """Return a record's time in Kafka's form; -1 where it was out of range."""
    return -1 if record_time is None else round(record_time.timestamp() * 1000)


def safe_text(text: str) -> str:
    """Replace what PostgreSQL's text cannot hold: an error message may quote the very bytes that were at fault."""
    return _UNSAFE_TEXT.sub("\N{REPLACEMENT CHARACTER}", text)


def _record_time(timestamp_ms: int) -> datetime | None:
    if not 0 <= timestamp_ms <= _RECORD_TIME_MS_MAX:
        return None
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC)
