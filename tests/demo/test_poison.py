"""The third act's events and its count, tried without a system; test_run.py plays it on a real one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from onceflow.demo.ledgers import OutcomeEntry
from onceflow.demo.poison import Mended, plan_poison
from onceflow.demo.poison_count import count_poison

POISON = plan_poison(seed=7, now=1_800_000_000)
FIRST, SECOND, POISONED, FOURTH, FIFTH = (change.id for change in POISON.changes)
SEEN = {
    FIRST: "processed",
    SECOND: "processed",
    POISONED: "quarantined",
    FOURTH: "parked",
    FIFTH: "parked",
    POISON.neighbour.id: "processed",
}


def rows(*event_ids: str) -> list[OutcomeEntry]:
    return [
        OutcomeEntry(2, seq, f"ce-{seq}", "product.changed", POISON.poisoned.object_id, f"event:a/test/{name}", b"")
        for seq, name in enumerate(event_ids, start=10)
    ]


IN_ORDER = rows(FIRST, SECOND, POISONED, FOURTH, FIFTH)


def test_what_was_promised_is_counted() -> None:
    sums = count_poison(POISON, Mended(SEEN, replay_runs=0), written=reversed(IN_ORDER))
    assert (sums.redriven, sums.replay_runs, sums.wrong) == (3, 0, ())


@pytest.mark.parametrize(
    ("event_id", "state"), [(FOURTH, "processed"), (POISONED, "processed"), (POISON.neighbour.id, "parked")]
)
def test_wrong_state_while_the_handler_was_broken_is_told(event_id: str, state: str) -> None:
    sums = count_poison(POISON, Mended(SEEN | {event_id: state}, replay_runs=0), written=IN_ORDER)
    assert len(sums.wrong) == 1
    assert sums.wrong[0].startswith(f"{event_id} was {state}")


@pytest.mark.parametrize(
    "written",
    [rows(FIRST, SECOND, FOURTH, POISONED, FIFTH), rows(FIRST, SECOND, POISONED, FOURTH), [*IN_ORDER, *IN_ORDER]],
)
def test_another_order_is_told(written: list[OutcomeEntry]) -> None:
    assert len(count_poison(POISON, Mended(SEEN, replay_runs=0), written=written).wrong) == 1


def test_replay_that_would_run_anything_is_told() -> None:
    sums = count_poison(POISON, Mended(SEEN, replay_runs=2), written=IN_ORDER)
    assert sums.wrong == ("a replay of the whole topic would run 2 events again",)


def test_other_products_are_not_counted() -> None:
    other = replace(IN_ORDER[0], key="prod_other")
    assert count_poison(POISON, Mended(SEEN, replay_runs=0), written=[*IN_ORDER, other]).wrong == ()
