"""T1, T2, G6: the database's clock jumps, processes stand still for twice a lease everywhere, nothing grows.

Rule: leases follow the database's clock and survive its jumps without two relays publishing; what was held is fenced.
A Python process cannot be given another clock by libfaketime (its waits break); the database can.
"""

from __future__ import annotations

import threading
from random import Random

from tests.chaos.fault import fault, fired
from tests.chaos.part import Part
from tests.chaos.points import AT_START, POINTS
from tests.chaos.waits import TAKE_OVER_SECONDS, lease_token, wait_owners, wait_processed, wait_published
from tests.chaos.world import LEASE_SECONDS, World

SHIFTS = ("+1h", "+25h", "-1h")
SESSION_SECONDS = 3.0
WINDOWS = 4
WINDOW_ANSWERS = 1_500
BACKLOG_ANSWERS = 4_000
GROWTH_BYTES_MAX = 12 * 1024 * 1024
DESCRIPTORS_MAX = 12


def _register_shifts() -> None:
    for shift in SHIFTS:

        def act(world: World, dice: Random, shift: str = shift) -> str:
            world.join("relay")
            token = lease_token(world)
            before = world.value("SELECT clock_timestamp()")
            evidence = shift_clock(world, shift)
            wait_published(world, 40, limit_seconds=TAKE_OVER_SECONDS)
            moved = world.value("SELECT clock_timestamp()") - before
            shift_clock(world, "+0")
            wait_published(world, 40, limit_seconds=TAKE_OVER_SECONDS)
            return f"{evidence}; the database's clock moved by {moved}, token {token} -> {lease_token(world)}"

        fault(f"T1/{shift}", f"database clock {shift}, two relays", soak="clock")(act)


_register_shifts()


@fault("T1/back", "database clock a day ahead and back, then the relay dies", soak="clock")
def clock_goes_back(world: World, dice: Random) -> str:
    """The dead relay's lease seems to last for a day more; nobody waits for it."""
    evidence = shift_clock(world, "+25h")
    wait_published(world, 40, limit_seconds=TAKE_OVER_SECONDS)
    world.parts["relay"].freeze()
    left = world.value("SELECT lease_until FROM onceflow.lease")
    shift_clock(world, "+0")
    world.parts["relay"].kill()
    left -= world.value("SELECT clock_timestamp()")
    world.restart("relay")
    wait_published(world, 40, limit_seconds=TAKE_OVER_SECONDS)
    return f"{evidence} and back; the dead relay's lease had {left} left"


def shift_clock(world: World, shift: str) -> str:
    """Shift the clock of the server, where libfaketime is there; else move the lease as such a clock would."""
    if world.clock_file is not None:
        world.clock_file.write_text(shift)
        return f"libfaketime {shift}"
    hours = {"+1h": -1, "+25h": -25, "-1h": 1}.get(shift, 0)
    world.rows("UPDATE onceflow.lease SET lease_until = lease_until + make_interval(hours => %s)", hours)
    return f"lease moved by {hours} h (libfaketime is not installed)"


def _register_pauses() -> None:
    for part, seconds in (("relay", 2.0 * LEASE_SECONDS), ("processor", 2.0 * SESSION_SECONDS)):
        for place in POINTS[part]:
            point = f"{part}.{place}"

            def act(world: World, dice: Random, part: str = part, seconds: float = seconds, point: str = point) -> str:
                return _pause(world, dice, part=part, seconds=seconds, point=point)

            what = f"{part} stands still for {seconds:.0f} s at {place}"
            fault(f"T2/{part}_{place}", what, soak="pauses", points=(point,), every=5)(act)


def _pause(world: World, dice: Random, *, part: str, seconds: float, point: str) -> str:
    """Stop a process by SIGSTOP at a place, let another take over, then let it go on."""
    process, other = world.parts[part], world.join(part)
    if part == "processor":
        wait_owners(world, 2)
    elif point not in AT_START and not _holds_lease(world, process):
        process, other = other, process
    if point in AT_START:
        process.stop()
        process.arm(point, "stop")
        process.start()
        if part == "relay":
            # It waits for the lease: who holds it stands still for a moment, so that it passes the place.
            other.freeze()
            process.wait_fired()
            other.thaw()
    else:
        process.arm(point, "stop", at=dice.randrange(1, 5))
    firing = process.wait_fired()
    process.wait_stopped()
    threading.Event().wait(seconds)
    wait_processed(world)
    process.thaw()
    wait_published(world)
    assert process.alive
    assert other.alive
    return f"{firing}, for {seconds:.0f} s"


def _holds_lease(world: World, process: Part) -> bool:
    return f":{process.pid}:" in str(world.value("SELECT owner FROM onceflow.lease"))


_register_pauses()


@fault("G6", "memory, descriptors and threads over thousands of events", soak="growth", quiet=True)
def growth(world: World, dice: Random) -> str:
    """After a warm-up nothing grows from window to window.

    The warm-up is a backlog: the largest batches a processor ever takes come first, or the first slow moment of the
    machine would look like a leak.
    """
    samples: list[dict[str, tuple[int, int, int]]] = []
    processor = world.parts["processor"]
    with world.loaded(2_000.0) as load:
        processor.stop()
        load.wait_for_answers(BACKLOG_ANSWERS)
        processor.start()
        wait_published(world)
        for _ in range(WINDOWS + 1):
            load.wait_for_answers(WINDOW_ANSWERS)
            samples.append(
                {
                    name: (part.resident_bytes(), part.descriptors(), part.threads())
                    for name, part in world.parts.items()
                }
            )
    grown = {}
    for name in world.parts:
        first, last = samples[1][name], samples[-1][name]
        grown[name] = (
            f"{(last[0] - first[0]) / 1024 / 1024:+.1f} MiB, {last[1] - first[1]:+d} files, {last[2] - first[2]:+d} threads"
        )
        assert last[0] - first[0] < GROWTH_BYTES_MAX, (name, samples)
        assert last[1] - first[1] <= DESCRIPTORS_MAX, (name, samples)
        assert last[2] - first[2] <= 2, (name, samples)
    return fired(samples, f"{WINDOWS} windows of {WINDOW_ANSWERS} events: {grown}")
