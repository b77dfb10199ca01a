"""traceparent: passed on when valid, made anew otherwise."""

from __future__ import annotations

import re

import pytest

from onceflow_producer.trace import traceparent_for

VALID = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def test_a_valid_one_is_passed_on() -> None:
    assert traceparent_for([VALID]) == VALID.decode()


@pytest.mark.parametrize(
    "incoming",
    [
        [],
        [VALID, VALID],
        [b""],
        [VALID + b" "],
        [VALID + b"\n"],
        [VALID.upper()],
        [VALID.replace(b"00-4", b"ff-4")],
        [b"00-" + b"0" * 32 + b"-00f067aa0ba902b7-01"],
        [b"00-4bf92f3577b34da6a3ce929d0e0e4736-" + b"0" * 16 + b"-01"],
        [b"\xff" * 55],
        [VALID + b"-more"],
    ],
)
def test_anything_else_is_replaced(incoming: list[bytes]) -> None:
    made = traceparent_for(incoming)
    assert re.fullmatch(r"00-[0-9a-f]{32}-[0-9a-f]{16}-00", made)
    assert made != traceparent_for(incoming)
