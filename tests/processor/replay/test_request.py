"""What may be asked of a replay: every wrong request is refused with a code, all faults at once."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from onceflow_processor.position import LogBounds
from onceflow_processor.records import Partition, Record
from onceflow_processor.replay.planning import refuse
from onceflow_processor.replay.request import (
    KEYS_MAX,
    REASON_CHARACTERS_MAX,
    Fault,
    Request,
    Stretch,
    flag_faults,
    partition_faults,
    request_of,
    stretch_of,
)
from onceflow_schemas.failure import FAILURES, Refused
from tests.processor.conftest import event_body, items_of, record

TOPICS = ("stripe.events.v1", "other.events")
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def asked(**given: Any) -> Request:
    return Request(**{"topic": "stripe.events.v1", **given})


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"topic": "stripe.outcomes.v1"}, "replay_topic_refused"),
        ({"partitions": (0,), "from_offset": -5}, "replay_range_refused"),
        ({"partitions": (0,), "to_offset": -1}, "replay_range_refused"),
        ({"partitions": (0,), "from_offset": 5, "to_offset": 4}, "replay_range_refused"),
        ({"from_time": NOW, "to_time": NOW - timedelta(seconds=1)}, "replay_range_refused"),
        ({"from_offset": 5}, "replay_flags_refused"),
        ({"partitions": (0, 1), "to_offset": 5}, "replay_flags_refused"),
        ({"partitions": (0,), "from_offset": 1, "from_time": NOW}, "replay_flags_refused"),
        ({"partitions": (0,), "to_offset": 1, "to_time": NOW}, "replay_flags_refused"),
        ({"partitions": (1, 1)}, "replay_flags_refused"),
        ({"partitions": (-1,)}, "replay_partition_refused"),
        ({"types": ("no type!",)}, "replay_flags_refused"),
        ({"unread": ("--include takes ignored, not 'nope'",)}, "replay_flags_refused"),
        ({"keys": ("",)}, "replay_flags_refused"),
        ({"event_ids": tuple("e" * (KEYS_MAX + 1))}, "replay_flags_refused"),
        ({"rerun": True, "ignored": True}, "replay_flags_refused"),
        ({"allow_operations": True}, "replay_flags_refused"),
        ({"execute": True, "reason": "  "}, "replay_flags_refused"),
        ({"execute": True, "reason": "w" * (REASON_CHARACTERS_MAX + 1)}, "replay_flags_refused"),
        ({"rate": 0.0}, "replay_flags_refused"),
        ({"rate": float("nan")}, "replay_flags_refused"),
    ],
)
def test_a_request_that_cannot_be_meant_is_refused_with_a_code(given: dict[str, Any], code: str) -> None:
    faults = flag_faults(asked(**given), topics=TOPICS)
    assert [fault.code for fault in faults] == [code]
    assert code in FAILURES


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"partitions": (0, 2)},
        {"partitions": (0,), "from_offset": 4, "to_offset": 4},
        {"from_time": NOW, "to_time": NOW},
        {"types": ("invoice.*", "v1.billing.meter.error_report_triggered"), "keys": ("in_1",), "event_ids": ("evt_1",)},
        {"execute": True, "reason": "a mended handler", "ignored": True, "rate": 0.5},
        {"rerun": True, "allow_operations": True},
    ],
)
def test_other_requests_are_taken(given: dict[str, Any]) -> None:
    assert flag_faults(asked(**given), topics=TOPICS) == []


def test_all_faults_are_told_at_once() -> None:
    request = asked(topic="x", from_offset=-5, to_offset=-7, from_time=NOW, rate=-1.0)
    faults = flag_faults(request, topics=TOPICS)
    assert len(faults) == 8
    with pytest.raises(Refused) as refused:
        refuse(faults)
    assert refused.value.code == "replay_refused"
    assert len(refused.value.faults) == 8
    with pytest.raises(Refused) as same:
        refuse([Fault("replay_range_refused", "one"), Fault("replay_range_refused", "two")])
    assert (same.value.code, len(same.value.faults)) == ("replay_range_refused", 2)
    with pytest.raises(Refused) as single:
        refuse([Fault("replay_range_refused", "one")])
    assert (single.value.code, single.value.message) == ("replay_range_refused", "one")
    refuse([])


def test_partitions_that_there_are_not() -> None:
    faults = partition_faults(asked(partitions=(0, 3, 9)), count=3)
    assert [fault.code for fault in faults] == ["replay_partition_refused"] * 2
    assert "9" in faults[1].detail


def stretch(bounds: LogBounds, *times: int | None, **given: Any) -> Stretch | list[Fault]:
    from_time, to_time = times or (None, None)
    request = asked(partitions=(1,), **given)
    return stretch_of(request, partition=1, bounds=bounds, from_time_offset=from_time, to_time_offset=to_time)


def test_a_stretch_ends_where_the_log_ends_now() -> None:
    bounds = LogBounds(5, 20)
    assert stretch(bounds) == Stretch(1, 5, 20)
    assert stretch(bounds, from_offset=5, to_offset=20) == Stretch(1, 5, 20)
    assert stretch(bounds, from_offset=20) == Stretch(1, 20, 20)
    assert stretch(bounds, 7, 12) == Stretch(1, 7, 12)
    assert stretch(bounds, 20, 12) == Stretch(1, 20, 20)


def test_an_offset_that_the_log_does_not_hold_is_refused_and_not_clamped() -> None:
    bounds = LogBounds(5, 20)
    for given in ({"from_offset": 4}, {"from_offset": 21}, {"to_offset": 21}, {"to_offset": 4}):
        faults = stretch(bounds, **given)
        assert isinstance(faults, list)
        assert [fault.code for fault in faults] == ["replay_range_refused"]
        assert "5 to 19" in faults[0].detail
    for times, given in (((None, 9), {"from_offset": 12}), ((12, None), {"to_offset": 9})):
        [fault] = cast("list[Fault]", stretch(bounds, *times, **given))
        assert fault == Fault("replay_range_refused", "the range of stripe.events.v1/1 ends at 9, before 12")
    empty = stretch(LogBounds(7, 7), from_offset=3, to_offset=9)
    assert isinstance(empty, list)
    assert ["empty" in fault.detail for fault in empty] == [True, True]


def test_records_are_chosen_by_key_type_and_event_id() -> None:
    made = record(event_body("evt_1", "invoice.paid", {"id": "in_1", "object": "invoice"}), 0)
    [item] = items_of([made])
    untrusted = items_of([Record(Partition("stripe.events.v1", 0), 1, 0, None, b"x", [], 1)])[0]
    assert asked().takes(item)
    assert asked(keys=("acct_test/in_1",)).takes(item)
    assert asked(keys=("in_1",)).takes(item)
    assert not asked(keys=("in_2",)).takes(item)
    assert not asked(keys=("in_2",)).takes(untrusted)
    # On a topic that somebody else writes the record's key may be anything.
    foreign = replace(item, record=replace(made, key=b"42"), order_key="acct_test/in_1")
    assert asked(keys=("in_1",)).takes(foreign)
    assert asked(keys=("42",)).takes(foreign)
    assert asked().takes(untrusted)
    assert not asked(types=("invoice.paid",)).takes(untrusted)
    for types, taken in ((("invoice.paid",), True), (("charge.*", "invoice.*"), True), (("invoice",), False)):
        assert asked(types=types).takes(item) is taken
    assert asked(event_ids=("evt_1",), types=("invoice.*",)).takes(item)
    assert not asked(event_ids=("evt_2",), types=("invoice.*",)).takes(item)


def test_a_run_that_goes_on_has_the_request_that_it_began_with() -> None:
    request = asked(
        partitions=(1,), from_time=NOW, to_offset=7, keys=("k",), types=("a.*",), event_ids=("e",), rerun=True,
        allow_operations=True, execute=True, reason="why", rate=3.0,
    )  # fmt: skip
    assert request_of(request.filters(), reason="why", rate=3.0) == request
