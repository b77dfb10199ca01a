"""What a replay would do with one record: its fate, from what is known before its body is parsed.

Rule: the marker under the event's identity decides, as it does in the inbox; a record without trust has no identity and
never runs.  Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple, Protocol

from onceflow_processor.admission import Item
from onceflow_schemas.identity import Identity


class Fate(StrEnum):
    """What becomes of a record."""

    RUN = "run"
    SKIPPED = "skipped"
    IGNORED = "ignored"
    PARKED = "parked"
    QUARANTINED = "quarantined"
    REFUSED = "refused"
    UNTRUSTED = "untrusted"
    UNHANDLED = "unhandled"
    MISSING = "missing"
    AHEAD = "ahead"
    LEFT_OUT = "left_out"


MEANINGS: Final[Mapping[Fate, str]] = {
    Fate.RUN: "would run: no marker, or one that the request takes up again",
    Fate.SKIPPED: "processed already",
    Fate.IGNORED: "ignored already",
    Fate.PARKED: "parked: it runs when its key's turn comes",
    Fate.QUARANTINED: "in quarantine: a person decides there",
    Fate.REFUSED: "refused, above all because it is older than the horizon",
    Fate.UNTRUSTED: "nobody vouches for the record",
    Fate.UNHANDLED: "no marker, and nothing handles its type: it would be marked as ignored",
    Fate.MISSING: "no marker: a replay without --rerun runs it",
    Fate.AHEAD: "not read by the processor yet: left to it",
    Fate.LEFT_OUT: 'its handlers are declared replay="never"',
}

MEANINGS_DONE: Final[Mapping[Fate, str]] = {
    **MEANINGS,
    Fate.RUN: "taken up: it had no marker, or one that the request takes up again",
    Fate.UNHANDLED: "it had no marker, and nothing handles its type: marked as ignored",
}
"""The same of a replay that was carried out; how the events ended that were taken up, its own counts say."""


def meanings(*, executed: bool, rerun: bool) -> Mapping[Fate, str]:
    """Return what the fates mean to a person, before or after it was done."""
    told = MEANINGS_DONE if executed else MEANINGS
    again = "ran again: processed before" if executed else "runs again in a rerun: processed before"
    return {**told, Fate.RUN: again} if rerun else told


class Marker(NamedTuple):
    """What the inbox says about an event."""

    state: str


class Handled(Protocol):
    """What a fate needs to know about handlers."""

    def has_handlers(self, event_type: str) -> bool:
        """Tell whether any handler takes the type."""

    def is_replayed(self, event_type: str) -> bool:
        """Tell whether a handler of the type may run in a replay."""


class Judged(NamedTuple):
    """A record's fate; ``code`` is a failure code where it is refused."""

    item: Item
    fate: Fate
    code: str | None = None


def judge(
    item: Item,
    markers: Mapping[Identity, Marker],
    *,
    handled: Handled,
    rerun: bool,
    ignored: bool,
    next_offset: int | None,
) -> Judged:
    """Decide what becomes of a record.

    Args:
        item: the record and what admission made of it.
        markers: of the identities that have one.
        handled: the registry.
        rerun: processed events run again.
        ignored: ignored events whose type has handlers now run.
        next_offset: where the processor stands in this partition; None when nobody reads it.
    """
    if item.event is None:
        return Judged(item, Fate.UNTRUSTED, None if item.fault is None else item.fault.code)
    marker = markers.get(item.event.identity)
    if marker is not None:
        fate = _known_fate(item.event.type, marker, handled=handled, rerun=rerun, ignored=ignored)
        if marker.state == "ignored" and fate is Fate.RUN and item.fault is not None:
            return Judged(item, Fate.REFUSED, item.fault.code)
        return Judged(item, fate)
    if next_offset is not None and item.record.offset >= next_offset:
        # The order of a key is the processor's business: a replay that runs in front of it would turn it round.
        return Judged(item, Fate.AHEAD)
    if item.fault is not None:
        return Judged(item, Fate.REFUSED, item.fault.code)
    if rerun:
        return Judged(item, Fate.MISSING)
    if not handled.has_handlers(item.event.type):
        return Judged(item, Fate.UNHANDLED)
    return Judged(item, _run_or_left_out(item.event.type, handled))


def _known_fate(event_type: str, marker: Marker, *, handled: Handled, rerun: bool, ignored: bool) -> Fate:
    match marker.state:
        case "processed":
            if not rerun:
                return Fate.SKIPPED
            # Where its handlers are gone there is still something to tell: so are its outcomes.
            return _run_or_left_out(event_type, handled) if handled.has_handlers(event_type) else Fate.RUN
        case "ignored":
            if ignored and handled.has_handlers(event_type):
                return _run_or_left_out(event_type, handled)
            return Fate.IGNORED
        case "parked":
            return Fate.PARKED
        case _:
            return Fate.QUARANTINED


def _run_or_left_out(event_type: str, handled: Handled) -> Fate:
    return Fate.RUN if handled.is_replayed(event_type) else Fate.LEFT_OUT
