"""What a replay has counted: records by fate and by type, and what running them did.

Rule: it is plain numbers and texts, since the row of a run keeps it and a run that goes on adds to it.  Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from onceflow_processor.replay.fates import Fate, Judged

TYPES_MAX: Final = 1_000
"""Types that are counted apart; types come from the outside, so what is kept of them is bounded."""
OTHER_TYPES: Final = "(other types)"
NO_TYPE: Final = "(no type)"


@dataclass(slots=True)
class Tally:
    """Counts; ``done`` are those of what was run, by name."""

    records: int = 0
    passed_over: int = 0
    fates: dict[str, int] = field(default_factory=dict)
    codes: dict[str, int] = field(default_factory=dict)
    types: dict[str, dict[str, int]] = field(default_factory=dict)
    done: dict[str, int] = field(default_factory=dict)

    def count(self, judged: Iterable[Judged]) -> None:
        """Count records by their fate."""
        for item, fate, code in judged:
            _add(self.fates, fate.value)
            if code is not None:
                _add(self.codes, code)
            event_type = NO_TYPE if item.event is None else item.event.type
            if event_type not in self.types and len(self.types) >= TYPES_MAX:
                event_type = OTHER_TYPES
            _add(self.types.setdefault(event_type, {}), fate.value)

    def note(self, counts: Mapping[str, int]) -> None:
        """Add what running did."""
        for name, count in counts.items():
            if count:
                _add(self.done, name, count)

    def of(self, fate: Fate) -> int:
        """Return how many records have a fate."""
        return self.fates.get(fate.value, 0)

    def as_json(self) -> dict[str, Any]:
        """Return it as plain JSON; ``tally_of`` reads it."""
        return {
            "records": self.records,
            "passed_over": self.passed_over,
            "fates": self.fates,
            "codes": self.codes,
            "types": self.types,
            "done": self.done,
        }


def tally_of(stored: Mapping[str, Any]) -> Tally:
    """Return what ``Tally.as_json`` wrote."""
    return Tally(**stored)


def _add(counts: dict[str, int], name: str, count: int = 1) -> None:
    counts[name] = counts.get(name, 0) + count
