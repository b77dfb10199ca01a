"""Which hours are listed at Stripe, what an hour's events hash to, and what a proof file says.

Rule: an hour that was read completely, and that holds what the ledger holds, is not listed again.  Pure.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from onceflow_reconciler.slices import REACH_MARGIN_SECONDS, REACH_SECONDS, Slice

HOUR_SECONDS: Final = 3600
LATE_SECONDS: Final = 24 * 3600
"""So long after its end some events of an hour may still become visible in Stripe's list: only what was read later proves it."""
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

    def minus(self, part: HourSum) -> HourSum:
        """Return the sum without a part of it."""
        return HourSum(self.events - part.events, self.id_hash ^ part.id_hash)


NOTHING: Final = HourSum(0, 0)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownHours:
    """What is known of an account's hours, each by its beginning in unix seconds.

    Attributes:
        ours: what the ledgers have.
        kept_out: how much of that only waits for a person: it had no effect, and may be nothing that Stripe ever wrote.
        read: what Stripe listed when nothing became visible late any more.
        former: what an earlier proof has held against Stripe's list.
        first: hours before it are none of ours, or their markers may be deleted; None before there is anything.
        told: stretches that findings name already.
    """

    ours: Mapping[int, HourSum]
    kept_out: Mapping[int, HourSum] = field(default_factory=dict)
    read: Mapping[int, HourSum] = field(default_factory=dict)
    former: Mapping[int, HourSum] = field(default_factory=dict)
    first: int | None = None
    told: Sequence[Slice] = ()

    def mine(self, hour: int) -> HourSum:
        """Return what the ledgers have of an hour."""
        return self.ours.get(hour, NOTHING)

    def is_proved(self, hour: int) -> bool:
        """Tell whether the ledgers have of an hour what Stripe listed."""
        listed = {known[hour] for known in (self.read, self.former) if hour in known}
        return bool(listed & {self.mine(hour), self.mine(hour).minus(self.kept_out.get(hour, NOTHING))})

    def is_told(self, part: Slice) -> bool:
        """Tell whether a finding names a part of a stretch."""
        return any(one.since < part.until and part.since < one.until for one in self.told)


@dataclass(frozen=True, slots=True)
class ToList:
    """What must be listed at Stripe, and what is to be said of what Stripe does not list any more.

    Attributes:
        spans: to be listed, oldest first.
        proved: hours that were read before, and hold what the ledgers hold.
        differing: hours that Stripe does not list any more, and that held something else.
        unproved: stretches that Stripe does not list any more, and whose list nobody kept.
    """

    spans: tuple[Slice, ...]
    proved: frozenset[int]
    differing: tuple[int, ...]
    unproved: tuple[Slice, ...]


def to_list(window: Slice, *, now: int, hours: KnownHours) -> ToList:
    """Return the stretches that are not proved by what was read before, oldest first.

    Args:
        window: of the question, in unix seconds.
        now: by Stripe's clock.
        hours: what is known of the account's.
    """
    reach = now - REACH_SECONDS + REACH_MARGIN_SECONDS
    begins = reach if hours.first is None else min(reach, hours.first)
    since, until = max(window.since, begins), min(window.until, now + 1)
    spans: list[Slice] = []
    proved: set[int] = set()
    differing: list[int] = []
    unproved: list[Slice] = []
    expected = 0
    while since < until:
        hour = since - since % HOUR_SECONDS
        part = Slice(since, min(hour + HOUR_SECONDS, until))
        since = part.until
        if whole_hour(part) and hours.is_proved(hour):
            proved.add(hour)
        elif part.until > reach:
            part = Slice(max(part.since, reach), part.until)
            events = hours.mine(hour).events
            last = spans[-1] if spans else None
            if last is not None and last.until == part.since and expected + events <= SPAN_EVENTS_MAX:
                spans[-1] = Slice(last.since, part.until)
                expected += events
            else:
                spans.append(part)
                expected = events
        elif whole_hour(part) and hour in hours.read:
            differing.append(hour)
        elif not hours.is_told(part):
            if unproved and unproved[-1].until == part.since:
                unproved[-1] = Slice(unproved[-1].since, part.until)
            else:
                unproved.append(part)
    return ToList(tuple(spans), frozenset(proved), tuple(differing), tuple(unproved))


def listed_before(former: Mapping[str, Any] | None, account: str) -> dict[int, HourSum]:
    """Return the hours of an account that an earlier proof has held against Stripe's list."""
    hours = {} if former is None else former["hours"].get(account, {})
    return {
        int(hour): HourSum(one["events"], one["id_hash"])
        for hour, one in hours.items()
        if one["settled"] and one.get("listed", False)
    }


def proof_hours(
    hours: Mapping[str, Mapping[int, HourSum]], proved: Mapping[str, AbstractSet[int]], *, settled: int
) -> dict[str, dict[str, dict[str, Any]]]:
    """Return what a proof says of hours.

    Args:
        hours: what the ledgers have, by account and hour.
        proved: hours that were held against Stripe's list, by account; one without events is one of them too.
        settled: nothing more is expected of hours that ended before.
    """
    return {
        account: {
            str(hour): {
                "events": one.events,
                "id_hash": one.id_hash,
                "settled": hour + HOUR_SECONDS <= settled,
                "listed": hour in proved.get(account, ()),
            }
            for hour, one in sorted(
                {**dict.fromkeys(proved.get(account, ()), NOTHING), **hours.get(account, {})}.items()
            )
        }
        for account in sorted({*hours, *proved})
    }


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
    for topic, said in former["topics"].items():
        if topic in made["topics"]:
            faults += _topic_faults(topic, said, made["topics"][topic])
    return faults


def _topic_faults(topic: str, said: Mapping[str, Any], found: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    if found["id"] != said["id"]:
        return [("proof_differs", topic, f"the topic was {said['id']}, and is {found['id']}")]
    ends = {number: place["end"] for number, place in found["partitions"].items()}
    return [
        (
            "proof_differs",
            f"{topic}/{number}",
            f"its log ended before offset {place['end']}, and ends before {ends[number]}",
        )
        for number, place in said["partitions"].items()
        if ends.get(number, place["end"]) < place["end"]
    ]


def _hour_faults(subject: str, said: Mapping[str, Any], found: Mapping[str, Any] | None) -> list[tuple[str, str, str]]:
    now = NOTHING if found is None else HourSum(found["events"], found["id_hash"])
    if now == HourSum(said["events"], said["id_hash"]):
        return []
    count = now.events
    detail = f"the hour held {said['events']} events when it was proved, and holds {count} now"
    return [("proof_differs", subject, detail)]


def extended(former: Mapping[str, Any] | None, made: Mapping[str, Any]) -> dict[str, Any]:
    """Return a proof that also holds the hours that a former one has and the new one does not cover."""
    if former is None:
        return dict(made)
    accounts = sorted({*former["hours"], *made["hours"]})
    hours = {account: _merged(former["hours"].get(account, {}), made["hours"].get(account, {})) for account in accounts}
    objects = {**former.get("objects", {}), **made.get("objects", {})}
    return {**made, "hours": hours, "objects": objects, "extends": former["made_at"]}


def _merged(former: Mapping[str, Any], made: Mapping[str, Any]) -> dict[str, Any]:
    """Merge hours: what was held against Stripe's list once, and is the same now, stays so."""
    hours = {**former, **made}
    for hour, said in former.items():
        one = hours[hour]
        if said["settled"] and said.get("listed", False) and not _hour_faults("", said, one):
            hours[hour] = {**one, "listed": True}
    return hours


def is_proof(read: object) -> bool:
    """Tell whether what a file holds is a proof of this form."""
    if not isinstance(read, dict) or read.get("version") != PROOF_VERSION:
        return False
    return isinstance(read.get("made_at"), str) and all(
        isinstance(read.get(name), dict) for name in ("hours", "lanes", "topics")
    )
