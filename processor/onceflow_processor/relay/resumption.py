"""How a lane that stands still may go on: which cursor, which published sequence, and what a person must accept.  Pure.

Rule: nothing is decided without a record in the topic that agrees with its row, or an empty partition.  What consumers
could notice needs the person's acceptance by the very code of the consequence; what would hide a loss is never offered.

    verdict now      the topic's last outcome            offered                              to be accepted
    ---------------  ----------------------------------  -----------------------------------  --------------
    agrees           any                                 the lane is opened                   nothing
    unsettled        any                                 nothing: look again                  -
    behind           any                                 nothing: the relay imports           -
    topic_changed    its row, or an empty partition      the new topic, from there on         topic_changed
    any other        its row, below published            published again from there on        tail_lost
    any other        its row, records of others behind   those are passed over                diverged
    tail_lost        its row, at published or above      published again from there on        tail_lost
    tail_lost        above the head (both were lost)     the relay imports up to there        tail_lost
    diverged         its row, at published or above      the stretch is taken as published    diverged
    cursor_moved     its row, at published or above      the cursor is written again          nothing
    any other        another id than its row, or no row  nothing: a loss could hide in it     -
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from onceflow_processor.relay.cursor import (
    EMPTY,
    Agrees,
    Code,
    Disagrees,
    Extent,
    Mark,
    OutcomeRecord,
    StrangeRecord,
    TailRecord,
    Unsettled,
    Verdict,
)
from onceflow_schemas.topic_ids import shown_topic_id

NO_RECORD: Final = UUID(int=0)
_RESTORE = "Restore the database to its latest point in time; the lane stays closed until then."
_IMPORTS = "Start a relay: it imports the topic's outcomes by itself, and opens the lane then."


@dataclass(frozen=True, slots=True)
class Situation:
    """A lane and what was found when it was looked at.

    Args:
        lane: its number.
        state: as stored.
        head: the last sequence handed out.
        published: the last sequence known to be published.
        topic_id: of the topic that the lane belongs to.
        current_topic_id: of the topic that has the name now.
        extent: the partition's offsets.
        last: the partition's last record that is no refill.
        latest: the last record that is an outcome of this lane; differs from ``last`` where others wrote behind it.
        known: record ids of the rows at ``published`` and at the sequence of ``latest``.
        verdict: the comparison of cursor, topic and database.
    """

    lane: int
    state: str
    head: int
    published: int
    topic_id: str
    current_topic_id: str
    extent: Extent
    last: TailRecord | None
    latest: OutcomeRecord | None
    known: Mapping[int, UUID]
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Resume:
    """How the lane may go on.

    Args:
        published: the published sequence to be written.
        topic_id: the topic id to be written.
        cursor: what the relay's group shall have committed; None leaves it as it is.
        accept: the code that a person must accept by name; None when nobody can notice anything.
        consequence: what follows, as a sentence.
        state: of the lane from then on; ``behind`` where the relay is to import first.
    """

    published: int
    topic_id: str
    cursor: Mark | None
    accept: Code | None
    consequence: str
    state: str = "ok"


@dataclass(frozen=True, slots=True)
class NotResumable:
    """Why the lane cannot go on by a decision, and the next step."""

    reason: str
    next_step: str


@dataclass(frozen=True, slots=True)
class Fine:
    """Nothing stands still."""


Decision = Resume | NotResumable | Fine


def without_look(*, lane: int, state: str, published: int) -> Decision | None:
    """Decide what the lane's state alone decides; None when the topic must be looked at."""
    match state:
        case "ok":
            return Fine()
        case "stopped:unpublishable":
            return NotResumable(
                f"the outcome {published + 1} cannot be published as it is",
                f"onceflow outcomes withhold {lane} {published + 1} --code too_large, or raise the topic's limit",
            )
        case "recovering":
            return NotResumable("outcomes of the topic are being imported", "Keep a relay running until that is done.")
        case _:
            return None


def decide(found: Situation) -> Decision:
    """Say how the lane may go on; see the table of the module."""
    early = without_look(lane=found.lane, state=found.state, published=found.published)
    if early is not None:
        return early
    match found.verdict:
        case Agrees():
            text = "cursor, topic and database agree: the lane is opened, nobody notices anything"
            return Resume(found.published, found.topic_id, None, None, text)
        case Unsettled(detail):
            return NotResumable(detail, "Look again in some seconds: the broker ends what a dead relay left open.")
        case Disagrees("behind", detail):
            if found.state == "stopped:not_importable":
                return NotResumable("what the topic has beyond the database cannot be imported", _RESTORE)
            return NotResumable(detail, _IMPORTS)
        case Disagrees("tail_lost", _) if (
            found.last is not None and found.last == found.latest and found.latest.seq > found.head
        ):
            return _both_lost(found, found.latest)
        case Disagrees(code, detail):
            base = _base(found, code)
            if base is None:
                return NotResumable(
                    f"{detail}; no record of the topic tells how far the database is published", _RESTORE
                )
            return _on_from(found, code, base=base)


def with_rows(decision: Resume, found: Situation, *, kept: int) -> Resume | NotResumable:
    """Refuse to publish again what the database does not have any more.

    Args:
        decision: as decided.
        found: what it was decided on.
        kept: how many rows there are after ``decision.published`` up to ``found.published``.
    """
    missing = max(0, found.published - decision.published) - kept
    if missing <= 0:
        return decision
    reason = f"{missing} of the outcomes {decision.published + 1} to {found.published} are not in the database any more"
    return NotResumable(reason, "Restore them into onceflow.outcome from a backup, then look again.")


def refusal(decision: Decision, *, accept: str | None) -> NotResumable | None:
    """Return why it may not be executed: it is not possible, or its consequence was not accepted by its name."""
    if isinstance(decision, Fine):
        return NotResumable("the lane is ok", "Nothing needs to be decided.")
    if isinstance(decision, NotResumable):
        return decision
    if accept == decision.accept:
        return None
    if decision.accept is None:
        return NotResumable(f"there is no {accept} to accept: {decision.consequence}", "Leave --accept out.")
    return NotResumable(decision.consequence, f"Add --accept {decision.accept} when that is decided.")


def _base(found: Situation, code: Code) -> Mark | None:
    """Return the place up to which topic and database agree; None when no record proves one."""
    latest, extent = found.latest, found.extent
    strange = isinstance(found.last, StrangeRecord)
    end = found.last.offset + 1 if found.last is not None else extent.low
    if latest is not None:
        if found.known.get(latest.seq) != latest.ce_id or latest.seq > found.head:
            return None
        return Mark(end, latest.seq, latest.ce_id, accepted=strange)
    if extent.low == 0:
        return Mark(end, 0, NO_RECORD, accepted=True) if strange else EMPTY
    row = found.known.get(found.published)
    # Retention took the lane's own records, as it may, and only the cursor was touched.
    if row is not None and not strange and code == "cursor_moved":
        return Mark(end, found.published, row)
    return None


def _both_lost(found: Situation, latest: OutcomeRecord) -> Resume:
    """The topic lost its end and the database was put back to before what is left of it."""
    text = (
        f"the topic ends with {latest.seq}: outcomes {found.head + 1} to {latest.seq} are imported by the relay, and what comes"
        f" next gets {latest.seq + 1}; consumers that had read the lost ones see other outcomes under their sequences"
    )
    cursor = Mark(latest.offset + 1, latest.seq, latest.ce_id)
    return Resume(found.published, found.topic_id, cursor, "tail_lost", text, state="behind")


def _on_from(found: Situation, code: Code, *, base: Mark) -> Resume:
    again = f"outcomes {base.seq + 1} to {found.head} are published from here on"
    if base.seq < found.published:
        again += (
            f"; those up to {found.published} again, with the same ids: consumers that dedupe by ce_id see no change"
        )
    if code == "topic_changed":
        text = f"the lane goes over to topic id {shown_topic_id(found.current_topic_id)}, which ends with {base.seq}: {again}"
        return Resume(base.seq, found.current_topic_id, base, "topic_changed", text)
    if base.seq < found.published:
        return Resume(base.seq, found.topic_id, base, "tail_lost", f"the topic ends with {base.seq}: {again}")
    if isinstance(found.last, StrangeRecord):
        text = "records of others stay in the partition; consumers must pass over what has no onceflow_sequence"
        return Resume(base.seq, found.topic_id, base, "diverged", f"{text}; {again}")
    if code == "diverged":
        first = found.published + 1
        text = f"outcomes {first} to {base.seq} count as published although other records lie among them; {again}"
        return Resume(base.seq, found.topic_id, base, "diverged", text)
    if code == "tail_lost":
        return Resume(found.published, found.topic_id, base, "tail_lost", f"the topic ends with {base.seq}: {again}")
    text = f"the cursor is written again behind sequence {base.seq}, where topic and database agree: nobody notices anything"
    return Resume(found.published, found.topic_id, base, None, text)
