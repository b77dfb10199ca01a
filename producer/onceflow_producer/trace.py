"""The W3C ``traceparent`` that each record carries.

Rule: a valid incoming one is passed on unchanged, anything else is replaced by a new one and never copied, since a
header value of a stranger must not reach the topic.

Source: www.w3.org/TR/trace-context, section 3.2.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence

_VALID = re.compile(rb"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


def traceparent_for(incoming: Sequence[bytes]) -> str:
    """Return the one valid incoming value, else a new one.

    A new one is not marked as sampled: this process records no span, and a mark would force every reader to.
    """
    if len(incoming) == 1 and _VALID.fullmatch(incoming[0]):
        return incoming[0].decode("ascii")
    digits = secrets.token_hex(24)
    return f"00-{digits[:32]}-{digits[32:]}-00"
