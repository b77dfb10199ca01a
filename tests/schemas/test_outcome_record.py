"""Outcomes as records: equal data gives equal bytes, and what is no plain JSON is refused in the handler."""

from __future__ import annotations

import dataclasses
import enum
import json
import random
import types
import uuid
from collections import OrderedDict
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from onceflow_schemas.failure import Refused
from onceflow_schemas.identity import ce_id, outcome_id
from onceflow_schemas.outcome_record import (
    HEADERS_BYTES_RESERVED,
    KEY_BYTES_MAX,
    OutcomeRow,
    canonical_value,
    outcome_headers,
    outcome_value,
)
from onceflow_schemas.told_facts import FACTS_HEADER, FACTS_TOLD_MAX, facts_text
from tests.schemas import independent
from tests.schemas.stripe_bodies import CASES

INTEGERS = st.integers(-(2**63), 2**64 - 1)
PLAIN = st.recursive(
    st.none() | st.booleans() | INTEGERS | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)
ALIKE: st.SearchStrategy[Any] = st.sampled_from(
    [0, 0.0, -0.0, False, 1, 1.0, True, "1", None, "null", [], {}, "", [[]], "\ud800", "\ufffd"]
)
NEARLY_EQUAL = st.dictionaries(st.sampled_from(["a", "b", "A"]), ALIKE, max_size=2)
DATA = st.dictionaries(st.text(max_size=6), PLAIN, max_size=5)

OUTCOME = outcome_id(cause="event:acct_1/live/evt_1", handler="h", type="invoice.paid", key="in_1", n=1)
ROW = OutcomeRow(
    lane=3,
    seq=17,
    outcome_id=OUTCOME,
    revision=1,
    ce_id=OUTCOME,
    type="invoice.paid",
    key="in_1",
    value=b'{"a":1}',
    headers={},
    cause="event:acct_1/live/evt_1",
    withheld=None,
    created_at=datetime(2026, 1, 1, 0, 0, 2, 3, tzinfo=UTC),
)


def shuffled(value: Any, chance: random.Random) -> Any:
    """The same data with its keys in another order and tuples in the place of lists."""
    if isinstance(value, dict):
        items = [(key, shuffled(item, chance)) for key, item in value.items()]
        chance.shuffle(items)
        return dict(items)
    if isinstance(value, list):
        found = [shuffled(item, chance) for item in value]
        return tuple(found) if chance.random() < 0.5 else found
    return value


@CASES
@given(DATA, st.randoms(use_true_random=False))
def test_equal_data_gives_equal_bytes(data: dict[str, Any], chance: random.Random) -> None:
    assert canonical_value(shuffled(data, chance)) == canonical_value(data)


@CASES
@given(DATA)
@example({"a": 1e16, "b": [-1.5e-7], "é\uffff": {"😀": 5e-324}, "": '\x7f\u2028\x1f\\"'})
def test_the_bytes_are_those_of_the_standard_library(data: dict[str, Any]) -> None:
    assert canonical_value(data) == independent.canonical_value(data)


@CASES
@given(NEARLY_EQUAL, NEARLY_EQUAL)
def test_different_data_gives_different_bytes(one: dict[str, Any], other: dict[str, Any]) -> None:
    if canonical_value(one) == canonical_value(other):
        texts = [json.dumps(data, sort_keys=True).replace("\\ud800", "\\ufffd") for data in (one, other)]
        assert texts[0] == texts[1]


@CASES
@given(st.dictionaries(st.text(st.characters(exclude_categories=[]), max_size=4), st.text(st.characters()), max_size=3))
def test_lone_surrogates_never_reach_a_consumer(data: dict[str, str]) -> None:
    try:
        value = canonical_value(data)
    except Refused:
        return
    assert len(json.loads(value.decode())) == len(data)


@pytest.mark.parametrize(
    ("data", "value"),
    [
        ({"a": "\ud83d", "b": ["\ude00", {"\ud800": 1}]}, '{"a":"\ufffd","b":["\ufffd",{"\ufffd":1}]}'),
        ({"a": "\ud83d", "b": ("x", 1e16, None)}, '{"a":"\ufffd","b":["x",1e+16,null]}'),
        (types.MappingProxyType({"b": 1, "a": 2}), '{"a":2,"b":1}'),
    ],
)
def test_data_that_is_written_a_little_otherwise(data: Any, value: str) -> None:
    assert canonical_value(data).decode() == value


class Color(enum.StrEnum):
    RED = "red"


class Text(str):
    """A text of a library."""

    __slots__ = ()


CIRCLE: dict[str, Any] = {}
CIRCLE["again"] = CIRCLE


def nested(levels: int) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for _ in range(levels):
        data = {"a": data}
    return data


@pytest.mark.parametrize(
    "data",
    [
        {"a": float("nan")},
        {"a": [{"b": float("inf")}]},
        {"a": (float("-inf"),)},
        {"a": 2**64},
        {"a": -(2**63) - 1},
        {1: "a"},
        {"a": {None: 1}},
        {"a": {Text("b"): 1}},
        {"a": b"bytes"},
        {"a": {1, 2}},
        {"a": Decimal("1.10")},
        {"a": datetime(2026, 1, 1, tzinfo=UTC)},
        {"a": uuid.UUID(int=0)},
        {"a": Color.RED},
        {"a": Text("b")},
        {"a": OrderedDict(b=1)},
        {"a": types.MappingProxyType({})},
        {"a": object()},
        {"a": "\ud800", "b": object()},
        {"a": "\ud800", "b": 2**64},
        {chr(0xD800): 1, chr(0xD801): 2},
        nested(300),
        nested(100_000),
        CIRCLE,
        None,
        [],
        "text",
        [("a", 1)],
    ],
    ids=lambda data: type(data).__name__,
)
def test_data_that_is_no_plain_json_is_refused(data: Any) -> None:
    with pytest.raises(Refused) as refused:
        canonical_value(data)
    assert refused.value.code == "outcome_refused"


def test_the_refusal_names_what_to_change() -> None:
    with pytest.raises(Refused, match="a value is of type Decimal"):
        canonical_value({"a": Decimal(1)})
    with pytest.raises(Refused, match="a key is of type int"):
        canonical_value({"a": {1: 2}})


def test_the_data_given_is_left_as_it_was() -> None:
    data = {"b": ["\ud800"], "a": 1}
    canonical_value(data)
    assert data == {"b": ["\ud800"], "a": 1}


def test_headers_by_hand() -> None:
    assert sorted(outcome_headers(ROW, deployment="shop")) == [
        ("ce_id", str(OUTCOME).encode()),
        ("ce_source", b"urn:onceflow:shop"),
        ("ce_specversion", b"1.0"),
        ("ce_subject", b"in_1"),
        ("ce_time", b"2026-01-01T00:00:02.000003Z"),
        ("ce_type", b"invoice.paid"),
        ("content-type", b"application/json"),
        ("onceflow_cause", b"event:acct_1/live/evt_1"),
        ("onceflow_lane", b"3"),
        ("onceflow_outcome_id", str(OUTCOME).encode()),
        ("onceflow_revision", b"1"),
        ("onceflow_sequence", b"17"),
    ]
    assert outcome_value(ROW) == b'{"a":1}'


def test_a_revision_a_refill_and_a_withheld_outcome() -> None:
    row = dataclasses.replace(
        ROW, revision=2, ce_id=ce_id(OUTCOME, 2), withheld="record_too_large", headers={"trace": "é"}
    )
    headers = dict(outcome_headers(row, deployment="shop", refill=True))
    assert headers["ce_id"] != headers["onceflow_outcome_id"]
    assert headers["onceflow_revision"] == b"2"
    assert headers["onceflow_refill"] == b"1"
    assert headers["onceflow_withheld"] == b"record_too_large"
    assert headers["trace"] == "é".encode()
    assert outcome_value(row) == b"{}"


def test_the_room_kept_for_key_and_headers_is_enough_for_the_largest() -> None:
    """The longest key, type, ids and numbers; Kafka adds at most 5 bytes of length to a name or value, 70 to a batch."""
    account, event_id = "acct_" + "x" * 250, "evt_" + "x" * 250
    row = dataclasses.replace(
        ROW,
        lane=2**31 - 1,
        seq=2**63 - 1,
        revision=2**31 - 1,
        type="t" * 200,
        key="k" * KEY_BYTES_MAX,
        cause=f"event:{account}/live/{event_id}",
        withheld="w" * 64,
        headers={FACTS_HEADER: facts_text([bytes(16)] * FACTS_TOLD_MAX)},
    )
    headers = outcome_headers(row, deployment="d" * 64, refill=True)
    size = len(row.key) + sum(len(name) + len(raw) + 10 for name, raw in headers)
    assert size + 100 <= HEADERS_BYTES_RESERVED
