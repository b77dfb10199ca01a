"""What a rerun found, event by event, and how it is counted.

Rule: no value of an outcome stands here, since it may be personal; ids, types and keys do.  Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from onceflow_processor.admission import Fault
from onceflow_processor.operations.request import Asked
from onceflow_processor.replay.revisions import Change, Compared, Known
from onceflow_schemas.identity import Identity

DETAILS_MAX: Final = 1_000
"""Lines that are shown; further ones are only counted."""
DETAIL_CHARACTERS_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class EventRerun:
    """One event that ran again; ``held``: it asks for new operations, which were not allowed."""

    identity: Identity
    event_type: str
    compared: Sequence[Compared] = ()
    gone: Sequence[Known] = ()
    operations: Sequence[tuple[str, Asked]] = ()
    fault: Fault | None = None
    held: bool = False
    passed_over: str | None = None

    def counts(self) -> Counter[str]:
        """Return what it adds to the counts of its run."""
        if self.passed_over is not None:
            return Counter([self.passed_over])
        found: Counter[str] = Counter()
        if not self.held:
            # Of a held event nothing is written, so that none of its outcomes counts as changed.
            found.update(one.change.value for one in self.compared)
            found[Change.GONE.value] += len(self.gone)
        found.update(f"operations_{kind}" for kind, _ in self.operations)
        found["rerun"] += 1
        found["failed"] += self.fault is not None
        found["held"] += self.held
        return found


@dataclass(slots=True)
class RerunReport:
    """The lines of a rerun that a person should see; ``left`` counts those that did not fit."""

    lines: list[dict[str, Any]] = field(default_factory=list)
    left: int = 0

    def add(self, rerun: EventRerun) -> None:
        """Take what was found of an event."""
        event = {"event": str(rerun.identity), "event_type": rerun.event_type}
        if not rerun.held:
            for one in rerun.compared:
                if one.change is not Change.UNCHANGED:
                    self._line(event, one.change.value, one.outcome, revision=one.outcome.revision)
            for gone in rerun.gone:
                self._line(event, Change.GONE.value, gone, revision=None)
        for kind, asked in rerun.operations:
            self._take(
                {
                    **event,
                    "found": f"operation_{kind}",
                    "operation_id": str(asked.id),
                    "effect": asked.effect,
                    "subject": asked.subject,
                }
            )
        if rerun.fault is not None:
            detail = rerun.fault.detail.partition(":")[0][:DETAIL_CHARACTERS_MAX]
            self._take(
                {**event, "found": "failed", "handler": rerun.fault.handler, "code": rerun.fault.code, "detail": detail}
            )
        if rerun.held:
            self._take({**event, "found": "held", "detail": "it asks for new operations: --allow-operations"})

    def _line(self, event: dict[str, str], found: str, outcome: Any, *, revision: int | None) -> None:
        named = {"outcome_id": str(outcome.outcome_id), "type": outcome.type, "key": outcome.key, "revision": revision}
        self._take({**event, "found": found, **named})

    def _take(self, line: dict[str, Any]) -> None:
        if len(self.lines) < DETAILS_MAX:
            self.lines.append(line)
        else:
            self.left += 1
