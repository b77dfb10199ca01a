"""One outcome as a Kafka record, and the canonical bytes of its data.

Rule: equal data gives equal bytes, so that a rerun can tell "unchanged" from "changed" by comparing bytes.
"""

from __future__ import annotations

import json
import math
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
HEADERS_BYTES_RESERVED = 8192
"""Room kept for key, headers and record overhead below the topic's max.message.bytes."""

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_PLAIN_TYPES = frozenset({str, int, bool, type(None)})


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
    """Return the canonical JSON of an outcome's data: UTF-8, keys sorted by code point, no spaces.

    These are the bytes of ``json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False)``.  Lone
    surrogates become U+FFFD, because no consumer could read them.

    Args:
        data: a mapping of texts to plain JSON: dict, list, tuple, str, int of 64 bits, float, bool, None.  Their
            subclasses are other types, because a library may write them in a form of its own.

    Raises:
        Refused: code ``outcome_refused`` when the data is no JSON object (NaN, other types, keys not text).
    """
    if not isinstance(data, Mapping):
        raise Refused("outcome_refused", "the data of an outcome is a mapping")
    plain = dict(data)
    try:
        has_exponent = _check_plain(plain)
        try:
            written = orjson.dumps(plain, option=orjson.OPT_SORT_KEYS)
        except orjson.JSONEncodeError as error:
            if "surrogates" not in str(error):
                raise
            plain = _replaced(plain)
            written = orjson.dumps(plain, option=orjson.OPT_SORT_KEYS)
        return _write_exponents(plain) if has_exponent else written
    except (TypeError, ValueError, RecursionError) as error:
        raise Refused("outcome_refused", f"the data of an outcome is not plain JSON: {error}") from error


def _write_exponents(plain: dict[str, Any]) -> bytes:
    """Versions of orjson write an exponent as ``1e16`` or as ``1e+16``; the standard library always does the latter."""
    return json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def _check_plain(value: Any) -> bool:
    """Refuse what orjson would write in another form than it is: NaN as null, an enumeration as its value.

    Returns:
        Whether a float is so large or so small that it is written with an exponent.
    """
    kind = type(value)
    has_exponent = False
    if kind is dict:
        for key, item in value.items():
            if type(key) is not str:
                message = f"a key is of type {type(key).__name__}"
                raise TypeError(message)
            has_exponent = _check_plain(item) or has_exponent
    elif kind is list or kind is tuple:
        for item in value:
            has_exponent = _check_plain(item) or has_exponent
    elif kind is float:
        if not math.isfinite(value):
            message = "NaN and infinity are not JSON"
            raise ValueError(message)
        has_exponent = "e" in repr(value)
    elif kind not in _PLAIN_TYPES:
        message = f"a value is of type {kind.__name__}"
        raise TypeError(message)
    return has_exponent


def _replaced(value: Any) -> Any:
    if isinstance(value, str):
        return _LONE_SURROGATE.sub(REPLACEMENT, value)
    if isinstance(value, dict):
        found = {_replaced(key): _replaced(item) for key, item in value.items()}
        if len(found) != len(value):
            message = "two keys differ in lone surrogates only"
            raise ValueError(message)
        return found
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
    ]
    if refill:
        texts.append(("onceflow_refill", "1"))
    if row.withheld is not None:
        texts.append(("onceflow_withheld", row.withheld))
    headers = [(name, text.encode()) for name, text in texts]
    headers.append(("ce_subject", row.key.encode()))
    headers.extend((name, text.encode()) for name, text in row.headers.items())
    return headers


def outcome_value(row: OutcomeRow) -> bytes:
    """Return the record's value: the data, or the placeholder of a withheld outcome."""
    return row.value if row.withheld is None else WITHHELD_VALUE
