"""What a handler asked for, collected while it runs and written by the tail of the batch.

Rule: everything is checked and frozen at the moment of the call, so the handler that asked for something impossible
gets the error, and the tail only writes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

from onceflow_processor.guards import Placed
from onceflow_processor.operations.request import Asked
from onceflow_schemas.failure import Refused
from onceflow_schemas.identity import lane_of, outcome_id
from onceflow_schemas.outcome_record import KEY_BYTES_MAX, OUTCOME_TYPE_PATTERN, canonical_value
from onceflow_schemas.quoting import quoted

FactKey = tuple[str, str]

FACT_BYTES_MAX = 1024
RESERVED_PREFIX = "onceflow."
OUTCOMES_PER_EVENT_MAX = 1_000
FACTS_PER_EVENT_MAX = 1_000
OPERATIONS_PER_EVENT_MAX = 1_000

_UNSAFE_TEXT = re.compile("[\x00\ud800-\udfff]")
_NO_SUBJECT = re.compile("[\x01-\x1f\x7f-\x9f\ufdd0-\ufdef\ufffe\uffff]")
"""What CloudEvents forbids in ``ce_subject``, which is the key: control characters and noncharacters."""


class Outcome(NamedTuple):
    """An outcome before it has a sequence."""

    lane: int
    outcome_id: UUID
    type: str
    key: str
    value: bytes
    cause: str
    revision: int = 1


@dataclass(slots=True)
class Effects:
    """What one event's handlers asked for; ``counts`` are the outcomes by (handler, type, key).

    ``again`` are claims of facts that somebody had claimed before, with their causes.  ``placed`` is what the event is to its object, ``is_repeat`` that another event has told the same transition before; both
    only where a handler asks for an order.  ``ignored`` are reasons by handler.
    ``touched`` tells that a handler had the connection or ran a statement: without that a failure needs no rollback.
    """

    outcomes: list[Outcome] = field(default_factory=list)
    counts: dict[tuple[str, str, str], int] = field(default_factory=dict)
    facts: list[FactKey] = field(default_factory=list)
    again: list[tuple[FactKey, str]] = field(default_factory=list)
    operations: list[Asked] = field(default_factory=list)
    ignored: dict[str, str] = field(default_factory=dict)
    touched: bool = False
    placed: Placed | None = None
    is_repeat: bool = False


def make_outcome(
    effects: Effects,
    *,
    cause: str,
    handler: str,
    type: str,
    key: str,
    data: Mapping[str, Any],
    lane_count: int,
    value_bytes_max: int,
) -> Outcome:
    """Check an outcome and add it to ``effects``.

    Raises:
        Refused: ``outcome_refused`` with what to change.
    """
    if not is_plain_text(type) or not OUTCOME_TYPE_PATTERN.fullmatch(type):
        raise Refused("outcome_refused", f"the outcome type {quoted(type)} is not letters, digits, '_', '.', '-'")
    if not is_plain_text(key) or _NO_SUBJECT.search(key) or len(key.encode()) > KEY_BYTES_MAX:
        rule = f"1 to {KEY_BYTES_MAX} bytes without control characters"
        raise Refused("outcome_refused", f"the key of outcome {type!r} is not plain text of {rule}")
    value = canonical_value(data)
    if len(value) > value_bytes_max:
        raise Refused("outcome_refused", f"outcome {type!r} has {len(value)} bytes, the topic takes {value_bytes_max}")
    if len(effects.outcomes) >= OUTCOMES_PER_EVENT_MAX:
        raise Refused("outcome_refused", f"one event may have at most {OUTCOMES_PER_EVENT_MAX} outcomes")
    # n counts the outcomes of that type and key by that handler, so one more of another kind moves no id.
    kind = (handler, type, key)
    n = effects.counts[kind] = effects.counts.get(kind, 0) + 1
    made = outcome_id(cause=cause, handler=handler, type=type, key=key, n=n)
    outcome = Outcome(lane_of(key, lane_count), made, type, key, value, cause)
    effects.outcomes.append(outcome)
    return outcome


def fact_key(namespace: str, parts: tuple[str, ...]) -> FactKey:
    """Return the primary key of a fact or a running total; parts are joined by ``/`` with ``%`` and ``/`` inside them escaped.

    Raises:
        Refused: ``effect_refused`` when namespace or a part is empty, no text, or holds NUL or lone surrogates.
    """
    for text in (namespace, *parts):
        if not is_plain_text(text):
            raise Refused("effect_refused", f"a namespace and the parts of a key are plain texts, not {quoted(text)}")
    if namespace.startswith(RESERVED_PREFIX):
        raise Refused("effect_refused", f"namespaces that begin with {RESERVED_PREFIX!r} are onceflow's own")
    if not parts:
        raise Refused("effect_refused", f"{namespace!r} has no key")
    key = "/".join(part.replace("%", "%25").replace("/", "%2F") for part in parts)
    if len(namespace.encode()) + len(key.encode()) > FACT_BYTES_MAX:
        raise Refused("effect_refused", f"a key of {namespace!r} is longer than {FACT_BYTES_MAX} bytes")
    return namespace, key


def is_plain_text(value: object) -> bool:
    """Tell whether a value is a text that PostgreSQL can hold and that is not empty."""
    return isinstance(value, str) and bool(value) and _UNSAFE_TEXT.search(value) is None
