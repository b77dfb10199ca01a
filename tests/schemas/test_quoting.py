"""Values in messages: bounded, and with their quotes closed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from onceflow_schemas.quoting import quoted

ROOT = Path(__file__).parents[2]
SOURCES = [file for part in ("schemas", "producer", "processor", "console") for file in (ROOT / part).rglob("*.py")]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("abc", "'abc'"),
        (5, "5"),
        (None, "None"),
        ("x" * 8, "'xxxxxxxx'"),
        ("x" * 9, "'xxxxxxxxx...'"),
        (b"x" * 20, "b'xxxxxxxx...'"),
        ("it's far too long", '"it\'s far ..."'),
        ([1] * 9, "[1, 1, 1, ...]"),
        (10**20, "1000000000..."),
    ],
)
def test_what_is_cut_says_so_and_is_closed(value: Any, expected: str) -> None:
    assert quoted(value, 10) == expected


def test_what_python_does_not_write_is_named() -> None:
    assert quoted(10**5000) == "<int>"


def test_no_message_cuts_a_value_in_another_way() -> None:
    assert SOURCES
    assert [file.name for file in SOURCES if re.search(r"!r:\.\d", file.read_text("utf-8"))] == []
