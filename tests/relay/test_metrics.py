"""What a dashboard sees."""

from __future__ import annotations

from onceflow_processor.relay.lane_store import LaneRow
from onceflow_processor.relay.metrics import RelayMetrics


def test_lanes_are_shown_with_backlog_and_state() -> None:
    metrics = RelayMetrics()
    value = metrics.registry.get_sample_value
    metrics.show_lanes([LaneRow(0, 9, 4, "T", "ok", ""), LaneRow(1, 3, 3, "T", "stopped:tail_lost", "d")])
    assert value("onceflow_relay_backlog_outcomes", {"lane": "0"}) == 5
    assert value("onceflow_relay_lane_state", {"lane": "0", "state": "ok"}) == 1
    assert value("onceflow_relay_lane_state", {"lane": "1", "state": "ok"}) == 0
    assert value("onceflow_relay_lane_state", {"lane": "1", "state": "stopped"}) == 1
    metrics.show_lanes([LaneRow(1, 3, 3, "T", "behind", "d")])
    assert value("onceflow_relay_lane_state", {"lane": "1", "state": "stopped"}) == 0
    assert value("onceflow_relay_lane_state", {"lane": "1", "state": "behind"}) == 1


def test_transactions_are_counted_by_how_they_ended() -> None:
    metrics = RelayMetrics()
    metrics.count_transaction("committed", 0.02)
    metrics.count_transaction("uncertain", 8.0)
    value = metrics.registry.get_sample_value
    assert value("onceflow_relay_transactions_total", {"result": "committed"}) == 1
    assert value("onceflow_relay_transactions_total", {"result": "uncertain"}) == 1
    assert value("onceflow_relay_transaction_seconds_count") == 2
