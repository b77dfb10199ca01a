"""The schedule follows from the seed alone, and every row of the catalogue that is promised has a fault."""

from __future__ import annotations

import pytest

from tests.chaos.catalogue import all_faults
from tests.chaos.fault import Fault
from tests.chaos.schedule import choose, schedule

PROMISED = (
    [f"P{number}" for number in range(1, 12)]
    + [f"K{number}" for number in range(1, 17)]
    + [f"D{number}" for number in range(1, 14)]
    + [f"O{number}" for number in range(1, 10)]
    + ["T1", "T2", *(f"G{number}" for number in range(1, 7))]
    + [f"S{number}" for number in (1, 2, 3, 4, 5, 9, 10)]
    + [f"X{number}" for number in range(1, 17)]
)


def nothing(*_: object) -> str:
    return "nothing"


FAULTS = [
    Fault("A1/one", "", "a", nothing),
    Fault("A1/two", "", "a", nothing),
    Fault("A2", "", "a", nothing, last=True),
    Fault("A3", "", "a", nothing),
    Fault("B1", "", "b", nothing),
]


def told(seed: int, runs: int = 1) -> list[tuple[int, str, int, list[tuple[str, str]]]]:
    return [
        (soak.run, soak.name, soak.seed, [(step.fault.id, step.dice_seed) for step in soak.steps])
        for soak in schedule(FAULTS, seed=seed, runs=runs)
    ]


def test_every_promised_row_has_a_fault() -> None:
    assert set(PROMISED) <= {one.row for one in all_faults()}


def test_same_seed_same_schedule() -> None:
    assert told(7, runs=3) == told(7, runs=3)
    assert len({str(told(seed)) for seed in range(20)}) > 5


def test_runs_differ_and_hold_the_same_faults() -> None:
    first, second = told(7, runs=2)[0], told(7, runs=2)[2]
    assert first[0:2] == (1, "a")
    assert second[0:2] == (2, "a")
    assert {name for name, _ in first[3]} == {name for name, _ in second[3]}
    assert first[2] != second[2]


def test_variants_take_turns() -> None:
    variants = [Fault(f"C1/{number}", "", "c", nothing, every=3) for number in range(6)]
    runs = [{step.fault.id for step in soak.steps} for soak in schedule(variants, seed=1, runs=3)]
    assert [len(run) for run in runs] == [2, 2, 2]
    assert set().union(*runs) == {one.id for one in variants}
    assert len(schedule(choose(variants, ["C1"]), seed=1, runs=1)[0].steps) == 6


def test_last_is_last() -> None:
    assert all(soak[3][-1][0] == "A2" for seed in range(20) for soak in told(seed) if soak[1] == "a")


def test_dice_of_a_fault_do_not_depend_on_the_others() -> None:
    alone = schedule([FAULTS[0]], seed=7, runs=1)[0].steps[0]
    among = next(step for soak in schedule(FAULTS, seed=7, runs=1) for step in soak.steps if step.fault.id == "A1/one")
    assert alone.dice().random() == among.dice().random()


@pytest.mark.parametrize(
    ("only", "ids"),
    [
        (["A1"], ["A1/one", "A1/two"]),
        (["A1/two", "b"], ["A1/two", "B1"]),
        (["*/o*"], ["A1/one"]),
        ([], ["A1/one", "A1/two", "A2", "A3", "B1"]),
    ],
)
def test_choosing(only: list[str], ids: list[str]) -> None:
    assert [one.id for one in choose(FAULTS, only)] == ids


def test_unknown_name_is_refused() -> None:
    with pytest.raises(ValueError, match="no fault is called Z9"):
        choose(FAULTS, ["Z9"])
