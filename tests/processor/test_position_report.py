"""A position as a person sees it."""

from __future__ import annotations

import dataclasses

import pytest

from onceflow_processor.position import LogBounds
from onceflow_processor.position_report import PositionRow, report
from onceflow_schemas.failure import PARTITION_FAILURES

ROW = PositionRow("events", "id-1", 3, next_offset=15, fingerprint="14 0 aa", epoch=4, owner="host:1")
BOUNDS = LogBounds(10, 20)


def test_a_running_one() -> None:
    found = report(ROW, BOUNDS, current_id="id-1")
    assert (found.state, found.code, found.lag, found.next_step) == ("running", "", 5, "")


def test_one_whose_owner_ended_cleanly() -> None:
    assert report(dataclasses.replace(ROW, clean=True), BOUNDS, current_id="id-1").state == "released"


def test_a_waiting_one_says_why() -> None:
    found = report(dataclasses.replace(ROW, waiting="a bad deploy"), BOUNDS, current_id="id-1")
    assert (found.state, found.meaning) == ("waiting", "a bad deploy")


@pytest.mark.parametrize(
    "code", ["tail_lost", "log_start_passed", "fingerprint_differs", "topic_changed", "offset_out_of_range", "new_code"]
)
def test_a_stopped_one_has_a_sentence_and_a_command(code: str) -> None:
    found = report(dataclasses.replace(ROW, stopped=code, waiting="x"), BOUNDS, current_id="id-1")
    assert (found.state, found.code) == ("stopped", code)
    assert found.meaning
    assert found.next_step.startswith("onceflow progress set events 3 --")
    assert found.next_step.endswith("--reason '...'")


@pytest.mark.parametrize(
    ("bounds", "code"), [(LogBounds(10, 14), "tail_lost"), (LogBounds(16, 20), "log_start_passed")]
)
def test_an_offset_that_kafka_refused_is_told_by_what_the_log_looks_like(bounds: LogBounds, code: str) -> None:
    found = report(dataclasses.replace(ROW, stopped="offset_out_of_range"), bounds, current_id="id-1")
    assert (found.state, found.code) == ("stopped", code)


@pytest.mark.parametrize(
    ("reason", "step"),
    [
        ("lane 3 hands out no sequence: it is behind", "Run `onceflow lanes show`"),
        ("most recent events of handler h fail alike: x", "Mend the handler"),
    ],
)
def test_a_waiting_one_says_what_ends_the_wait(reason: str, step: str) -> None:
    assert report(dataclasses.replace(ROW, waiting=reason), BOUNDS, current_id="id-1").next_step.startswith(step)


def test_the_command_for_a_lost_tail_names_the_end_of_the_log() -> None:
    stopped = dataclasses.replace(ROW, stopped="tail_lost")
    assert "--offset 20 " in report(stopped, BOUNDS, current_id="id-1").next_step
    assert "--offset N " in report(stopped, None, current_id=None).next_step


@pytest.mark.parametrize(
    ("bounds", "code"), [(LogBounds(10, 14), "tail_lost"), (LogBounds(16, 20), "log_start_passed")]
)
def test_what_the_next_take_over_will_find_is_told_before_it(bounds: LogBounds, code: str) -> None:
    found = report(ROW, bounds, current_id="id-1")
    assert (found.state, found.code, found.meaning) == ("stopped", code, PARTITION_FAILURES[code].meaning)


def test_a_position_of_another_topic_of_this_name() -> None:
    found = report(ROW, BOUNDS, current_id="id-2")
    assert (found.state, found.bounds, found.lag) == ("former", None, None)


def test_a_partition_without_a_position() -> None:
    missing = PositionRow("events", "id-2", 3)
    assert report(missing, BOUNDS, current_id="id-2").state == "not begun"
    changed = report(missing, BOUNDS, current_id="id-2", has_former=True)
    assert (changed.state, changed.code, changed.lag) == ("stopped", "topic_changed", None)
    assert "--earliest" in changed.next_step


def test_without_kafka_the_row_speaks_alone() -> None:
    found = report(ROW, None, current_id=None)
    assert (found.state, found.lag) == ("running", None)
