"""Which faults come in which order, and each one's dice: a function of the seed alone.

Rule: pure.  The same seed and the same choice give the same schedule on every machine; the dice of a fault depend on
seed, run and its id, so that a fault run alone by ``--only`` is the same fault.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from random import Random

from tests.chaos.fault import Fault


@dataclass(frozen=True, slots=True)
class Step:
    """One fault with its own dice."""

    fault: Fault
    dice_seed: str

    def dice(self) -> Random:
        """The dice, from their first throw."""
        return Random(self.dice_seed)


@dataclass(frozen=True, slots=True)
class Soak:
    """Faults that share one world."""

    run: int
    name: str
    seed: int
    steps: tuple[Step, ...]


def choose(faults: Iterable[Fault], only: Sequence[str]) -> list[Fault]:
    """Return the faults that are meant: by id, row of the catalogue, pattern, or soak; all when nothing is named.

    What is named is in every run, whatever its turn.

    Raises:
        ValueError: a name means nothing.
    """
    everything = list(faults)
    if not only:
        return everything
    chosen: dict[str, Fault] = {}
    for name in only:
        hits = [one for one in everything if name in (one.id, one.row, one.soak) or fnmatchcase(one.id, name)]
        if not hits:
            raise ValueError(f"no fault is called {name}")
        chosen |= {one.id: one for one in hits}
    return [replace(one, every=1) for one in everything if one.id in chosen]


def _in_turn(faults: Sequence[Fault], run: int) -> list[Fault]:
    """Return the faults of one run: variants with ``every`` above 1 take turns, so that many runs cover all of them."""
    found: list[Fault] = []
    turns: dict[tuple[str, int], int] = {}
    for one in faults:
        turn = turns[one.row, one.every] = turns.get((one.row, one.every), 0) + 1
        if (turn + run) % one.every == 0:
            found.append(one)
    return found


def schedule(faults: Sequence[Fault], *, seed: int, runs: int) -> list[Soak]:
    """Return the soaks of all runs; within a soak the order is shuffled, and who must be last is last."""
    soaks = []
    for run in range(1, runs + 1):
        by_soak: dict[str, list[Fault]] = {}
        for one in _in_turn(faults, run):
            by_soak.setdefault(one.soak, []).append(one)
        for name, members in by_soak.items():
            order = sorted(members, key=lambda one: one.id)
            Random(f"{seed}/{run}/{name}").shuffle(order)
            order.sort(key=lambda one: one.last)
            steps = tuple(Step(one, f"{seed}/{run}/{one.id}") for one in order)
            soaks.append(Soak(run, name, Random(f"{seed}/{run}/{name}/load").randrange(10**9), steps))
    return soaks
