"""The event as a handler sees it.

Rule: what a handler reads was read strictly (``onceflow_schemas.strict_json``), and the exact bytes are there too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum
from typing import Any, Literal, NamedTuple, Self

from onceflow_schemas.envelope import read_envelope
from onceflow_schemas.failure import Refused
from onceflow_schemas.identity import Identity, event_cause
from onceflow_schemas.shapes import lines
from onceflow_schemas.strict_json import read_strictly


class Previous(NamedTuple):
    """What had been applied of the event's object before: the newest that any event with an ordered handler told.

    Attributes:
        event_id, type: of the event that told it.
        created: when Stripe made that event.
        status: the object's status in it, None when it has none.
    """

    event_id: str
    type: str
    created: datetime
    status: str | None


class NotRecorded(Enum):
    """In place of what had been applied before, where an event runs again and nobody has written that down."""

    NOT_RECORDED = "not recorded"


@dataclass(frozen=True, slots=True)
class Event:
    """One verified Stripe event.

    Attributes:
        identity: (account, mode, event id).
        type: Stripe's type, such as ``invoice.paid``.
        created: when Stripe made it, whole seconds; no ordering key.
        received_at: when the bridge took it; on topics of others the same as ``created``.
        api_version: the version that rendered the body, None when the body does not say.
        body: the whole event as parsed JSON.
        raw: the exact bytes that Stripe signed; where the bus wraps events in other documents, the event written again.
        text_replaced: True when NUL or lone surrogates in texts were replaced by U+FFFD in ``body``, because
            PostgreSQL's text and UTF-8 cannot hold them; ``raw`` has them still.
        is_stale: True when it tells an older state of its object than was applied; known only where a handler of its
            type asks for an order (``handlers.on(..., order=...)``).
        applied_before: behind ``previous``, which handlers read.
        object_was_read: True when ``object`` was read at Stripe and is not what the event told; ``raw`` is what it told.
        read_at: when it was read, by Stripe's clock or a little earlier; None where that is not known.
        read_body: the whole event as it was made of what was read, of a thin event.
    """

    identity: Identity
    type: str
    created: datetime
    received_at: datetime
    api_version: str | None
    body: dict[str, Any]
    raw: bytes
    text_replaced: bool = False
    is_stale: bool = False
    applied_before: Previous | Literal[NotRecorded.NOT_RECORDED] | None = None
    object_was_read: bool = False
    read_at: datetime | None = None
    read_body: bytes | None = None

    @property
    def id(self) -> str:
        """The event id, ``evt_...``."""
        return self.identity.event_id

    @property
    def account(self) -> str:
        """The account that the event belongs to, ``acct_...``."""
        return self.identity.account

    @property
    def mode(self) -> str:
        """``live`` or ``test``."""
        return self.identity.mode

    @property
    def livemode(self) -> bool:
        """True for real money."""
        return self.identity.mode == "live"

    @property
    def object(self) -> dict[str, Any]:
        """The Stripe object that the event is about (``data.object``)."""
        found: dict[str, Any] = self.body["data"]["object"]
        return found

    @property
    def previous_attributes(self) -> dict[str, Any]:
        """What ``*.updated`` events say about the values before; empty when absent."""
        found = self.body["data"].get("previous_attributes")
        return found if isinstance(found, dict) else {}

    @property
    def previous(self) -> Previous | None:
        """What had been applied of the object before; None when nothing was, or no handler of the type asks for an order.

        Raises:
            Refused: ``previous_not_recorded``: the event runs again (``onceflow replay --rerun``), and an answer could only be
                made up.
        """
        if self.applied_before is NotRecorded.NOT_RECORDED:
            raise Refused("previous_not_recorded", "what had been applied before this event is not recorded")
        return self.applied_before

    @property
    def lines_truncated(self) -> bool:
        """Whether the object has more lines than it shows (``object["lines"]``), so that no sum over them is the whole."""
        return lines(self.object).is_truncated

    @property
    def request_id(self) -> str | None:
        """The API request that caused it, ``req_...``; None when Stripe did it by itself.  Old versions give plain text."""
        found = self.body.get("request")
        if isinstance(found, dict):
            found = found.get("id")
        return found if isinstance(found, str) else None

    def read_again(self) -> Self:
        """Return the event with a body of its own, for another try: the handler of the first may have changed it."""
        body = read_envelope(self.raw).body if self.read_body is None else read_strictly(self.read_body).value
        assert body is not None, "an event that was handled can be read"
        return replace(self, body=body)

    @property
    def cause(self) -> str:
        """The cause text that outcomes and facts of this event carry."""
        return event_cause(self.identity)
