"""K12: an input that a gateway of somebody else fills, beside the bridge's own.

Rule: the same event over two topics is one event with one effect, whatever the order, the partition and the key; what Stripe
did not sign, or nobody can read, is kept with its code and holds up nothing.
"""

from __future__ import annotations

import signal
import time
from datetime import timedelta
from random import Random
from typing import Any

from tests.chaos.bus_world import BUS, BUS_PARTITIONS, BusWorld
from tests.chaos.fault import fault, fired
from tests.chaos.planted_records import UNTRUSTED, YEARS_DAYS, attested, record_of
from tests.chaos.sending import body_of, event, note_sent, post_until_taken
from tests.chaos.waits import wait_processed
from tests.chaos.world import World
from tests.checker.topics import read_topic
from tests.checker.waiting import wait_for

COPIES = 60
NEW_EVENTS = 30
STATE_SECONDS = 60.0
SUBSCRIPTION = ("customer.subscription.created", "customer.subscription.updated", "customer.subscription.deleted")


def _bus(world: World) -> BusWorld:
    assert isinstance(world, BusWorld), "it needs a world with a second input"
    return world


def _placed(dice: Random, record: dict[str, Any]) -> dict[str, Any]:
    """Anywhere, under a key that means nothing to us, or none."""
    return record | {"partition": dice.randrange(BUS_PARTITIONS), "key": dice.choice([None, b"tenant-7", b"k"])}


def _history(name: str) -> list[dict[str, Any]]:
    """A subscription's life, newest first."""
    made = [
        event(kind, name=f"{name}x{n}", id=f"sub_{name}", object="subscription") for n, kind in enumerate(SUBSCRIPTION)
    ]
    return made[::-1]


def _wait_done(world: World, events: list[dict[str, Any]]) -> None:
    ids = [one["id"] for one in events]
    query = "SELECT count(*) FROM onceflow.inbox WHERE event_id = ANY (%s) AND state = 'processed'"
    wait_for(
        lambda: world.value(query, ids) == len(ids),
        limit_seconds=STATE_SECONDS,
        what=f"{len(ids)} events are processed",
    )
    ran = world.value("SELECT count(*) FROM shop.effect WHERE event_id = ANY (%s)", ids)
    assert ran == len(ids), f"{ran} effects of {len(ids)} events"


@fault(
    "K12/bus",
    "another bus: copies of the bridge's events, repeated, out of order, killed in the middle",
    soak="bus",
    points=("processor.before_commit",),
)
def second_road(world: World, dice: Random) -> str:
    """What the bridge had first, what the bus had first, what only the bus has: each once."""
    bus, processor = _bus(world), world.parts["processor"]
    world.load.wait_for_answers(COPIES)
    wait_processed(world, 5)
    known = list(read_topic(world.bootstrap, world.topics.events[0], isolation="read_committed"))
    bodies = [bytes(one.value() or b"") for one in dice.sample(known, min(COPIES, len(known)))]
    fresh = [event() for _ in range(NEW_EVENTS)]
    for number in range(5):
        fresh += _history(f"bus{dice.randrange(10**9)}n{number}")
    for one in fresh:
        note_sent(world, body_of(one))
    records = [_placed(dice, bus.gateway_record(body)) for body in [*bodies, *map(body_of, fresh)]]
    again = [_placed(dice, dict(record)) for record in records]
    dice.shuffle(again)
    bus.put(records[: len(records) // 2])
    processor.arm("processor.before_commit", "kill9")
    bus.put([*records[len(records) // 2 :], *again])
    firing = processor.wait_fired()
    assert processor.wait_ended() == -signal.SIGKILL
    # The bridge's copy of what the bus had first.
    for one in fresh[:10]:
        post_until_taken(world, body_of(one))
    world.restart("processor")
    _wait_done(world, fresh)
    wait_processed(world)
    return fired(
        bodies, f"{firing}; {len(bodies)} copies and {len(fresh)} events of the bus alone, each twice, none doubled"
    )


@fault("K12/bus_strange", "another bus: tombstones, garbage, forged, years old, of the wrong topic", soak="bus")
def strange_on_the_bus(world: World, dice: Random) -> str:
    """Each is kept with its code; an event behind each of them is done, and a forged copy hurts the true event nowhere."""
    bus = _bus(world)
    true, behind = event(), [event() for _ in range(BUS_PARTITIONS)]
    old = event() | {"created": int(time.time() - timedelta(days=YEARS_DAYS).total_seconds())}
    wrong_topic = event()
    for one in (true, old, *behind):
        note_sent(world, body_of(one))
    signed = bus.gateway_record(body_of(true))
    record = record_of(attested(world, body_of(wrong_topic)))
    planted: list[tuple[set[str], dict[str, Any]]] = [
        ({"empty_record"}, {"value": None, "key": b"k"}),
        ({"empty_record"}, {"value": b"", "key": b"k"}),
        (UNTRUSTED, {"value": b"\x00Avro\xff" * 100, "key": None}),
        (UNTRUSTED, {"value": signed["value"], "key": b"k"}),
        (UNTRUSTED, signed | {"value": signed["value"] + b"\n"}),
        (UNTRUSTED, signed | {"value": body_of(true | {"type": "charge.refunded"})}),
        (UNTRUSTED, record),
        ({"too_many_headers"}, signed | {"headers": [("h", b"v")] * 10_000}),
        ({"not_an_event"}, bus.gateway_record(b'["signed", "and no event"]')),
        ({"too_old"}, bus.gateway_record(body_of(old))),
    ]
    wanted: dict[tuple[int, int], set[str]] = {}
    for codes, one in planted:
        number = dice.randrange(BUS_PARTITIONS)
        [placed] = bus.put([one | {"partition": number}])
        world.planted[placed] = frozenset(codes)
        wanted[number, placed[1]] = codes
    bus.put([signed | {"partition": dice.randrange(BUS_PARTITIONS)}])
    bus.put([bus.gateway_record(body_of(one), partition=number) for number, one in enumerate(behind)])
    _wait_done(world, [true, *behind])
    rows = world.rows('SELECT partition, "offset", code FROM onceflow.quarantine WHERE topic = %s', BUS)
    kept = {(number, offset): code for number, offset, code in rows}
    wrong = {place: (kept.get(place), codes) for place, codes in wanted.items() if kept.get(place) not in codes}
    assert not wrong, f"kept with another code than expected, or not at all: {wrong}"
    touched = world.value("SELECT count(*) FROM onceflow.inbox WHERE event_id = %s", wrong_topic["id"])
    assert touched == 0, "a record of the wrong topic touched a marker"
    wait_processed(world)
    return fired(planted, f"{len(planted)} strange records kept, {1 + len(behind)} events behind them done")
