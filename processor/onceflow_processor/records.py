"""A record as it came from Kafka, without the client library's type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

Headers = list[tuple[str, bytes | None]]


class Partition(NamedTuple):
    """A partition of an event topic by name."""

    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.number}"


@dataclass(slots=True)
class Record:
    """One record; ``generation`` tells apart the times that its partition was given to this process."""

    partition: Partition
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    generation: int

    def size_bytes(self) -> int:
        """Return the bytes of key and value, for the limit of a batch."""
        return len(self.key or b"") + len(self.value or b"")
