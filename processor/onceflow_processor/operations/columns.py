"""Operations and hints as the columns of their statements (``operation_requests.sql``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from onceflow_processor.arrays import Blobs, Integers, Texts, Uuids
from onceflow_processor.hints import Hint
from onceflow_processor.operations.request import Asked


def request_columns(asked: Sequence[Asked]) -> dict[str, Any]:
    """Return the parameters of the statement ``request``."""
    return {
        "ids": Uuids(one.id for one in asked),
        "accounts": Texts(one.account for one in asked),
        "modes": Texts(one.mode for one in asked),
        "effects": Texts(one.effect for one in asked),
        "subjects": Texts(one.subject for one in asked),
        "occurrences": Integers(one.occurrence for one in asked),
        "order_keys": Texts(one.order_key for one in asked),
        "kinds": Texts(one.kind for one in asked),
        "args": Texts(one.args.decode() for one in asked),
        "args_sha256s": Blobs(one.args_sha256 for one in asked),
        "causes": Texts(one.cause for one in asked),
        "steps": Texts(one.steps.decode() for one in asked),
        "api_versions": Texts(one.api_version for one in asked),
        "happened_ats": [one.happened_at for one in asked],
    }


def hint_columns(hints: Sequence[Hint]) -> Mapping[str, Any]:
    """Return the parameters of the statement ``hints``."""
    return {
        "operation_ids": Uuids(hint.operation_id for hint in hints),
        "events": Texts(hint.event for hint in hints),
        "objects": Texts(hint.object for hint in hints),
        "object_ids": Texts(hint.object_id for hint in hints),
        "statuses": Texts(hint.status for hint in hints),
        "createds": [hint.created for hint in hints],
        "markeds": [hint.marked for hint in hints],
    }
