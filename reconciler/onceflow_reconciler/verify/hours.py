"""Which hours are listed at Stripe, what an hour's events hash to, and what a proof file says.

Rule: an hour that was read completely, and that holds what the ledger holds, is not listed again.  Pure.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from onceflow_reconciler.slices import REACH_MARGIN_SECONDS, REACH_SECONDS, Slice

HOUR_SECONDS: Final = 3600
SPAN_EVENTS_MAX: Final = 20_000
"""Neighbouring hours are listed together while the ledger has no more events in them than this, which bounds a list's pages."""
PROOF_VERSION: Final = 1
_HASH_BYTES: Final = 8


class HourSum(NamedTuple):
    """How many events an hour has, and the XOR of the beginnings of their ids' digests, as a signed 64-bit number."""

    events: int
    id_hash: int

    def plus(self, other: HourSum) -> HourSum:
        """Return the sum of two distinct sets of events."""
        return HourSum(self.events + other.events, self.id_hash ^ other.id_hash)


def hour_sum(event_ids: Iterable[str]) -> HourSum:
    """Return the sum of an hour's ids, which are distinct; their order does not matter."""
    events = hashed = 0
    for event_id in event_ids:
        events += 1
        hashed ^= int.from_bytes(hashlib.sha256(event_id.encode()).digest()[:_HASH_BYTES], "big", signed=True)
    return HourSum(events, hashed)


def due_hour(last: int | None, *, now: int, first_seconds: int, wait_seconds: int) -> Slice | None:
    """Return the next hour that is read as a whole; None while it is too young.

    Args:
        last: the last one that was, in unix seconds; None before the first.
        now: by Stripe's clock.
        first_seconds: how far back the first look goes.
        wait_seconds: after its end; some events become visible late.
    """
    first = (
        now - first_seconds if last is None else max(last + HOUR_SECONDS, now - REACH_SECONDS + REACH_MARGIN_SECONDS)
    )
    hour = -(-first // HOUR_SECONDS) * HOUR_SECONDS
    end = hour + HOUR_SECONDS
    return Slice(hour, end) if end + wait_seconds <= now else None


def whole_hour(part: Slice) -> bool:
    """Tell whether a stretch is exactly one hour of the clock."""
    return part.since % HOUR_SECONDS == 0 and part.until - part.since == HOUR_SECONDS


@dataclass(frozen=True, slots=True)
class ToList:
    """What must be listed at Stripe; ``unreachable`` says that the window begins before what Stripe lists."""

    spans: tuple[Slice, ...]
    unreachable: bool


def to_list(
    window: Slice, *, now: int, read: Mapping[int, HourSum], ours: Mapping[int, HourSum], first_hour: int | None
) -> ToList:
    """Return the stretches that are not proved by what was read before, oldest first.

    Args:
        window: of the question, in unix seconds.
        now: by Stripe's clock.
        read: what Stripe listed, by hour.
        ours: what the ledger has, by hour.
        first_hour: of the ledger; None when it is empty.
    """
    reach = now - REACH_SECONDS + REACH_MARGIN_SECONDS
    since, until = max(window.since, reach), min(window.until, now + 1)
    spans: list[Slice] = []
    expected = 0
    while since < until:
        hour = since - since % HOUR_SECONDS
        end = min(hour + HOUR_SECONDS, until)
        part = Slice(since, end)
        proved = whole_hour(part) and hour in read and read[hour] == ours.get(hour, HourSum(0, 0))
        if not proved:
            last = spans[-1] if spans else None
            events = ours.get(hour, HourSum(0, 0)).events
            if last is not None and last.until == since and expected + events <= SPAN_EVENTS_MAX:
                spans[-1] = Slice(last.since, end)
                expected += events
            else:
                spans.append(part)
                expected = events
        since = end
    oldest = window.since if first_hour is None else max(window.since, first_hour)
    return ToList(tuple(spans), unreachable=oldest < reach)


def proof_faults(
    former: Mapping[str, Any], made: Mapping[str, Any], *, since: int, until: int, retired_until: int
) -> list[tuple[str, str, str]]:
    """Compare a proof with a former one: kind, subject and detail of each difference.

    Args:
        former: what the file said.
        made: what is to be said now.
        since, until: the window of now, in unix seconds.
        retired_until: hours before it may have lost their markers.
    """
    faults = [
        ("proof_of_another", name, f"the file says {former.get(name)}, this is {made[name]}")
        for name in ("deployment", "mode")
        if former.get(name) != made[name]
    ]
    for account, hours in former["hours"].items():
        now_hours = made["hours"].get(account, {})
        for hour, said in hours.items():
            begins = int(hour)
            if said["settled"] and begins >= max(since, retired_until) and begins + HOUR_SECONDS <= until:
                faults += _hour_faults(f"{account}/{hour}", said, now_hours.get(hour))
    faults += [
        ("proof_differs", f"lane {lane}", f"{said} were published, now {made['lanes'].get(lane, 0)}")
        for lane, said in former["lanes"].items()
        if made["lanes"].get(lane, 0) < said
    ]
    faults += [
        ("proof_differs", topic, f"the topic was {said['id']}, and is {made['topics'][topic]['id']}")
        for topic, said in former["topics"].items()
        if topic in made["topics"] and made["topics"][topic]["id"] != said["id"]
    ]
    return faults


def _hour_faults(subject: str, said: Mapping[str, Any], found: Mapping[str, Any] | None) -> list[tuple[str, str, str]]:
    if found is not None and (found["events"], found["id_hash"]) == (said["events"], said["id_hash"]):
        return []
    count = 0 if found is None else found["events"]
    detail = f"the hour held {said['events']} events when it was proved, and holds {count} now"
    return [("proof_differs", subject, detail)]


def extended(former: Mapping[str, Any] | None, made: Mapping[str, Any]) -> dict[str, Any]:
    """Return a proof that also holds the hours that a former one has and the new one does not cover."""
    if former is None:
        return dict(made)
    accounts = sorted({*former["hours"], *made["hours"]})
    hours = {account: {**former["hours"].get(account, {}), **made["hours"].get(account, {})} for account in accounts}
    return {**made, "hours": hours, "extends": former["made_at"]}


def is_proof(read: object) -> bool:
    """Tell whether what a file holds is a proof of this form."""
    if not isinstance(read, dict) or read.get("version") != PROOF_VERSION:
        return False
    return isinstance(read.get("made_at"), str) and all(
        isinstance(read.get(name), dict) for name in ("hours", "lanes", "topics")
    )
