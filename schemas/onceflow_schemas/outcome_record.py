"""One outcome as a Kafka record, and the canonical bytes of its data.

Rule: equal data gives equal bytes, so that a rerun can tell "unchanged" from "changed" by comparing bytes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import orjson

from onceflow_schemas.failure import Refused
from onceflow_schemas.strict_json import REPLACEMENT
from onceflow_schemas.times import format_time

OUTCOME_TYPE_PATTERN = re.compile(r"[A-Za-z0-9_.\-]{1,200}")
KEY_BYTES_MAX = 1024
WITHHELD_VALUE = b"{}"
HEADERS_BYTES_RESERVED = 4096
"""Room kept for key, headers and record overhead below the topic's max.message.bytes."""

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class OutcomeRow:
    """A row of ``onceflow.outcome`` as it goes to the topic."""

    lane: int
    seq: int
    outcome_id: UUID
    revision: int
    ce_id: UUID
    type: str
    key: str
    value: bytes
    headers: Mapping[str, str]
    cause: str
    withheld: str | None
    created_at: datetime


def canonical_value(data: Mapping[str, Any]) -> bytes:
    """Return the canonical JSON of an outcome's data: UTF-8, keys sorted, no spaces.

    Lone surrogates become U+FFFD, because no consumer could read them.

    Raises:
        Refused: code ``outcome_refused`` when the data is no JSON object (NaN, other types, keys not text).
    """
    if not isinstance(data, Mapping):
        raise Refused("outcome_refused", "the data of an outcome is a mapping")
    plain = dict(data)
    try:
        return _dump(plain)
    except UnicodeEncodeError:
        return _dump(_replaced(plain))
    except (TypeError, ValueError) as error:
        raise Refused("outcome_refused", f"the data of an outcome is not plain JSON: {error}") from error


def _dump(data: Any) -> bytes:
    _refuse_infinite(data)
    try:
        return orjson.dumps(
            data,
            option=orjson.OPT_SORT_KEYS
            | orjson.OPT_PASSTHROUGH_DATACLASS
            | orjson.OPT_PASSTHROUGH_DATETIME
            | orjson.OPT_PASSTHROUGH_SUBCLASS,
        )
    except orjson.JSONEncodeError as error:
        if "surrogates" in str(error):
            raise UnicodeEncodeError("utf-8", "", 0, 0, str(error)) from error
        raise


def _refuse_infinite(value: Any) -> None:
    """orjson writes NaN and infinity as null, which would turn a wrong number into a missing one silently."""
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):  # noqa: PLR0124
        message = "NaN and infinity are not JSON"
        raise ValueError(message)
    if isinstance(value, Mapping):
        for item in value.values():
            _refuse_infinite(item)
    elif isinstance(value, list | tuple):
        for item in value:
            _refuse_infinite(item)


def _replaced(value: Any) -> Any:
    if isinstance(value, str):
        return _LONE_SURROGATE.sub(REPLACEMENT, value)
    if isinstance(value, Mapping):
        return {_replaced(key): _replaced(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_replaced(item) for item in value]
    return value


def outcome_headers(row: OutcomeRow, *, deployment: str, refill: bool = False) -> list[tuple[str, bytes]]:
    """Return the headers of an outcome's record.

    Args:
        row: the outcome.
        deployment: id of the deployment, for ``ce_source``.
        refill: True when the record fills a hole again under its old id and sequence.
    """
    texts = [
        ("ce_specversion", "1.0"),
        ("ce_id", str(row.ce_id)),
        ("ce_source", f"urn:onceflow:{deployment}"),
        ("ce_type", row.type),
        ("ce_time", format_time(row.created_at)),
        ("content-type", "application/json"),
        ("onceflow_lane", str(row.lane)),
        ("onceflow_sequence", str(row.seq)),
        ("onceflow_cause", row.cause),
        ("onceflow_outcome_id", str(row.outcome_id)),
        ("onceflow_revision", str(row.revision)),
        *row.headers.items(),
    ]
    if refill:
        texts.append(("onceflow_refill", "1"))
    if row.withheld is not None:
        texts.append(("onceflow_withheld", row.withheld))
    headers = [(name, text.encode()) for name, text in texts]
    headers.append(("ce_subject", row.key.encode()))
    return headers


def outcome_value(row: OutcomeRow) -> bytes:
    """Return the record's value: the data, or the placeholder of a withheld outcome."""
    return row.value if row.withheld is None else WITHHELD_VALUE
