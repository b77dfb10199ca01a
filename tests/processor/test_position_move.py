"""What setting a position does with records: read again, skipped, lost."""

from __future__ import annotations

import pytest

from onceflow_processor.position import LogBounds
from onceflow_processor.position_move import Counted, Kind, Move, NotPossible, effect, loss, plan_move

BOUNDS = LogBounds(10, 20)


@pytest.mark.parametrize(
    ("present", "target", "kind", "first", "end", "gone", "held"),
    [
        (15, 12, "again", 12, 15, 0, (12, 15)),
        (15, 18, "skip", 15, 18, 0, (15, 18)),
        (15, 15, "same", 15, 15, 0, (15, 15)),
        (15, 20, "skip", 15, 20, 0, (15, 20)),
        # Retention took 4 to 9 unread.
        (4, 10, "skip", 4, 10, 6, (10, 10)),
        (4, 12, "skip", 4, 12, 6, (10, 12)),
        # The tail from 20 on was lost after it was read.
        (25, 20, "again", 20, 25, 5, (20, 20)),
        (25, 10, "again", 10, 25, 5, (10, 20)),
        # A topic in the place of another one.
        (None, 10, "begin", 0, 10, 10, (10, 10)),
        (None, 13, "begin", 0, 13, 10, (10, 13)),
    ],
)
def test_the_range_of_a_move(
    present: int | None, target: int, *, kind: Kind, first: int, end: int, gone: int, held: tuple[int, int]
) -> None:
    move = plan_move(present, BOUNDS, target=target)
    assert move == Move(kind, target, first, end, gone, BOUNDS)
    assert isinstance(move, Move)
    assert move.held == held


@pytest.mark.parametrize("target", [9, 21])
def test_what_the_log_does_not_hold_cannot_be_read(target: int) -> None:
    move = plan_move(15, BOUNDS, target=target)
    assert isinstance(move, NotPossible)
    assert "begins at 10 and ends at 20" in move.reason


def planned(present: int | None, target: int, bounds: LogBounds = BOUNDS) -> Move:
    move = plan_move(present, bounds, target=target)
    assert isinstance(move, Move)
    return move


@pytest.mark.parametrize(
    ("present", "target", "counted", "lost"),
    [
        (15, 12, Counted(3, 0), None),
        (15, 15, Counted(), None),
        (15, 18, Counted(3, 3), None),
        (15, 18, Counted(3, 1), "2 records without a state"),
        (15, 18, Counted(2, 2, complete=False), "records that were not counted, since there are more than 2"),
        (4, 10, Counted(), "6 offsets before 10 that the log does not hold any more"),
        (4, 12, Counted(2, 0), "6 offsets before 10 that the log does not hold any more and 2 records without a state"),
        (None, 10, Counted(), "10 offsets before 10 that the log does not hold any more"),
    ],
)
def test_what_would_be_lost(present: int | None, target: int, *, counted: Counted, lost: str | None) -> None:
    assert loss(planned(present, target), counted) == lost


def test_a_new_topic_read_from_its_beginning_loses_nothing() -> None:
    move = planned(None, 0, LogBounds(0, 5))
    assert loss(move, Counted()) is None
    assert move.ahead == (0, 5)
    read = "the partition is read from 0 on, nothing is skipped; from 0 on there are"
    assert effect(move, Counted(), ahead=Counted(5, 1)) == f"{read} 5 records, 1 of them with a state"
    assert effect(move, Counted(), ahead=Counted()) == f"{read} no records"
    many = effect(move, Counted(), ahead=Counted(4, 4, complete=False))
    assert many == f"{read} more than 4 records, 4 of them with a state"


def test_a_new_topic_begun_later_tells_what_is_skipped_and_what_is_read() -> None:
    move = planned(None, 13)
    assert (move.held, move.ahead) == ((10, 13), (13, 20))
    told = effect(move, Counted(3, 0), ahead=Counted(7, 0))
    assert told.startswith("offsets 0 to 12 are skipped (3 records, 0 of them with a state); 10 of these offsets")
    assert told.endswith("; from 13 on there are 7 records, 0 of them with a state")


def test_only_a_partition_that_is_begun_counts_ahead() -> None:
    assert [planned(15, target).ahead for target in (12, 15, 18)] == [(20, 20)] * 3


@pytest.mark.parametrize(
    ("present", "target", "counted", "text"),
    [
        (15, 15, Counted(), "nothing is read again or skipped: the partition goes on at 15"),
        (
            15,
            12,
            Counted(3, 2),
            "offsets 12 to 14 are read again (3 records, 2 of them with a state; these take no effect again)",
        ),
        (15, 18, Counted(3, 1), "offsets 15 to 17 are skipped (3 records, 1 of them with a state)"),
        (
            25,
            20,
            Counted(),
            (
                "the position goes back from 25 to 20, where the log has nothing to read again;"
                " 5 of these offsets are not in the log"
            ),
        ),
        (4, 10, Counted(), "offsets 4 to 9 are skipped (no records); 6 of these offsets are not in the log"),
        (
            15,
            18,
            Counted(2, 2, complete=False),
            "offsets 15 to 17 are skipped (more than 2 records, 2 of them with a state)",
        ),
    ],
)
def test_the_sentence(present: int, target: int, *, counted: Counted, text: str) -> None:
    assert effect(planned(present, target), counted, ahead=Counted()) == text
