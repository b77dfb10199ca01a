"""The count of the third act: who waited, in which order they went on, and what a replay would do.

Rule: pure.  The order is read from the outcomes of one lane, where nobody can have written it afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from onceflow.demo.ledgers import OutcomeEntry
from onceflow.demo.poison import POISONED, Mended, Poison


@dataclass(frozen=True, slots=True)
class PoisonSums:
    """``redriven`` are the events that waited and went on, the poisoned one too; ``replay_runs`` is what a replay would run."""

    redriven: int
    replay_runs: int
    wrong: tuple[str, ...]


def count_poison(poison: Poison, mended: Mended, *, written: Iterable[OutcomeEntry]) -> PoisonSums:
    """Hold what the act saw, and the outcomes, against the promise.

    Args:
        poison: what was sent.
        mended: what was seen while the handler was broken, and the answer of the dry-run replay.
        written: the outcomes' rows.
    """
    waited = [event.id for event in poison.changes[POISONED:]]
    return PoisonSums(
        redriven=sum(1 for event_id in waited if mended.states.get(event_id) in {"quarantined", "parked"}),
        replay_runs=mended.replay_runs,
        wrong=tuple(_wrong(poison, mended, written)),
    )


def _wrong(poison: Poison, mended: Mended, written: Iterable[OutcomeEntry]) -> Iterator[str]:
    expected = {event.id: "processed" for event in poison.events}
    expected |= {event.id: "parked" for event in poison.changes[POISONED:]} | {poison.poisoned.id: "quarantined"}
    for event_id, state in expected.items():
        if mended.states.get(event_id) != state:
            yield f"{event_id} was {mended.states.get(event_id)} while its handler was broken, and should have been {state}"
    rows = sorted((row.seq, row.cause) for row in written if row.key == poison.poisoned.object_id)
    order = [cause.rpartition("/")[2] for _, cause in rows]
    if order != [event.id for event in poison.changes]:
        yield f"the changes of one product went out in the order {order}"
    if mended.replay_runs:
        yield f"a replay of the whole topic would run {mended.replay_runs} events again"
