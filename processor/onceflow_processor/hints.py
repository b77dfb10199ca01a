"""Which operations an event speaks of: by the key of the request that caused it, or by its object's metadata.

Rule: a hint proves nothing; it is a reason to look, and at what.  Ids are of version 5; of the random keys that Stripe's
libraries make up for everybody else's requests one in 64 looks so as well, so a key alone counts only for what is there.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from onceflow_schemas.envelope import Envelope
from onceflow_schemas.identity import Identity
from onceflow_schemas.operations.operation import METADATA_KEY

STATUS_CHARACTERS_MAX = 100

_ID = "[0-9a-f]{8}-[0-9a-f]{4}-5[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
_KEY_OF_METADATA = re.compile(f"({_ID})")
_KEY = re.compile(rf"({_ID})(?:\.[a-z]+)?")
_VERSION, _VERSION_AT = "5", 14


class Hint(NamedTuple):
    """What an event says about an object of an operation.

    ``object`` is the object's kind; ``marked``: its metadata names the operation, not only the key of the event's request.
    """

    operation_id: UUID
    event: str
    object: str
    object_id: str
    status: str | None
    created: datetime
    marked: bool


def hints_of(envelope: Envelope, identity: Identity) -> tuple[Hint, ...]:
    """Return what an event says: nothing for most, one hint for each operation that it names.

    Args:
        envelope: of an event without a problem.
        identity: the event's.
    """
    body = envelope.body
    if body is None or envelope.created is None:
        return ()
    subject = body["data"]["object"]
    request, metadata = body.get("request"), subject.get("metadata")
    key = request.get("idempotency_key") if isinstance(request, dict) else None
    marked = metadata.get(METADATA_KEY) if isinstance(metadata, dict) else None
    # Almost every event ends here, so nothing is made before and no pattern is tried on a random key.
    if marked is None and not (isinstance(key, str) and key[_VERSION_AT : _VERSION_AT + 1] == _VERSION):
        return ()
    found = (_match(_KEY, key), _match(_KEY_OF_METADATA, marked))
    ids = {one[1] for one in found if one is not None}
    return tuple(
        Hint(
            UUID(one),
            str(identity),
            _text(subject.get("object")) or "",
            envelope.object_id,
            _text(subject.get("status")),
            envelope.created,
            one == marked,
        )
        for one in sorted(ids)
    )


def _match(pattern: re.Pattern[str], value: object) -> re.Match[str] | None:
    return pattern.fullmatch(value) if isinstance(value, str) else None


def _text(value: object) -> str | None:
    return value[:STATUS_CHARACTERS_MAX] if isinstance(value, str) else None
