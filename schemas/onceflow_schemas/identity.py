"""Who is who: identities of events, causes, and the deterministic ids made from them.

Rule: an id is a function of what it names.  A rolled-back, repeated or restored piece of work gets the
same ids again, so its effects can be recognised; no id here is ever random.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from typing import Literal, NamedTuple

import orjson

from onceflow_schemas.murmur2 import murmur2

Mode = Literal["live", "test"]

NAMESPACE = uuid.UUID("6f1a2f0e-5a43-5d0c-9a3e-0d6f6e636566")
"""The one fixed namespace of all our uuid5 ids; a change would give every outcome a new id."""

EVENT_ID_PATTERN = re.compile(r"evt_[A-Za-z0-9_]{1,250}")
ACCOUNT_PATTERN = re.compile(r"acct_[A-Za-z0-9_]{1,250}")
FIRST_REVISION = 1


class Identity(NamedTuple):
    """What makes an event that event: (account, mode, event id), everywhere."""

    account: str
    mode: str
    event_id: str

    def __str__(self) -> str:
        return f"{self.account}/{self.mode}/{self.event_id}"


def body_event_id(body: bytes) -> str:
    """Return the id of a validly signed body that carries no usable one: ``sha256:<hex>``."""
    return "sha256:" + hashlib.sha256(body).hexdigest()


def event_cause(identity: Identity) -> str:
    """Return the cause text of work done for an event."""
    return f"event:{identity}"


def _uuid5(*parts: str | int) -> uuid.UUID:
    digest = hashlib.sha1(NAMESPACE.bytes + orjson.dumps(parts), usedforsecurity=False).digest()
    return uuid.UUID(bytes=digest[:16], version=5)


# The parameter is called as the field is called in contracts.md and in CloudEvents.
def outcome_id(*, cause: str, handler: str, type: str, key: str, n: int) -> uuid.UUID:
    """Return the id of the ``n``-th outcome (from 1) of that type and key by that handler for that cause."""
    return _uuid5("outcome", cause, handler, type, key, n)


def operation_id(*, account: str, mode: str, effect: str, subject: str, occurrence: int) -> uuid.UUID:
    """Return the id of the ``occurrence``-th operation (from 1) of that effect for that subject: never random."""
    return _uuid5("operation", account, mode, effect, subject, occurrence)


def operation_cause(operation: uuid.UUID, state: str) -> str:
    """Return the cause text of work done because an operation settled."""
    return f"operation:{operation}/{state}"


def ce_id(outcome: uuid.UUID, revision: int) -> uuid.UUID:
    """Return the record id of a revision of an outcome; the first revision carries the outcome's own id."""
    if revision == FIRST_REVISION:
        return outcome
    return _uuid5("revision", str(outcome), revision)


def lane_of(key: str, lane_count: int) -> int:
    """Return the lane of an outcome key: the partition that Java's default partitioner would choose."""
    return (murmur2(key.encode()) & 0x7FFFFFFF) % lane_count
