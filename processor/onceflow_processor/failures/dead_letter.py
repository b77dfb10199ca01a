"""A quarantined record as a dead letter: key, value and headers as they were, and Kafka Connect's headers behind them.  Pure.

Rule: nothing of the record is changed or left out, a header of the same name included; what is added is text that every tool
shows.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

PREFIX = "__connect.errors."
ADMISSION = "onceflow.admission"
"""Stands for the handler where the record got to none."""
TASK = "0"


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """What is published."""

    key: bytes | None = field(repr=False)
    value: bytes | None = field(repr=False)
    headers: tuple[tuple[str, bytes | None], ...] = field(repr=False)


def dead_letter(row: Mapping[str, Any], *, deployment: str) -> DeadLetter:
    """Return the dead letter of a row of quarantine.

    Args:
        row: with its headers as JSON text.
        deployment: names the connector.
    """
    original = tuple(
        (name, None if value is None else base64.b64decode(value)) for name, value in json.loads(row["headers"])
    )
    handled = row["handler"] is not None
    # With a traceback the detail begins with the class of what was raised.
    error = row["code"] if row["traceback"] is None else row["detail"].partition(":")[0]
    said = {
        "topic": row["topic"],
        "partition": str(row["partition"]),
        "offset": str(row["offset"]),
        "connector.name": deployment,
        "task.id": TASK,
        "stage": "TASK_PUT" if handled else "VALUE_CONVERTER",
        "class.name": row["handler"] if handled else ADMISSION,
        "exception.class.name": error,
        "exception.message": row["detail"],
        "exception.stacktrace": row["traceback"] or "",
    }
    added = tuple((f"{PREFIX}{name}", text.encode()) for name, text in said.items())
    return DeadLetter(row["key"], row["value"], (*original, *added))
