"""Runs soaks: for each fault the load, the fault, the healing, the settling; for each soak the checker.

Rule: whatever goes wrong is told as a result and never ends the run; a world that cannot be healed ends its soak, and
what could not be run there counts as failed.
"""

from __future__ import annotations

import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.fault import NotFired
from tests.chaos.schedule import Soak, Step
from tests.chaos.world import SETTLE_SECONDS, World
from tests.checker.judge import Counts

AFTER_ANSWERS = 15
NEVER_QUIET = "I8:"
STANDS_SECONDS = 4.0
"""Where something stands still for good, nobody waits for it to move."""
TRACE_LINES = 14

Say = Callable[[str], None]
MakeWorld = Callable[[str, Path, int], World]


@dataclass(frozen=True, slots=True)
class Done:
    """What became of one fault.  ``result``: ok, not fired, broken, not settled, not run."""

    run: int
    soak: str
    id: str
    what: str
    result: str
    evidence: str
    seconds: float
    settled_seconds: float


@dataclass(slots=True)
class Judged:
    """What the checker said of one soak."""

    run: int
    soak: str
    seed: int
    counts: Counts | None = None
    violations: list[str] = field(default_factory=list)
    seconds: float = 0.0


@dataclass(slots=True)
class Results:
    """Of all soaks; ``seen``: the failpoints that were passed."""

    done: list[Done] = field(default_factory=list)
    judged: list[Judged] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)

    @property
    def good(self) -> bool:
        """Every fault fired and nothing is broken."""
        return all(one.result == "ok" for one in self.done) and not any(one.violations for one in self.judged)


def merged(parts: Sequence[Results]) -> Results:
    """Return the results of several soaks as one."""
    return Results(
        done=[one for part in parts for one in part.done],
        judged=[one for part in parts for one in part.judged],
        seen={name for part in parts for name in part.seen},
    )


def run_soaks(soaks: Sequence[Soak], *, make_world: MakeWorld, say: Say, keep: Path | None = None) -> Results:
    """Run all soaks, one world after another.

    Args:
        soaks: the schedule.
        make_world: returns the world of a soak, not started, from its name, a folder and a seed.
        say: called with lines for people.
        keep: worlds are kept in this folder; else only those that failed stay, in the system's temporary folder.
    """
    results = Results()
    for soak in soaks:
        if keep is not None:
            keep.mkdir(parents=True, exist_ok=True)
        parent = Path(tempfile.mkdtemp(prefix="chaos-", dir=keep))
        parent.chmod(0o755)
        folder = parent / soak.name
        say(f"run {soak.run}, soak {soak.name}: {len(soak.steps)} faults, world in {folder}")
        judged = _run_soak(soak, make_world(soak.name, folder, soak.seed), results=results, say=say)
        results.judged.append(judged)
        failed = judged.violations or any(
            one.result != "ok" for one in results.done if (one.run, one.soak) == (soak.run, soak.name)
        )
        if not failed and keep is None:
            _remove(parent)
    return results


def _remove(folder: Path) -> None:
    import shutil  # noqa: PLC0415 - only here

    shutil.rmtree(folder, ignore_errors=True)


def _run_soak(soak: Soak, world: World, *, results: Results, say: Say) -> Judged:
    began = time.monotonic()
    judged = Judged(soak.run, soak.name, soak.seed)
    left = list(soak.steps)
    try:
        world.start()
        say(f"  world ready after {time.monotonic() - began:.1f} s")
        while left:
            one = _run_step(soak, left.pop(0), world)
            results.done.append(one)
            say(
                f"  {one.id:32} {one.result:11} {one.seconds:5.1f} s, settled {one.settled_seconds:4.1f} s  {one.evidence}"
            )
            if one.result in ("broken world", "not settled"):
                break
        _judge(soak, world, judged)
    except Exception as error:  # noqa: BLE001 - told as a violation
        judged.violations.append(_told(error))
    finally:
        results.seen |= {name for part in [*world.parts.values(), *world.extras] for name in part.seen()}
        _stop(world, judged)
    results.done += [
        Done(soak.run, soak.name, step.fault.id, step.fault.what, "not run", "", 0.0, 0.0) for step in left
    ]
    judged.seconds = time.monotonic() - began
    for violation in judged.violations[:25]:
        say(f"  VIOLATION {violation}")
    say(f"  judged: {judged.counts}, {len(judged.violations)} violations, {judged.seconds:.0f} s in all")
    return judged


def _stop(world: World, judged: Judged) -> None:
    try:
        world.stop()
    except Exception as error:  # noqa: BLE001 - told as a violation
        judged.violations.append(f"the world could not be stopped: {_told(error)}")


def _judge(soak: Soak, world: World, judged: Judged) -> None:
    broken = frozenset[str]().union(*(step.fault.breaks for step in soak.steps))
    verdict = world.verdict(STANDS_SECONDS if NEVER_QUIET in broken else SETTLE_SECONDS)
    judged.counts = verdict.counts
    judged.violations += [text for text in map(str, verdict.violations) if not text.startswith(tuple(broken))]


def _run_step(soak: Soak, step: Step, world: World) -> Done:
    fault = step.fault
    result, evidence = "ok", ""
    began = time.monotonic()
    ended = began
    try:
        if fault.quiet:
            evidence = fault.act(world, step.dice())
            world.heal()
        else:
            with world.loaded() as load:
                evidence = fault.act(world, step.dice())
                world.heal()
                load.wait_for_answers(AFTER_ANSWERS)
        ended = time.monotonic()
        if NEVER_QUIET not in fault.breaks and (why := world.settle()) is not None:
            result, evidence = "not settled", f"{evidence}; {why}"
        evidence = "; ".join(filter(None, (world.proved(), evidence)))
    except Exception as error:  # noqa: BLE001 - told as a result
        result = "not fired" if isinstance(error, NotFired) else "broken"
        evidence = _told(error) + _ended(world)
        ended = time.monotonic()
        result = _heal_after(world, result, wait=NEVER_QUIET not in fault.breaks)
    settled = time.monotonic() - ended
    return Done(soak.run, soak.name, fault.id, fault.what, result, evidence, ended - began, settled)


def _heal_after(world: World, result: str, *, wait: bool) -> str:
    """A fault that failed half-way leaves much to heal; the soak goes on when that works."""
    try:
        world.heal()
        if wait:
            world.settle()
    except Exception:  # noqa: BLE001 - told as a result
        return "broken world"
    return result


def _ended(world: World) -> str:
    """A part that is gone explains most of what was not reached; after the healing it runs again."""
    gone = [f"{name} ended with {part.exit_code}" for name, part in world.parts.items() if part.exit_code is not None]
    return "".join(f"; {one}" for one in gone)


def _told(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "/tests/" in frame.filename] or frames
    places = " < ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in reversed(ours[-4:]))
    text = str(error).strip().splitlines()[:TRACE_LINES]
    return f"{type(error).__name__}: {' | '.join(text)} ({places})"
