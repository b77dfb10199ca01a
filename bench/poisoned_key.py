"""One poisoned order key among a thousand: what the events of all other keys notice of it.

Rule: both sides send the same webhooks at the same times over a road of their own and count the same events, all but those of that
one key; only the handler differs.
"""

from __future__ import annotations

import sys

from bench.end_to_end import WARM_UP_EVENTS, measure_latencies
from bench.figures import Figure, Measured
from bench.measuring import Side, alternate, median_ratio, percentile
from bench.stage import Stage
from bench.whole_road import WholeRoad, whole_road

KEYS = 1_000
PERCENT = 99
FIGURES = (
    Figure(
        "poisoned_key_others_p99",
        "p99 of 999 keys, the 1,000th waits for a person / no poisoned key",
        1.5,
        at_most=True,
    ),
    Figure("retried_key_others_p99", "p99 of 999 keys, the 1,000th is tried again and again / none", 1.5, at_most=True),
)
_HANDLERS = {"none": "plain", "poisoned": "poisoned", "retried": "away"}


def measure(stage: Stage) -> list[Measured]:
    """Measure all figures of this module."""
    sides = {name: _side(stage, f"bench.handlers:{handlers}") for name, handlers in _HANDLERS.items()}
    found = alternate(sides, rounds=stage.sizes.rounds, say=stage.say, unit=" ms")
    return [
        Measured(figure, median_ratio(found[side], found["none"]), {side: found[side], "none": found["none"]})
        for figure, side in zip(FIGURES, ("poisoned", "retried"), strict=True)
    ]


def _side(stage: Stage, handlers: str) -> Side:
    per_second = stage.sizes.end_to_end_per_second
    events = max(20, int(stage.sizes.end_to_end_seconds * per_second))

    def latencies(running: WholeRoad, *, series: str, count: int) -> list[float]:
        told = {"events": count, "per_second": per_second, "series": series, "keys": KEYS}
        left_out = {f"evt_{series}{number:08d}" for number in range(0, count, KEYS)}
        return measure_latencies(stage, running, told, left_out=left_out)[0]

    def run() -> float:
        with whole_road(stage, handlers=handlers) as running:
            # The key is poisoned from its first event on: what is measured is the time after it.
            latencies(running, series="W", count=min(WARM_UP_EVENTS, events))
            return percentile(latencies(running, series="E", count=events), PERCENT)

    return run


if __name__ == "__main__":
    from bench.run import main

    sys.exit(main(sys.argv[1:], only=("poisoned_key",)))
