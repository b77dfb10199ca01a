"""Where the relay stands in a lane, and whether that may be believed.  Pure.

Rule: the cursor is checked, not believed.  Anybody with the right to commit offsets can overwrite it, offsets of a
group without members expire, a broker can lose its tail and a database can be restored.  The relay goes on only when
the cursor, the last record of the partition and the database agree; every disagreement has a code, nothing is clamped.

    cursor           last record          database              verdict
    ---------------  -------------------  --------------------  ------------------------------------------
    not ours         any                  any                   cursor_moved
    names offset c   log ends before c    any                   tail_lost
    any              open transaction     any                   unsettled (look again)
    accepted, at c   not ours, at c-1     see below             position = the cursor's (a person's decision)
    any              not an outcome       any                   diverged
    names offset c   at or after c        any                   cursor_moved
    names offset c   before c-1           any                   tail_lost, or cursor_moved (sequence not behind)
    names offset c   at c-1, other id     any                   diverged
    names offset c   none, log from >= c  see below             position = the cursor's (retention)
    names offset c   none, log from < c   any                   tail_lost
    names offset c   at c-1, the same     see below             position = the record's
    unknown (-1001)  an outcome           see below             position = the record's
    unknown          none, log from 0     nothing published     position = 0
    unknown          none, log from 0     published             tail_lost
    unknown          none, log from > 0   published             position = published (retention)
    unknown          none, log from > 0   nothing published     behind (records that we know nothing of)
    a position from above                 above the head        behind
                                          below published       tail_lost
                                          other id, or no row   diverged
                                          the same id           agrees
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal
from uuid import UUID

OFFSET_UNKNOWN: Final = -1001
"""What Kafka answers when a group has no offset: never committed, expired, deleted, or the topic is new."""

Code = Literal["behind", "cursor_moved", "diverged", "not_importable", "tail_lost", "topic_changed", "unpublishable"]

NOTHING_PUBLISHED: Final = "none"
"""Metadata of a commit, by decision of a person, that says no more than that nothing is known."""

_ACCEPTED: Final = " accepted"
_METADATA = re.compile(r"(0|[1-9][0-9]{0,18}) ([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(| accepted)")
_SEQUENCE = re.compile(rb"[1-9][0-9]{0,18}")


@dataclass(frozen=True, slots=True)
class Unknown:
    """Kafka has no offset for the lane; that does not mean 0."""

    def __str__(self) -> str:
        return "none known"


@dataclass(frozen=True, slots=True)
class Foreign:
    """Somebody else's commit: its metadata is not ours."""

    next_offset: int
    metadata: str

    def __str__(self) -> str:
        return f"offset {self.next_offset}, not committed by a relay"


@dataclass(frozen=True, slots=True)
class Mark:
    """A commit of the relay: the last published sequence with its record's id, and the offset after that record.

    ``accepted``: a person has decided that the records of others between that record and the offset do not matter; then
    the sequence may be 0, with a record id that means nothing.
    """

    next_offset: int
    seq: int
    ce_id: UUID
    accepted: bool = False

    def __str__(self) -> str:
        accepted = ", accepted by a person" if self.accepted else ""
        return f"offset {self.next_offset}, after sequence {self.seq} ({self.ce_id}){accepted}"


Cursor = Unknown | Foreign | Mark

EMPTY: Final = Mark(0, 0, UUID(int=0))
"""Committed by decision of a person where the topic holds no outcome; it is read back as ``Unknown``."""


@dataclass(frozen=True, slots=True)
class Extent:
    """Offsets of a partition: its start, the end for read_committed, and the end with unfinished transactions."""

    low: int
    stable_end: int
    end: int

    def __str__(self) -> str:
        unfinished = f", committed to {self.stable_end}" if self.stable_end < self.end else ""
        return f"offsets from {self.low} to before {self.end}{unfinished}"


@dataclass(frozen=True, slots=True)
class OutcomeRecord:
    """A record of ours.  A refill repeats an old sequence on purpose, so it says nothing about the position."""

    offset: int
    seq: int
    ce_id: UUID
    refill: bool = False

    def __str__(self) -> str:
        return f"sequence {self.seq} ({self.ce_id}) at offset {self.offset}"


@dataclass(frozen=True, slots=True)
class StrangeRecord:
    """A record that the relay did not write, or wrote for another lane."""

    offset: int

    def __str__(self) -> str:
        return f"no outcome of this lane, at offset {self.offset}"


TailRecord = OutcomeRecord | StrangeRecord


@dataclass(frozen=True, slots=True)
class Lane:
    """What the database says about a lane: how far it has handed out, and how far it knows to be published."""

    head: int
    published: int


@dataclass(frozen=True, slots=True)
class Agrees:
    """The lane may be published after ``seq``; ``cursor`` is what may be committed again, None when unknown."""

    seq: int
    cursor: Mark | None

    def __str__(self) -> str:
        return f"cursor, topic and database agree at sequence {self.seq}"


@dataclass(frozen=True, slots=True)
class Disagrees:
    """The lane stands still until a person, or better evidence, says otherwise."""

    code: Code
    detail: str

    def __str__(self) -> str:
        return f"{self.code}: {self.detail}"

    @property
    def state(self) -> str:
        """The state of the lane's row."""
        return self.code if self.code == "behind" else f"stopped:{self.code}"


@dataclass(frozen=True, slots=True)
class Unsettled:
    """Nothing can be said while somebody's transaction is open on the partition."""

    detail: str

    def __str__(self) -> str:
        return self.detail


Verdict = Agrees | Disagrees | Unsettled


def encode_metadata(mark: Mark) -> str:
    """Return the metadata of an offset commit: ``<sequence> <ce_id>``."""
    if mark == EMPTY:
        return NOTHING_PUBLISHED
    return f"{mark.seq} {mark.ce_id}{_ACCEPTED if mark.accepted else ''}"


def decode_cursor(next_offset: int, metadata: str | None) -> Cursor:
    """Read a committed offset with its metadata, as Kafka hands them out."""
    if next_offset == OFFSET_UNKNOWN or (next_offset, metadata) == (EMPTY.next_offset, NOTHING_PUBLISHED):
        return Unknown()
    found = _METADATA.fullmatch(metadata or "")
    if found is None or next_offset < 1 or (found[1] == "0" and not found[3]):
        return Foreign(next_offset, metadata or "")
    return Mark(next_offset, int(found[1]), UUID(found[2]), accepted=bool(found[3]))


def read_record(offset: int, *, lane: int, headers: Iterable[tuple[str, bytes | None]] | None) -> TailRecord:
    """Read what a record of the outcome topic says about itself."""
    named: dict[str, bytes | None] = {}
    for name, value in headers or ():
        # The first one counts: the relay writes its own headers before those of a user.
        named.setdefault(name, value)
    seq, ce_id = named.get("onceflow_sequence") or b"", named.get("ce_id") or b""
    if named.get("onceflow_lane") != str(lane).encode() or not _SEQUENCE.fullmatch(seq):
        return StrangeRecord(offset)
    try:
        record_id = UUID(ce_id.decode("ascii"))
    except ValueError:
        return StrangeRecord(offset)
    return OutcomeRecord(offset, int(seq), record_id, refill="onceflow_refill" in named)


def judge(cursor: Cursor, last: TailRecord | None, *, extent: Extent, lane: Lane, known: Mapping[int, UUID]) -> Verdict:
    """Decide where a lane stands.

    Args:
        cursor: the committed position.
        last: the last real record of the partition that is no refill; None when there is none.
        extent: the partition's offsets.
        lane: what the database says.
        known: record ids of the lane's rows, at least those at the cursor's and the last record's sequence.

    Returns:
        ``Agrees`` still leaves the records after ``lane.published`` to be compared with ``compare``.
    """
    found = _position(cursor, last, extent=extent, lane=lane, known=known)
    if not isinstance(found, Agrees):
        return found
    if found.seq > lane.head:
        return Disagrees("behind", f"the topic has sequence {found.seq}, the database has handed out {lane.head}")
    if found.seq < lane.published:
        return Disagrees("tail_lost", f"sequence {lane.published} was published, the topic ends with {found.seq}")
    row = known.get(found.seq)
    # A published row may have been pruned; one that is not known to be published may not be missing.
    if found.cursor is None or (row is None and found.seq <= lane.published):
        return found
    if row != found.cursor.ce_id:
        return Disagrees(
            "diverged", f"sequence {found.seq} is {found.cursor.ce_id} in the topic, {row} in the database"
        )
    return found


def _position(
    cursor: Cursor, last: TailRecord | None, *, extent: Extent, lane: Lane, known: Mapping[int, UUID]
) -> Verdict:
    if isinstance(cursor, Foreign):
        return Disagrees("cursor_moved", f"offset {cursor.next_offset} was not committed by a relay")
    if isinstance(cursor, Mark) and extent.end < cursor.next_offset:
        return Disagrees("tail_lost", f"the log ends at {extent.end}, {cursor.next_offset} was committed")
    if extent.stable_end < extent.end:
        return Unsettled(f"a transaction is open at offset {extent.stable_end}")
    if isinstance(last, StrangeRecord):
        if isinstance(cursor, Mark) and cursor.accepted and last.offset == cursor.next_offset - 1:
            return Agrees(cursor.seq, cursor)
        return Disagrees("diverged", f"the record at offset {last.offset} is no outcome of this lane")
    if isinstance(cursor, Mark):
        return _from_mark(cursor, last, extent=extent)
    if last is not None:
        return Agrees(last.seq, Mark(last.offset + 1, last.seq, last.ce_id))
    return _from_nothing(extent=extent, lane=lane, known=known)


def _from_mark(mark: Mark, last: OutcomeRecord | None, *, extent: Extent) -> Verdict:
    if last is None:
        if extent.low >= mark.next_offset:
            return Agrees(mark.seq, mark)
        return Disagrees("tail_lost", f"no record is left from {extent.low} to {mark.next_offset}")
    if last.offset >= mark.next_offset:
        return Disagrees("cursor_moved", f"offset {mark.next_offset} was committed, a record lies at {last.offset}")
    if last.offset < mark.next_offset - 1:
        if last.seq < mark.seq:
            return Disagrees("tail_lost", f"sequence {mark.seq} was committed, the topic ends with {last.seq}")
        return Disagrees(
            "cursor_moved", f"offset {mark.next_offset} was committed, the last record is at {last.offset}"
        )
    if (last.seq, last.ce_id) != (mark.seq, mark.ce_id):
        return Disagrees("diverged", f"the cursor names {encode_metadata(mark)}, the record {last.seq} {last.ce_id}")
    return Agrees(mark.seq, mark)


def _from_nothing(*, extent: Extent, lane: Lane, known: Mapping[int, UUID]) -> Verdict:
    if lane.published == 0:
        if extent.low == 0:
            return Agrees(0, None)
        return _unknown_past(extent)
    if extent.low == 0:
        return Disagrees("tail_lost", f"sequence {lane.published} was published, the topic has no record")
    row = known.get(lane.published)
    # The log's start is the only offset at which a later look must find nothing missing.
    return Agrees(lane.published, None if row is None else Mark(extent.low, lane.published, row))


def _unknown_past(extent: Extent) -> Disagrees:
    return Disagrees("behind", f"records before offset {extent.low} are gone, the database knows of none")


def judge_head(
    cursor: Cursor, last: TailRecord | None, *, extent: Extent, lane: Lane, known: Mapping[int, UUID]
) -> Agrees | Disagrees:
    """Decide whether a lane may hand out its next sequence: only when the topic cannot have it already.

    The looser half of ``judge``, for a processor that looks while a relay is at work: cursor and last record may then
    differ by a transaction, so only the further one counts.  Arguments as for ``judge``.
    """
    marks = [cursor] if isinstance(cursor, Mark) else []
    if isinstance(last, OutcomeRecord):
        marks.append(Mark(last.offset + 1, last.seq, last.ce_id))
    if not marks:
        if isinstance(last, StrangeRecord):
            return Disagrees("diverged", f"the record at offset {last.offset} is no outcome of this lane")
        # A lost tail is the relay's to report: it cannot make the database hand out a sequence twice.
        if extent.low > 0 and lane.published == 0:
            return _unknown_past(extent)
        return Agrees(lane.published, None)
    furthest = max(marks, key=lambda mark: mark.seq)
    if furthest.seq > lane.head:
        return Disagrees("behind", f"the topic has sequence {furthest.seq}, the database has handed out {lane.head}")
    row = known.get(furthest.seq)
    if row not in (None, furthest.ce_id):
        return Disagrees("diverged", f"sequence {furthest.seq} is {furthest.ce_id} in the topic, {row} in the database")
    return Agrees(furthest.seq, furthest)


def compare(expected_seq: int, records: Sequence[TailRecord], *, known: Mapping[int, UUID]) -> int | Disagrees:
    """Compare a stretch of the topic with the rows of its lane.

    Args:
        expected_seq: the sequence that must come next.
        records: in the order of their offsets.
        known: record ids of the rows with these sequences.

    Returns:
        The sequence that must come after the stretch, or what is wrong.
    """
    for record in records:
        if isinstance(record, StrangeRecord):
            return Disagrees("diverged", f"the record at offset {record.offset} is no outcome of this lane")
        if record.refill:
            continue
        if record.seq != expected_seq:
            return Disagrees("diverged", f"offset {record.offset} has sequence {record.seq}, expected {expected_seq}")
        row = known.get(record.seq)
        if row != record.ce_id:
            return Disagrees("diverged", f"sequence {record.seq} is {record.ce_id} in the topic, {row} in the database")
        expected_seq += 1
    return expected_seq
