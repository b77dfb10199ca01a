"""What a person asks to have replayed, and which offsets that means.

Rule: nothing is clamped and nothing guessed.  A request that cannot be meant is refused before anything is read, with every
fault at once.  Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple

from onceflow_processor.admission import Item
from onceflow_processor.position import LogBounds

KEYS_MAX: Final = 1_000
"""Keys, types or event ids in one request; more are a range of their own."""
REASON_CHARACTERS_MAX: Final = 1_000

_TYPE = re.compile(r"[A-Za-z0-9_.\[\]]{1,200}(\.\*)?")
_ANY_SUFFIX = ".*"


class Fault(NamedTuple):
    """Why a request is refused: a failure code and a sentence."""

    code: str
    detail: str


class Stretch(NamedTuple):
    """Offsets of one partition, from ``first`` to before ``end``."""

    partition: int
    first: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What was asked for.

    Attributes:
        topic: an event topic of the settings.
        partitions: empty for all.
        from_offset: the first offset; needs one partition.
        to_offset: the offset to end before; needs one partition.
        from_time: the first record at or after it, by the broker's time of the record; aware.
        to_time: end before the first record at or after it.
        keys: record keys, whole (``<account>/<object>``) or without the account; empty for all.
        types: event types, exact or with ``.*`` at the end; empty for all.
        event_ids: empty for all.
        ignored: events that were ignored run too, where their type has handlers now.
        rerun: events that were processed run again.
        execute: do it.
        reason: the person's own words; needed to do it.
        allow_operations: a rerun may ask for operations that were not asked for before.
        rate: events in a second that may run, None: as fast as it goes.
        unread: what was asked for and could not be read, a sentence each.
    """

    topic: str
    partitions: tuple[int, ...] = ()
    from_offset: int | None = None
    to_offset: int | None = None
    from_time: datetime | None = None
    to_time: datetime | None = None
    keys: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    event_ids: tuple[str, ...] = ()
    ignored: bool = False
    rerun: bool = False
    execute: bool = False
    reason: str = ""
    allow_operations: bool = False
    rate: float | None = None
    unread: tuple[str, ...] = ()

    def takes(self, item: Item) -> bool:
        """Tell whether a record is meant; one that nobody vouches for has no type and no event id."""
        if self.keys and not self._takes_key(item):
            return False
        if not self.types and not self.event_ids:
            return True
        if item.event is None:
            return False
        if self.event_ids and item.event.identity.event_id not in self.event_ids:
            return False
        return not self.types or any(_is_of(item.event.type, pattern) for pattern in self.types)

    def _takes_key(self, item: Item) -> bool:
        """By the record's key, or by the key that onceflow keeps in order where somebody else chose the record's."""
        given = ((item.record.key or b"").decode("utf-8", "replace"), item.order_key)
        return any(key in self.keys or key.partition("/")[2] in self.keys for key in given if key)

    def filters(self) -> dict[str, Any]:
        """Return what was asked for as plain JSON, for the row of the run; ``request_of`` reads it."""
        return {
            "topic": self.topic,
            "partitions": list(self.partitions),
            "from_offset": self.from_offset,
            "to_offset": self.to_offset,
            "from_time": None if self.from_time is None else self.from_time.isoformat(),
            "to_time": None if self.to_time is None else self.to_time.isoformat(),
            "keys": list(self.keys),
            "types": list(self.types),
            "event_ids": list(self.event_ids),
            "ignored": self.ignored,
            "rerun": self.rerun,
            "allow_operations": self.allow_operations,
        }


def request_of(filters: Mapping[str, Any], *, reason: str, rate: float | None) -> Request:
    """Return the request of a run that goes on, as ``Request.filters`` wrote it."""
    given: dict[str, Any] = dict(filters)
    for name in ("from_time", "to_time"):
        given[name] = None if given[name] is None else datetime.fromisoformat(given[name])
    for name in ("partitions", "keys", "types", "event_ids"):
        given[name] = tuple(given[name])
    return Request(**given, execute=True, reason=reason, rate=rate)


def flag_faults(request: Request, *, topics: Sequence[str]) -> list[Fault]:
    """Return what is wrong with a request by itself.

    Args:
        request: what was asked for.
        topics: the event topics of the settings.
    """
    faults = []
    if request.topic not in topics:
        known = ", ".join(topics)
        faults.append(Fault("replay_topic_refused", f"{request.topic} is not an event topic of the settings: {known}"))
    for offset, time, name in (
        (request.from_offset, request.from_time, "from"),
        (request.to_offset, request.to_time, "to"),
    ):
        if offset is not None and time is not None:
            faults.append(Fault("replay_flags_refused", f"--{name}-offset and --{name}-time contradict each other"))
        if offset is not None and offset < 0:
            faults.append(Fault("replay_range_refused", f"--{name}-offset {offset} is below 0"))
        if offset is not None and len(request.partitions) != 1:
            detail = f"--{name}-offset needs one --partition: offsets differ in each. Without it the whole log is meant"
            faults.append(Fault("replay_flags_refused", detail))
    if request.from_offset is not None and request.to_offset is not None and request.from_offset > request.to_offset:
        detail = f"--from-offset {request.from_offset} is after --to-offset {request.to_offset}"
        faults.append(Fault("replay_range_refused", detail))
    if request.from_time is not None and request.to_time is not None and request.from_time > request.to_time:
        faults.append(Fault("replay_range_refused", "--from-time is after --to-time"))
    faults.extend(
        Fault("replay_partition_refused", f"--partition {one} is below 0") for one in request.partitions if one < 0
    )
    if len(set(request.partitions)) != len(request.partitions):
        faults.append(Fault("replay_flags_refused", "a --partition is named twice"))
    faults.extend(Fault("replay_flags_refused", one) for one in request.unread)
    return [*faults, *_value_faults(request), *_mode_faults(request)]


def _value_faults(request: Request) -> list[Fault]:
    faults = []
    for name, values in (("--key", request.keys), ("--type", request.types), ("--event-id", request.event_ids)):
        if len(values) > KEYS_MAX:
            faults.append(Fault("replay_flags_refused", f"{name} stands {len(values)} times, {KEYS_MAX} are the most"))
        if any(not value for value in values):
            faults.append(Fault("replay_flags_refused", f"{name} is empty"))
    faults.extend(
        Fault("replay_flags_refused", f"--type {one!r} is no type that an event can have")
        for one in request.types
        if one and not _TYPE.fullmatch(one)
    )
    return faults


def _mode_faults(request: Request) -> list[Fault]:
    faults = []
    if request.rerun and request.ignored:
        detail = "--rerun is for events that were processed, --include ignored for those that were not"
        faults.append(Fault("replay_flags_refused", detail))
    if request.allow_operations and not request.rerun:
        faults.append(Fault("replay_flags_refused", "--allow-operations belongs to --rerun"))
    if request.execute and not request.reason.strip():
        faults.append(
            Fault("replay_flags_refused", "--execute needs --reason with some words: they are kept in the audit")
        )
    if len(request.reason) > REASON_CHARACTERS_MAX:
        faults.append(Fault("replay_flags_refused", f"--reason is longer than {REASON_CHARACTERS_MAX} characters"))
    if request.rate is not None and not 0 < request.rate < float("inf"):
        faults.append(Fault("replay_flags_refused", f"--rate {request.rate} is not above 0"))
    return faults


def partition_faults(request: Request, *, count: int) -> list[Fault]:
    """Return which partitions there are not.

    Args:
        request: what was asked for.
        count: the partitions of the topic.
    """
    return [
        Fault("replay_partition_refused", f"{request.topic} has no partition {one}: it has 0 to {count - 1}")
        for one in request.partitions
        if one >= count
    ]


def stretch_of(
    request: Request, *, partition: int, bounds: LogBounds, from_time_offset: int | None, to_time_offset: int | None
) -> Stretch | list[Fault]:
    """Return the offsets of one partition that are meant, or why they cannot be.

    Args:
        request: without a fault of its own.
        partition: one that there is.
        bounds: what its log holds now; a replay ends there at the latest.
        from_time_offset: the first record at or after ``from_time``; None without it.
        to_time_offset: the first record at or after ``to_time``; None without it.
    """
    faults = []
    log = f"the log of {request.topic}/{partition} holds {bounds.low} to {bounds.high - 1}"
    if bounds.high <= bounds.low:
        log = f"the log of {request.topic}/{partition} is empty and goes on at {bounds.high}"
    for name, offset in (("--from-offset", request.from_offset), ("--to-offset", request.to_offset)):
        if offset is not None and offset > bounds.high:
            faults.append(Fault("replay_range_refused", f"{name} {offset} is beyond the end: {log}"))
    if request.from_offset is not None and 0 <= request.from_offset < bounds.low:
        faults.append(Fault("replay_range_refused", f"--from-offset {request.from_offset} is gone: {log}"))
    if request.to_offset is not None and 0 <= request.to_offset < bounds.low:
        faults.append(Fault("replay_range_refused", f"--to-offset {request.to_offset} is gone: {log}"))
    if faults:
        return faults
    first = _first_of(request.from_offset, from_time_offset, bounds.low)
    end = _first_of(request.to_offset, to_time_offset, bounds.high)
    if end < first and (request.from_offset is None) != (request.to_offset is None):
        return [
            Fault("replay_range_refused", f"the range of {request.topic}/{partition} ends at {end}, before {first}")
        ]
    return Stretch(partition, first, max(first, end))


def _first_of(*offsets: int | None) -> int:
    return next(offset for offset in offsets if offset is not None)


def _is_of(event_type: str, pattern: str) -> bool:
    if pattern.endswith(_ANY_SUFFIX):
        return event_type.startswith(pattern[:-1])
    return event_type == pattern
