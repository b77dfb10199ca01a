"""An answer to a request, before anything goes wrong with it on its way.

Rule: an answer is bytes from the moment on at which it exists; what is kept under a key is exactly what was sent.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from onceflow_simulator.errors import StripeError

JSON = "application/json"


@dataclass(frozen=True)
class Answer:
    """Status, headers (small letters) and body."""

    status: int
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)

    def with_headers(self, headers: dict[str, str]) -> Answer:
        """The same answer with more headers."""
        return replace(self, headers={**self.headers, **headers})

    @property
    def object_id(self) -> str | None:
        """The id of the object that the answer tells of, as far as it can be found."""
        try:
            body = orjson.loads(self.body)
        except orjson.JSONDecodeError:
            return None
        if not isinstance(body, dict):
            return None
        found = body.get("id")
        if found is None and isinstance(error := body.get("error"), dict):
            intent = error.get("payment_intent")
            found = intent.get("id") if isinstance(intent, dict) else error.get("charge")
        return found if isinstance(found, str) else None


def ok(body: Any) -> Answer:
    """200 with JSON."""
    return Answer(200, orjson.dumps(body, option=orjson.OPT_INDENT_2), {"content-type": JSON})


def of_error(error: StripeError) -> Answer:
    """The answer that an error is."""
    return Answer(
        error.status, orjson.dumps(error.body(), option=orjson.OPT_INDENT_2), {"content-type": JSON, **error.headers}
    )
