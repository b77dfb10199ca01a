"""Events as others' accidents had them, short to write down."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from onceflow_processor.handlers import Handlers
from onceflow_processor.records import Record
from tests.processor.conftest import Bench, event_body, record

MakeBench = Callable[[Handlers], Bench]
T0 = 1_767_225_600


def told(
    event_id: str,
    event_type: str,
    subject: dict[str, Any],
    *,
    at: int = 0,
    before: dict[str, Any] | None = None,
    **extra: Any,
) -> bytes:
    """An event ``at`` seconds after the start; ``before`` are its previous attributes."""
    data: dict[str, Any] = {"object": subject}
    if before is not None:
        data["previous_attributes"] = before
    return event_body(event_id, event_type, subject, created=T0 + at, data=data, **extra)


def records(bodies: Sequence[bytes], *, first: int = 0, partition: int = 0) -> list[Record]:
    return [record(body, first + place, partition=partition) for place, body in enumerate(bodies)]
