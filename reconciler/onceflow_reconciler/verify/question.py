"""What is to be proved, and what was found.

Rule: nothing here looks at anything.  Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from onceflow_processor.admission import Rules


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is to be proved, and with what.

    Args:
        kafka: librdkafka properties.
        group: a name at the broker; it is not joined.
        rules: what the deployment takes.
        event_topics: all of them.
        outcome_topic: the outcomes'.
        since, until: of the window by Stripe's clock; None for all.
        account: only this; None for all.
        grace_seconds: events of Stripe younger than this may be on their way.
        former: an earlier proof.
        by_arrival: the window is of what came and was done since, whenever Stripe created it.
    """

    kafka: Mapping[str, object] = field(repr=False)
    group: str
    rules: Rules = field(repr=False)
    event_topics: tuple[str, ...]
    outcome_topic: str
    since: datetime | None
    until: datetime | None
    account: str | None
    grace_seconds: int
    former: Mapping[str, Any] | None = None
    by_arrival: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether everything is asked for: only then is a whole block of records explained at once."""
        return self.since is None and self.until is None and self.account is None


@dataclass(frozen=True, slots=True)
class Answer:
    """What was found.

    Attributes:
        events: distinct ones of the window.
        counts: by ledger and state.
        unexplained_count: of all differences.
        unexplained: kind, subject and detail of the first of them.
        proof: what a proof file holds.
        accepted: differences that a person took as they are: the same three, the finding's number, who, and why.
    """

    events: int
    counts: Mapping[str, Any]
    unexplained_count: int
    unexplained: tuple[tuple[str, str, str], ...]
    proof: Mapping[str, Any]
    accepted: tuple[tuple[str, str, str, int, str, str], ...] = ()
