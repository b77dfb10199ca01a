"""How much each group does: in a real run, and in the quick one that only shows that everything still works.

Rule: a side runs for about ``seconds`` or through ``records``, whichever ends first, so that slow sides stay bounded.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of one run."""

    rounds: int
    seconds: float
    warm_up_seconds: float
    records: int
    database_records: int
    outcomes: int
    connections: int
    end_to_end_seconds: float
    end_to_end_per_second: float
    memory_burst: int
    memory_warm_up: int
    memory_events: int
    memory_per_second: float
    operations: int
    requests: int
    requests_per_second: float
    markers: int
    verify_events: int
    missed_events: int


FULL = Sizes(
    rounds=3,
    seconds=5.0,
    warm_up_seconds=1.0,
    records=30_000,
    database_records=40_000,
    outcomes=150_000,
    connections=128,
    end_to_end_seconds=20.0,
    end_to_end_per_second=200.0,
    memory_burst=30_000,
    memory_warm_up=100_000,
    memory_events=150_000,
    memory_per_second=2_500.0,
    operations=2_000,
    requests=200,
    requests_per_second=20.0,
    markers=10_000_000,
    verify_events=200_000,
    missed_events=10_000,
)
QUICK = Sizes(
    rounds=1,
    seconds=0.3,
    warm_up_seconds=0.1,
    records=300,
    database_records=600,
    outcomes=600,
    connections=8,
    end_to_end_seconds=0.5,
    end_to_end_per_second=50.0,
    memory_burst=60,
    memory_warm_up=60,
    memory_events=240,
    memory_per_second=300.0,
    operations=40,
    requests=10,
    requests_per_second=20.0,
    markers=5_000,
    verify_events=600,
    missed_events=150,
)
