"""Handlers that hang, stall or close what is not theirs, in a real processor: each takes only its own event."""

from __future__ import annotations

import pytest

from tests.processor.processor_process import MakeRoad, ids


@pytest.mark.parametrize("event_type", ["test.sleep", "test.database_sleep", "test.spin"])
def test_a_handler_that_never_returns_takes_only_its_own_event(make_road: MakeRoad, event_type: str) -> None:
    road = make_road(partitions=1)
    road.publish(ids("a", 5))
    road.publish(["evt_stuck"], event_type=event_type)
    road.publish(ids("b", 5))
    with road.processor(ONCEFLOW_PROCESSOR_HANDLER_DEADLINE_SECONDS="1"):
        road.wait_for_events(11)
    states = road.states()
    assert states.pop("evt_stuck") == "quarantined"
    assert set(states.values()) == {"processed"}
    [row] = road.rows("SELECT code, event_id FROM onceflow.quarantine")
    assert (row["code"], row["event_id"]) == ("handler_timeout", "evt_stuck")


def test_a_database_that_stalls_under_a_handler_is_not_the_fault_of_its_event(make_road: MakeRoad) -> None:
    road = make_road(partitions=1)
    road.publish(ids("a", 5))
    road.publish(["evt_stalled"], event_type="test.database_stall")
    road.publish(ids("b", 5))
    with road.processor(ONCEFLOW_PROCESSOR_HANDLER_DEADLINE_SECONDS="1"):
        road.wait_for_events(11)
    assert set(road.states().values()) == {"processed"}
    assert len(road.outcome_ids()) == 11


@pytest.mark.parametrize("event_type", ["test.close", "test.close_quietly", "test.terminate"])
def test_a_handler_that_closes_the_connection_takes_only_its_own_event(make_road: MakeRoad, event_type: str) -> None:
    road = make_road(partitions=1)
    road.publish(ids("a", 5))
    road.publish(["evt_closer"], event_type=event_type)
    road.publish(ids("b", 5))
    with road.processor():
        road.wait_for_events(11)
    [row] = road.rows("SELECT code, event_id FROM onceflow.quarantine")
    assert (row["code"], row["event_id"]) == ("handler_broke_transaction", "evt_closer")
    assert len(set(road.outcome_ids())) == 10
