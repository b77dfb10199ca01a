"""The metrics exist before anything is counted, and apart for each bridge."""

from __future__ import annotations

from prometheus_client import generate_latest

from onceflow_producer.metrics import BridgeMetrics
from onceflow_producer.refusal import STATUS_OF


def test_every_code_and_status_is_there_from_the_start() -> None:
    text = generate_latest(BridgeMetrics().registry).decode()
    for code in STATUS_OF:
        assert f'onceflow_bridge_refused_total{{code="{code}"}} 0.0' in text
    for status in (200, *STATUS_OF.values()):
        assert f'onceflow_bridge_requests_total{{status="{status}"}} 0.0' in text


def test_two_bridges_do_not_add_up_and_gauges_are_read_when_scraped() -> None:
    first, second = BridgeMetrics(), BridgeMetrics()
    first.requests[200].inc()
    values = [1.0]
    first.gauge("onceflow_bridge_ready", "x", read=lambda: values[0])
    values[0] = 7.0
    assert b'requests_total{status="200"} 1.0' in generate_latest(first.registry)
    assert b"onceflow_bridge_ready 7.0" in generate_latest(first.registry)
    assert b'requests_total{status="200"} 0.0' in generate_latest(second.registry)
