"""Rounds that alternate, and what is made of them.

Rule: two sides are compared only within one run, taking turns; the order turns round in every second round, so that
a machine that gets slower favours nobody.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations

Side = Callable[[], float]
"""Runs one side once and returns its rate, or whatever else the sides are compared by."""


def alternate(
    sides: Mapping[str, Side], *, rounds: int, say: Callable[[str], None] = lambda _line: None, unit: str = "/s"
) -> dict[str, list[float]]:
    """Run every side once per round; returns side -> rate of each round.

    Args:
        sides: by name, in the order of the first round.
        rounds: at least 1; the figures of a real run need 3.
        say: called with one line per side and round.
        unit: of what a side returns.
    """
    rates: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(rounds):
        order = list(sides) if number % 2 == 0 else list(sides)[::-1]
        for name in order:
            rate = sides[name]()
            rates[name].append(rate)
            say(f"  round {number + 1}/{rounds}  {name:<28} {rate:>12,.0f}{unit}")
    return rates


def median_ratio(over: Sequence[float], under: Sequence[float]) -> float:
    """Return the median of the ratios of each round."""
    return statistics.median(one / other for one, other in zip(over, under, strict=True))


def median_slope(points: Sequence[tuple[float, float]]) -> float:
    """Return the median of the slopes between all pairs of points (Theil and Sen): one spike moves nothing.

    Args:
        points: (x, y) with rising x, at least two.
    """
    return statistics.median((b[1] - a[1]) / (b[0] - a[0]) for a, b in combinations(points, 2) if b[0] > a[0])


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the value below which ``percent`` of the values lie (nearest rank)."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, round(percent / 100 * len(ordered)) - 1))]
