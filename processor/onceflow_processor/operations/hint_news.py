"""Whether what a webhook said about an operation's object is news.

Rule: values in, values out.  A webhook settles nothing by itself; what it says about an object that we know in that state
already is no reason to look, so that an operation that went its normal way costs no second call.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import orjson

from onceflow_schemas.operations.operation import State


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """What a webhook said, and how its operation stands; ``state`` is None for an operation that is not here."""

    operation_id: UUID
    event: str
    kind: str
    object_id: str
    status: str | None
    state: State | None
    external_id: str | None
    makes: str | None
    result: Mapping[str, Any]


def word_from(row: Mapping[str, Any]) -> Word:
    """Return a row of the query ``hints_open``."""
    step = {} if row["state"] is None else orjson.loads(row["steps"])[row["step"]]
    return Word(
        operation_id=row["operation_id"],
        event=row["event"],
        kind=row["object"],
        object_id=row["object_id"],
        status=row["status"],
        state=None if row["state"] is None else State(row["state"]),
        external_id=row["external_id"],
        makes=(step.get("expect") or {}).get("object"),
        result=orjson.loads(row["result"]) if row["result"] else {},
    )


def is_news(word: Word) -> bool:
    """Say whether an object has to be looked at because of a webhook.

    Only an object of the kind that the operation makes counts: its metadata is copied to others, such as an intent's charge.
    """
    if word.makes is None or word.kind != word.makes:
        return False
    if word.external_id is None or word.object_id != word.external_id:
        return True
    return word.status is None or word.status != word.result.get("status")
