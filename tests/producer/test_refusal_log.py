"""The log of refusals: bounded, and free of what was sent."""

from __future__ import annotations

from structlog.testing import capture_logs

from onceflow_producer.rate import RatePolicy
from onceflow_producer.refusal import Refusal
from onceflow_producer.refusal_log import RefusalLog


def test_a_line_says_code_peer_and_skew() -> None:
    with capture_logs() as lines:
        RefusalLog().write(Refusal("stale_timestamp", "too old", 1_234), status=400, client="192.0.2.1", now=0.0)
    assert lines == [
        {
            "event": "webhook_refused",
            "log_level": "warning",
            "code": "stale_timestamp",
            "status": 400,
            "detail": "too old",
            "client": "192.0.2.1",
            "skew_seconds": 1_234,
        }
    ]


def test_a_flood_of_one_code_is_counted_and_does_not_silence_another() -> None:
    log = RefusalLog(RatePolicy(per_second=1.0, burst=2))
    with capture_logs() as lines:
        for _ in range(10):
            log.write(Refusal("wrong_signature", ""), status=400, client="a", now=0.0)
        log.write(Refusal("record_too_large", ""), status=413, client="a", now=0.0)
        log.write(Refusal("wrong_signature", ""), status=400, client="a", now=1.0)
        log.write(Refusal("wrong_signature", ""), status=400, client="a", now=2.0)
    assert [(line["code"], line.get("left_out")) for line in lines] == [
        ("wrong_signature", None),
        ("wrong_signature", None),
        ("record_too_large", None),
        ("wrong_signature", 8),
        ("wrong_signature", None),
    ]


def test_probes_are_no_warnings_and_lost_size_is_an_alarm() -> None:
    log = RefusalLog()
    with capture_logs() as lines:
        for code, status in (("method_not_allowed", 405), ("unknown_endpoint", 404), ("body_too_large", 413)):
            log.write(Refusal(code, ""), status=status, client="", now=0.0)
    assert [line["log_level"] for line in lines] == ["info", "info", "error"]
