"""Which word of a webhook is a reason to look at an object."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from onceflow_processor.operations.hint_news import Word, is_news, word_from
from onceflow_schemas.operations.freeze import steps_json
from onceflow_schemas.operations.operation import State
from tests.processor.operations.values import CHARGE, ID, operation


def word(**more: Any) -> Word:
    known: dict[str, Any] = {
        "operation_id": ID,
        "event": "acct_1/test/evt_1",
        "kind": "refund",
        "object_id": "re_1",
        "status": "succeeded",
        "state": State.SUCCEEDED,
        "external_id": "re_1",
        "makes": "refund",
        "result": {"status": "succeeded"},
    }
    return Word(**{**known, **more})


@pytest.mark.parametrize(
    ("said", "news"),
    [
        ({}, False),
        ({"status": "failed"}, True),
        ({"status": None}, True),
        ({"result": {}}, True),
        ({"object_id": "re_2"}, True),
        ({"external_id": None}, True),
        ({"kind": "charge", "object_id": "ch_1"}, False),
        ({"makes": None}, False),
    ],
)
def test_what_is_news(said: dict[str, Any], *, news: bool) -> None:
    assert is_news(word(**said)) is news


def test_a_row_is_read_with_the_kind_that_its_step_makes() -> None:
    charge = operation(CHARGE, step=1)
    row = {
        "operation_id": ID,
        "event": "e",
        "object": "payment_intent",
        "object_id": "pi_1",
        "status": "processing",
        "state": "pending",
        "external_id": "pi_1",
        "steps": orjson.dumps(steps_json(charge.steps)).decode(),
        "step": 1,
        "result": None,
    }
    read = word_from(row)
    assert (read.makes, read.result, read.state) == ("payment_intent", {}, State.PENDING)
    assert is_news(read)
