"""Records as blocks: many of them are compared with their rows at once, by one digest.

Rule: a block of records and a block of rows are equal only where each record has its row and each row its record, with the same
words at the same place; whatever is odd makes a block differ, and a block that differs is looked at record by record.  A word holds
no line feed and a digest is written in letters, so that equal lines are equal words.  Pure.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, NamedTuple

from onceflow_processor.inputs.rendering import digest_of
from onceflow_schemas.event_record import RECONCILER_ENDPOINT
from onceflow_schemas.told_facts import FACTS_HEADER, HEADERS_PREFIX, HEADERS_SUFFIX

BLOCK_PLACES: Final = 1_000
"""Offsets, or sequences, of one block: few enough that a difference costs little, and enough that a block costs nothing."""
NO_BLOCK: Final = -1
"""Stands for what has no sequence."""

_RECONCILER: Final = RECONCILER_ENDPOINT.encode()
_REMEMBERED_MAX: Final = 65_536
_SOURCE: Final = re.compile(rb"urn:stripe:([A-Za-z0-9_.\-]{1,255}):(live|test)")
_WRITTEN: Final = re.compile(rb"([0-9]{4}-[0-9]{2}-[0-9]{2})T([0-9]{2}:[0-9]{2}:[0-9]{2})\.([0-9]{6})Z")
_PLAIN_HEADERS: Final = 12
_LINE_FEEDS_OF_AN_OUTCOME: Final = 9
_FACTS: Final = re.compile(rb"[A-Za-z0-9_,\-]+")
_BEFORE_FACTS: Final = HEADERS_PREFIX.encode()
_BEHIND_FACTS: Final = HEADERS_SUFFIX.encode()


class Sum(NamedTuple):
    """What a block folds to."""

    records: int
    digest: bytes


@dataclass(frozen=True, slots=True)
class Compared:
    """Which blocks are proved, by number, which differ, and between which offsets these lie: from the first, before the second."""

    proved: frozenset[int]
    differing: frozenset[int]
    read_again: tuple[int, int] | None


@dataclass(slots=True)
class _Block:
    """A block: the offsets that it lies between, its lines while it is read, and what they fold to; nothing where it is odd."""

    first: int
    last: int
    lines: list[bytes] | None = field(default_factory=list)
    sum: Sum | None = None

    def end(self) -> None:
        if self.lines is not None:
            self.sum = Sum(len(self.lines), hashlib.sha256(b"".join(self.lines)).digest())
            self.lines = None

    def spoil(self) -> None:
        self.lines = self.sum = None


class EventBlocks:
    """The blocks of one partition of an event topic, by offset."""

    def __init__(self) -> None:
        self._blocks: dict[int, _Block] = {}
        self._number = -1

    def add(self, offset: int, headers: Sequence[tuple[str, bytes | None]] | None, value: bytes | None) -> None:
        """Fold a record; they come in the order of their offsets."""
        number = offset // BLOCK_PLACES
        if number != self._number:
            self._end()
            self._number, self._blocks[number] = number, _Block(offset, offset)
        block = self._blocks[number]
        block.last = offset
        if block.lines is not None:
            line = event_words(offset, headers, value) if headers and value else None
            if line is None:
                block.spoil()
            else:
                block.lines.append(line)

    def compare(self, rows: Mapping[int, Sum]) -> Compared:
        """Compare with what the rows fold to, by number."""
        self._end()
        return _compared(self._blocks, rows)

    def _end(self) -> None:
        if self._number in self._blocks:
            self._blocks[self._number].end()


def event_words(offset: int, headers: Sequence[tuple[str, bytes | None]], value: bytes) -> bytes | None:
    """Return the line of a record of an event topic, as query ``event_blocks`` writes it of its marker; None where it is odd."""
    said = dict(headers)
    identity, event_id, event_type = _identity(said.get("ce_source")), said.get("ce_id"), said.get("ce_type")
    created = _created(said.get("ce_time"))
    if (
        identity is None
        or created is None
        or not event_id
        or b"\n" in event_id
        or not event_type
        or b"\n" in event_type
    ):
        return None
    # What was brought by us is in other bytes than Stripe's: its marker has the digest of what it says.
    if said.get("onceflow_endpoint") == _RECONCILER:
        digest = digest_of(value).hex().encode()
    else:
        digest = hashlib.sha256(value).hexdigest().encode()
    return b"%b%b\n%b\n%b\n%d\n%b\n" % (identity, event_id, event_type, created, offset, digest)


@lru_cache(maxsize=_REMEMBERED_MAX)
def _created(raw: bytes | None) -> bytes | None:
    """Return a time as PostgreSQL writes it in UTC, nothing for one that is not told, None where it is odd."""
    return b"" if raw is None else _written(raw)


@lru_cache(maxsize=_REMEMBERED_MAX)
def _identity(source: bytes | None) -> bytes | None:
    """Return account and mode as words."""
    found = _SOURCE.fullmatch(source or b"")
    return None if found is None else b"%b\n%b\n" % found.groups()


class OutcomeBlocks:
    """The blocks of one lane of the outcome topic, by sequence.

    Attributes:
        first_seq, last_seq: the smallest and the largest sequence; None without any.
    """

    def __init__(self) -> None:
        self.first_seq: int | None = None
        self.last_seq: int | None = None
        self._blocks: dict[int, _Block] = {}
        self._current: tuple[int, _Block] | None = None
        self._before: int | None = None
        self._foreign: _Block | None = None

    def add(self, offset: int, seq: int, line: bytes | None) -> None:
        """Fold an outcome, None for one that is odd; they come in the order of their offsets."""
        before, number = self._before, seq // BLOCK_PLACES
        current = self._current
        if current is None or current[0] != number:
            current = self._turn(number, offset)
        block = current[1]
        block.last = offset
        if before is None or self.first_seq is None or self.last_seq is None:
            self.first_seq = self.last_seq = seq
        elif seq == before + 1:
            self.last_seq = max(self.last_seq, seq)
        else:
            # A gap, or one that comes again: both sides are looked at.
            self._blocks[before // BLOCK_PLACES].spoil()
            block.spoil()
            self.first_seq, self.last_seq = min(self.first_seq, seq), max(self.last_seq, seq)
        self._before = seq
        if line is None:
            block.spoil()
        elif block.lines is not None:
            block.lines.append(line)

    def add_refill(self, offset: int, seq: int) -> None:
        """Note one that was put into a hole: its block is looked at."""
        number = seq // BLOCK_PLACES
        block = self._blocks.setdefault(number, _Block(offset, offset))
        block.last = offset
        block.spoil()

    def add_foreign(self, offset: int) -> None:
        """Note a record that is none of ours."""
        if self._foreign is None:
            self._foreign = _Block(offset, offset)
        self._foreign.last = offset

    def compare(self, rows: Mapping[int, Sum]) -> Compared:
        """Compare with what the rows fold to, by number."""
        if self._current is not None:
            self._current[1].end()
        foreign = {} if self._foreign is None else {NO_BLOCK: self._foreign}
        return _compared({**self._blocks, **foreign}, rows)

    def _turn(self, number: int, offset: int) -> tuple[int, _Block]:
        if self._current is not None:
            self._current[1].end()
        block = self._blocks.get(number)
        if block is None:
            block = self._blocks[number] = _Block(offset, offset)
        else:
            block.spoil()
        self._current = (number, block)
        return self._current


def outcome_words(
    lane: bytes, *, key: bytes, value: bytes, headers: Sequence[tuple[str, bytes | None]], source: bytes
) -> tuple[int, bytes] | None:
    """Return sequence and line of an outcome, as query ``outcome_blocks`` writes it of its row; None where it is odd.

    Args:
        lane: as it stands in a header.
        key, value, headers: of the record.
        source: what ours say in ``ce_source``.
    """
    said: dict[str, Any] = dict(headers)  # a null makes a TypeError below
    try:
        seq, written = said["onceflow_sequence"], _written(said["ce_time"])
        facts = said.get(FACTS_HEADER)
        expected = _PLAIN_HEADERS if facts is None else _PLAIN_HEADERS + 1
        if (
            len(said) != expected
            or len(headers) != expected
            or said["ce_source"] != source
            or said["onceflow_lane"] != lane
            or said["ce_subject"] != key
            or not (said["ce_specversion"] and said["content-type"])
            or written is None
        ):
            return None
        line = b"%b\n%b\n%b\n%b\n%b\n%b\n%b\n%b\n%b\n" % (
            seq, said["ce_id"], said["onceflow_outcome_id"], said["onceflow_revision"], said["ce_type"], key,
            said["onceflow_cause"], written, hashlib.sha256(value).hexdigest().encode(),
        )  # fmt: skip
        found = int(seq)
    except (KeyError, TypeError, ValueError):
        return None
    if found <= 0 or line.count(b"\n") != _LINE_FEEDS_OF_AN_OUTCOME:
        return None
    if facts is None:
        return found, line
    return (found, b"%b%b%b\n%b" % (_BEFORE_FACTS, facts, _BEHIND_FACTS, line)) if _FACTS.fullmatch(facts) else None


@lru_cache(maxsize=_REMEMBERED_MAX)
def _written(raw: bytes | None) -> bytes | None:
    """Return a time as PostgreSQL writes it in UTC: many outcomes share theirs."""
    found = _WRITTEN.fullmatch(raw or b"")
    if found is None:
        return None
    day, second, fraction = found.groups()
    return b"%b %b+00" % (day, (second + b"." + fraction.rstrip(b"0")).rstrip(b"."))


def _compared(blocks: Mapping[int, _Block], rows: Mapping[int, Sum]) -> Compared:
    proved = frozenset(
        number for number, block in blocks.items() if block.sum is not None and block.sum == rows.get(number)
    )
    others = {number: block for number, block in blocks.items() if number not in proved}
    again = (
        (min(one.first for one in others.values()), max(one.last for one in others.values()) + 1) if others else None
    )
    return Compared(proved, frozenset(others), again)
