"""One line per event, secrets taken out, nothing that stops the service."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import structlog

from onceflow.kafka_logs import KafkaClientFilter
from onceflow.logs import configure, redact_event


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Full(io.StringIO):
    """A stream on a full disk."""

    def write(self, _text: str) -> int:
        raise OSError(28, "No space left on device")

    def flush(self) -> None:
        raise OSError(28, "No space left on device")


@pytest.fixture(autouse=True)
def restore() -> Iterator[None]:
    """The set-up of logs is the process's; other tests have their own."""
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    yield
    root.handlers, root.level = handlers, level
    structlog.reset_defaults()


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_an_event_is_one_line_of_json_whatever_is_in_it() -> None:
    stream = io.StringIO()
    configure(stream=stream)
    structlog.get_logger("x").info("seen", event_id="evt_x\x1b[2J\nsecond line", count=3, ratio=0.5, none=None, ok=True)
    (line,) = lines(stream)
    assert stream.getvalue().count("\n") == 1
    assert "\x1b" not in stream.getvalue()
    assert (line["event"], line["event_id"], line["count"], line["level"]) == (
        "seen",
        "evt_x\x1b[2J\nsecond line",
        3,
        "info",
    )
    assert line["timestamp"].endswith("Z")
    assert line["logger"] == "x"
    assert (line["ratio"], line["none"], line["ok"]) == (0.5, None, True)


def test_secrets_are_taken_out_of_events_and_tracebacks() -> None:
    stream = io.StringIO()
    configure(stream=stream)
    log = structlog.get_logger("x")
    log.info(
        "a", url="postgres://u:CANARY@h/db", nested={"key": ["whsec_CANARY"], "password": "CANARY"}, secret="CANARY"
    )
    log.info("b", body=b"CANARY", raw=b"CANARY", other=ValueError("sk_live_CANARY"), signature="t=1,v1=CANARY")
    log.error("c", exc_info=ValueError("connect to postgres://u:CANARY@h failed"))
    assert "CANARY" not in stream.getvalue()
    assert "ValueError: connect to postgres://u:***@h failed" in lines(stream)[2]["exception"]
    assert lines(stream)[1]["raw"] == "<6 bytes>"


def test_what_is_nested_too_deep_is_cut() -> None:
    deep: dict[str, Any] = {"a": {"b": {"c": {"d": {"e": 1}}}}}
    assert redact_event(None, "info", {"value_of": deep}) == {"value_of": {"a": {"b": {"c": {"d": "..."}}}}}


def test_libraries_are_heard_from_warnings_on_through_the_same_road() -> None:
    stream = io.StringIO()
    configure(stream=stream)
    logging.getLogger("psycopg.pool").info("quiet")
    logging.getLogger("psycopg.pool").warning("error connecting to %s", "postgres://u:CANARY@h")
    (line,) = lines(stream)
    assert line["event"] == "error connecting to postgres://u:***@h"
    assert (line["logger"], line["level"]) == ("psycopg.pool", "warning")


def test_a_logger_without_a_name_has_that_of_the_product() -> None:
    stream = io.StringIO()
    configure(stream=stream)
    structlog.get_logger().info("seen")
    assert lines(stream)[0]["logger"] == "onceflow"


def test_the_level_is_a_limit() -> None:
    stream = io.StringIO()
    configure(stream=stream, level="error")
    structlog.get_logger("x").warning("quiet")
    structlog.get_logger("x").error("loud")
    assert [line["event"] for line in lines(stream)] == ["loud"]


def test_a_terminal_gets_text() -> None:
    stream = Terminal()
    configure(stream=stream)
    structlog.get_logger("x").info("seen", key="value")
    assert not stream.getvalue().startswith("{")
    assert "seen" in stream.getvalue()
    forced = Terminal()
    configure(stream=forced, format="json")
    structlog.get_logger("y").info("seen")
    assert lines(forced)[0]["event"] == "seen"


def test_a_stream_that_cannot_be_written_stops_nobody() -> None:
    configure(stream=Full())
    structlog.get_logger("x").info("lost")
    logging.getLogger("library").warning("lost too")


def test_a_repeated_line_of_the_kafka_client_says_how_many_were_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    stream, now = io.StringIO(), [0.0]
    monkeypatch.setattr("onceflow.logs.KafkaClientFilter", partial(KafkaClientFilter, clock=lambda: now[0]))
    configure(stream=stream)
    log = logging.getLogger("onceflow.kafka")
    for seconds in (0.0, 1.0, 2.0, 11.0):
        now[0] = seconds
        log.error("%s [%s] %s", "FAIL", "rdkafka#consumer-1", "Connection refused (after 0ms in state CONNECT)")
    first, second = lines(stream)
    assert first["event"] == "FAIL [rdkafka#consumer-1] Connection refused (after 0ms in state CONNECT)"
    assert (first["level"], "suppressed" in first) == ("warning", False)
    assert (second["level"], second["suppressed"]) == ("warning", 2)
