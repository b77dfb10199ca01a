"""The table of an event's states: every pair, the words of the column, and that final states are final."""

from __future__ import annotations

import itertools
import re

import pytest

from onceflow_schemas.event_moves import FINAL, MOVES, STORED, Happening, State, move
from onceflow_schemas.sql import migrations

NEW, PROCESSED, IGNORED, PARKED, QUARANTINED = State
LEGAL = {
    NEW: {
        Happening.HANDLED: PROCESSED,
        Happening.UNWANTED: IGNORED,
        Happening.WAITS: PARKED,
        Happening.FAILED: QUARANTINED,
    },
    PROCESSED: {},
    IGNORED: {},
    PARKED: {
        Happening.HANDLED: PROCESSED,
        Happening.UNWANTED: IGNORED,
        Happening.WAITS: PARKED,
        Happening.FAILED: QUARANTINED,
        Happening.RETRY_ASKED: PARKED,
        Happening.SKIPPED: QUARANTINED,
    },
    QUARANTINED: {Happening.RETRY_ASKED: PARKED, Happening.SKIPPED: QUARANTINED},
}


@pytest.mark.parametrize(("state", "happening"), list(itertools.product(State, Happening)))
def test_every_pair(state: State, happening: Happening) -> None:
    expected = LEGAL[state].get(happening)
    if expected is None:
        with pytest.raises(AssertionError, match=str(state)):
            move(state, happening)
    else:
        assert move(state, happening) is expected


def test_final_states_have_no_way_out_and_all_others_have() -> None:
    assert {before for before, _ in MOVES} == set(State) - FINAL


def test_the_check_of_the_column_is_the_list_of_states() -> None:
    table = next(each for each in migrations() if each.name == "main_road").up
    [check] = re.findall(r"state text NOT NULL CHECK \(state IN \((.*?)\)\)", table)
    assert set(re.findall(r"'([a-z]+)'", check)) == set(STORED)
