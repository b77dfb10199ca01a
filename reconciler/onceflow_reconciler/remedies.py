"""What may be done about a finding without a person's own judgement, by its kind.

Rule: a remedy walks the road that live work takes, and doing it twice does nothing more; what moves money, or would hide a loss, is
no remedy but a decision.  Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal

Action = Literal["republish", "look", "retry"]

REMEDIES: Final[Mapping[str, Action]] = MappingProxyType(
    {
        "missed_event": "republish",
        "operation_behind": "look",
        "operation_unknown_too_long": "look",
        "lease_expired": "look",
        "parked_too_long": "retry",
    }
)
"""Kinds that are not here need a person: the first command of their page says where to begin."""

MEANINGS: Final[Mapping[Action, str]] = MappingProxyType(
    {
        "republish": "the event is read at Stripe and brought to the event topic",
        "look": "its workers look at the operation's object now",
        "retry": "the first event of the key is tried now",
    }
)
