"""Rows to values and back: whatever an answer held can be stored."""

from __future__ import annotations

import json

from onceflow_processor.operations.rows import json_text, plain


def test_text_that_postgresql_cannot_hold_is_replaced() -> None:
    assert plain("a\x00b\ud800") == "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}"
    assert plain(None) is None


def test_json_of_whatever_an_answer_held() -> None:
    text = json_text({"a\x00": ["\ud800", {"big": 10**30, "small": -(2**62), "nan": float("nan")}, ("x", None, True)]})
    assert text is not None
    assert json.loads(text) == {
        "a\N{REPLACEMENT CHARACTER}": [
            "\N{REPLACEMENT CHARACTER}",
            {"big": str(10**30), "small": -(2**62), "nan": None},
            ["x", None, True],
        ]
    }
    assert json_text(None) is None
