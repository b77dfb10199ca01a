"""The three size limits on the way of an event, and which of them is the smallest.

Rule: a body at the limit, with its key and headers, always fits the topic.  The client's own limit is set explicitly:
left at its default it refuses, or holds until its timeout, what HTTP took and the topic would take.
"""

from __future__ import annotations

from dataclasses import dataclass

TOPIC_BYTES_DEFAULT = 1_048_588
"""Kafka's default of ``max.message.bytes``."""
RECORD_OVERHEAD_BYTES = 8_192
"""More than key, headers and batch framing of one event can take (their parts are bounded by the schemas)."""
BODY_BYTES_MAX_DEFAULT = TOPIC_BYTES_DEFAULT - RECORD_OVERHEAD_BYTES


@dataclass(frozen=True, slots=True)
class SizeLimits:
    """All in bytes: the HTTP body, the record at our client, the record batch at the topic (None: not known)."""

    body: int
    producer: int
    topic: int | None

    @property
    def smallest(self) -> str:
        """Name the limit that decides what goes through: ``body``, ``producer`` or ``topic``."""
        sizes = {"body": self.body + RECORD_OVERHEAD_BYTES, "producer": self.producer}
        if self.topic is not None:
            sizes["topic"] = self.topic
        return min(sizes, key=lambda name: sizes[name])

    @property
    def body_fits(self) -> bool:
        """Whether every body that HTTP takes fits the topic and the producer."""
        return self.smallest == "body"


def producer_bytes(body_bytes_max: int, topic_bytes: int | None) -> int:
    """Return the limit for our client: what a body needs, but never more than the topic takes.

    A client limit above the topic's would build batches that the broker refuses as a whole, small neighbours included.
    """
    needed = body_bytes_max + RECORD_OVERHEAD_BYTES
    return needed if topic_bytes is None else min(needed, topic_bytes)
