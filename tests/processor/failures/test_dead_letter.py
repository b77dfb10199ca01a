"""A dead letter is its record untouched, with Kafka Connect's headers behind the record's own."""

from __future__ import annotations

import base64
import json
from typing import Any

from onceflow_processor.failures.dead_letter import dead_letter

ORIGINAL: tuple[tuple[str, str | None], ...] = (
    ("ce_id", "evt_1"),
    ("__connect.errors.topic", "older"),
    ("odd", None),
    ("ce_id", "evt_1"),
)


def row(**more: Any) -> dict[str, Any]:
    headers = [[name, None if value is None else base64.b64encode(value.encode()).decode()] for name, value in ORIGINAL]
    given = {
        "topic": "stripe.events.v1", "partition": 3, "offset": 2**40, "code": "handler_failed", "handler": "bookkeeping",
        "detail": "KeyError: 'tax'", "traceback": "Traceback ...\nKeyError: 'tax'", "key": b"acct_1/in_1",
        "value": b"\xff\x00", "headers": json.dumps(headers),
    }  # fmt: skip
    return {**given, **more}


def added(**more: Any) -> dict[str, str]:
    headers = dead_letter(row(**more), deployment="shop").headers[len(ORIGINAL) :]
    return {name.removeprefix("__connect.errors."): (value or b"?").decode() for name, value in headers}


def test_the_record_is_untouched() -> None:
    letter = dead_letter(row(), deployment="shop")
    assert (letter.key, letter.value) == (b"acct_1/in_1", b"\xff\x00")
    assert letter.headers[: len(ORIGINAL)] == (
        ("ce_id", b"evt_1"),
        ("__connect.errors.topic", b"older"),
        ("odd", None),
        ("ce_id", b"evt_1"),
    )
    nothing = dead_letter(row(key=None, value=None, headers="[]"), deployment="shop")
    assert (nothing.key, nothing.value, len(nothing.headers)) == (None, None, 10)


def test_what_a_handler_raised() -> None:
    assert added() == {
        "topic": "stripe.events.v1",
        "partition": "3",
        "offset": "1099511627776",
        "connector.name": "shop",
        "task.id": "0",
        "stage": "TASK_PUT",
        "class.name": "bookkeeping",
        "exception.class.name": "KeyError",
        "exception.message": "KeyError: 'tax'",
        "exception.stacktrace": "Traceback ...\nKeyError: 'tax'",
    }


def test_a_record_that_no_handler_got() -> None:
    found = added(code="unauthenticated", detail="no attestation: none", handler=None, traceback=None)
    assert (found["stage"], found["class.name"]) == ("VALUE_CONVERTER", "onceflow.admission")
    assert (found["exception.class.name"], found["exception.stacktrace"]) == ("unauthenticated", "?")
    assert found["exception.message"] == "no attestation: none"
