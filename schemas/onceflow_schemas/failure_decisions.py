"""What a person may decide about parked and quarantined events: one row of facts in, one verdict out.  Pure.

Rule: the facts are read after the rows are locked, so a verdict that acts is true when it is written.  Whatever was
decided or is being done already gets a verdict that changes nothing: retrying or skipping twice is the same as once.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Literal

Action = Literal["retry", "skip"]

JUDGED_BY_SETTINGS = frozenset({"unknown_account", "other_mode", "too_old"})
"""Codes of events that were vouched for and that the settings refuse.  A redrive asks no setting any more, so they are asked
here; an event beyond the horizon may have had its effect before."""


class Verdict(Enum):
    """What becomes of one event; the value is its stable name in the output of commands."""

    REDRIVE = "redrive"
    ADMIT_AGAIN = "admit_again"
    TRY_NOW = "try_now"
    SKIP = "skip"
    SKIP_AND_GO_ON = "skip_and_go_on"
    IN_HAND = "in_hand"
    DUE_ALREADY = "due_already"
    ASKED_ALREADY = "asked_already"
    RETRIED_ALREADY = "retried_already"
    SKIPPED_ALREADY = "skipped_already"
    BEHIND_ITS_HEAD = "behind_its_head"
    HEAD_QUARANTINED = "head_quarantined"
    OBJECT_IS_READ = "object_is_read"
    REFUSED_BY_SETTINGS = "refused_by_settings"
    SETTLED_OTHERWISE = "settled_otherwise"
    OTHER_RECORD = "other_record"
    MOVED_ON = "moved_on"

    @property
    def acts(self) -> bool:
        """Whether anything is written for it."""
        return self in _ACTING

    @property
    def becomes(self) -> str:
        """What it means for the event, in plain words."""
        return _BECOMES[self]


_ACTING = frozenset(
    {Verdict.REDRIVE, Verdict.ADMIT_AGAIN, Verdict.TRY_NOW, Verdict.SKIP, Verdict.SKIP_AND_GO_ON},
)

_BECOMES = {
    Verdict.REDRIVE: "parked at its place in its key and tried at once; what waits behind it follows",
    Verdict.ADMIT_AGAIN: "a processor judges the record again, by the settings that it has now",
    Verdict.TRY_NOW: "tried at once instead of at its time; what waits behind it follows",
    Verdict.SKIP: "stays in quarantine as skipped; nothing waits for it",
    Verdict.SKIP_AND_GO_ON: "stays in quarantine as skipped, and its key goes on without it",
    Verdict.IN_HAND: "nothing: it is being tried right now",
    Verdict.DUE_ALREADY: "nothing: it is due already",
    Verdict.ASKED_ALREADY: "nothing: a processor was asked already to judge it again",
    Verdict.RETRIED_ALREADY: "nothing: it was retried already and is no longer in quarantine",
    Verdict.SKIPPED_ALREADY: "nothing: it was skipped; --decided retries it after all",
    Verdict.BEHIND_ITS_HEAD: "nothing by itself: it waits behind the first event of its key, and follows it",
    Verdict.HEAD_QUARANTINED: "nothing: the first event of its key is in quarantine; decide about that one",
    Verdict.OBJECT_IS_READ: "nothing: its key waits for an object that is read from Stripe",
    Verdict.REFUSED_BY_SETTINGS: "nothing: the settings refuse it still, by its account, its mode or its age",
    Verdict.SETTLED_OTHERWISE: "nothing: another record of the same event has reached its end",
    Verdict.OTHER_RECORD: "nothing: another record of the same event is the one that counts",
    Verdict.MOVED_ON: "nothing: it is not parked any more",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantinedFacts:
    """What decides about a row of quarantine.

    Attributes:
        code: why it is in quarantine.
        state: of the event's marker; None where there is none, as for a record that nobody vouches for.
        is_its_record: the marker names the record of this row.
        decision: what was decided about the row before; None for nothing.
        asked: a processor is asked to judge the record again, and has not yet.
        blocks: the key of the event waits for this row.
        settings_refuse: the deployment does not serve its account or mode, or it is beyond the horizon.
    """

    code: str
    state: str | None
    is_its_record: bool
    decision: str | None
    asked: bool
    blocks: bool
    settings_refuse: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ParkedFacts:
    """What decides about a parked event.

    Attributes:
        state: of the event's marker; None where it has gone.
        reason: what its key waits for: ``retry``, ``quarantined`` or ``reading``.
        is_head: it is the event that its key waits for.
        in_hand: a processor holds the key's lease.
        is_due: its key is due.
    """

    state: str | None
    reason: str
    is_head: bool
    in_hand: bool
    is_due: bool


def decide_quarantined(action: Action, facts: QuarantinedFacts, *, skipped_too: bool = False) -> Verdict:
    """Return what becomes of a row of quarantine.

    Args:
        action: what is wanted.
        facts: about the row.
        skipped_too: a retry is wanted of what was skipped as well.
    """
    if facts.decision == "skipped" and (action == "skip" or not skipped_too):
        return Verdict.SKIPPED_ALREADY
    # What was retried and failed again has its marker back in `quarantined`, whatever the row remembers.
    if facts.decision == "retried" and facts.state != "quarantined":
        return Verdict.RETRIED_ALREADY
    if action == "skip":
        return Verdict.SKIP_AND_GO_ON if facts.blocks else Verdict.SKIP
    if facts.state not in (None, "quarantined"):
        return Verdict.SETTLED_OTHERWISE
    if facts.state == "quarantined" and not facts.is_its_record:
        return Verdict.OTHER_RECORD
    if facts.state is None:
        return Verdict.ASKED_ALREADY if facts.asked else Verdict.ADMIT_AGAIN
    if facts.settings_refuse and facts.code in JUDGED_BY_SETTINGS:
        return Verdict.REFUSED_BY_SETTINGS
    return Verdict.REDRIVE


def decide_parked(action: Action, facts: ParkedFacts) -> Verdict:
    """Return what becomes of a parked event.

    A skip is possible while a redrive has the event in hand: both claim its marker, and one of them finds it moved.
    """
    if facts.state != "parked":
        return Verdict.MOVED_ON
    if action == "skip":
        return Verdict.SKIP_AND_GO_ON if facts.is_head else Verdict.SKIP
    if facts.reason == "quarantined":
        return Verdict.HEAD_QUARANTINED
    if facts.reason == "reading":
        return Verdict.OBJECT_IS_READ
    if not facts.is_head:
        return Verdict.BEHIND_ITS_HEAD
    if facts.in_hand:
        return Verdict.IN_HAND
    return Verdict.DUE_ALREADY if facts.is_due else Verdict.TRY_NOW
