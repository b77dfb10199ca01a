"""What a figure is, and what was measured for it.

Rule: a figure's name and goal are contracts of ``bench/latest.json``; a figure without a goal is reported only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Unit = Literal["x", "ms", "MiB", "/s"]


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of the table.

    Attributes:
        name: its key in ``bench/latest.json``.
        says: what is compared with what, for the table.
        goal: the least good value (the largest where ``at_most``); None when it is only reported.
        at_most: smaller is better.
        unit: ``x`` for a ratio.
    """

    name: str
    says: str
    goal: float | None = None
    at_most: bool = False
    unit: Unit = "x"

    def is_met(self, value: float) -> bool | None:
        """Tell whether a value meets the goal; None without a goal."""
        if self.goal is None:
            return None
        return value <= self.goal if self.at_most else value >= self.goal


@dataclass(frozen=True, slots=True)
class Measured:
    """A figure's value, and the rates and notes that it rests on.

    Attributes:
        rates: side -> one number per round, in ``unit`` of the side (mostly events per second).
        notes: further numbers, such as the share of all cores that the load took.
    """

    figure: Figure
    value: float
    rates: Mapping[str, list[float]] = field(default_factory=dict)
    notes: Mapping[str, float] = field(default_factory=dict)
