"""What a handler asks for is checked at the moment of the call, and its ids follow from its reason."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceflow_processor.effects import (
    FACT_BYTES_MAX,
    OUTCOMES_PER_EVENT_MAX,
    Effects,
    Outcome,
    fact_key,
    make_outcome,
)
from onceflow_schemas.failure import Refused
from onceflow_schemas.identity import lane_of, outcome_id
from onceflow_schemas.outcome_record import KEY_BYTES_MAX
from tests.schemas.stripe_bodies import CASES

CAUSE = "event:acct_1/test/evt_1"
LANES = 6


def ask(effects: Effects, **changes: Any) -> Outcome:
    wanted: dict[str, Any] = {
        "cause": CAUSE,
        "handler": "h",
        "type": "invoice.paid",
        "key": "in_1",
        "data": {"b": 1, "a": 2},
        "lane_count": LANES,
        "value_bytes_max": 100,
    }
    return make_outcome(effects, **{**wanted, **changes})


def test_an_outcome_before_it_has_a_sequence() -> None:
    effects = Effects()
    made = ask(effects)
    wanted_id = outcome_id(cause=CAUSE, handler="h", type="invoice.paid", key="in_1", n=1)
    assert made == Outcome(lane_of("in_1", LANES), wanted_id, "invoice.paid", "in_1", b'{"a":2,"b":1}', CAUSE)
    assert effects.outcomes == [made]


def test_n_counts_the_outcomes_of_one_type_and_key_by_one_handler() -> None:
    effects = Effects()
    made = [
        ask(effects),
        ask(effects, key="in_2"),
        ask(effects, type="invoice.seen"),
        ask(effects, handler="i"),
        ask(effects),
        ask(effects, handler="i"),
    ]
    numbers = [1, 1, 1, 1, 2, 2]
    handlers = ["h", "h", "h", "i", "h", "i"]
    assert [one.outcome_id for one in made] == [
        outcome_id(cause=CAUSE, handler=handler, type=one.type, key=one.key, n=n)
        for one, handler, n in zip(made, handlers, numbers, strict=True)
    ]


def test_the_data_is_frozen_at_the_call() -> None:
    effects = Effects()
    data = {"a": [1]}
    made = ask(effects, data=data)
    data["a"].append(2)
    assert made.value == b'{"a":[1]}'


@pytest.mark.parametrize(
    "changes",
    [
        {"type": ""},
        {"type": "invoice paid"},
        {"type": "t" * 201},
        {"type": None},
        {"type": "a\n"},
        {"key": ""},
        {"key": None},
        {"key": 5},
        {"key": "a\0"},
        {"key": "a\nb"},
        {"key": "\x7f"},
        {"key": "\x85"},
        {"key": "\ufffe"},
        {"key": "\ud800"},
        {"key": "k" * (KEY_BYTES_MAX + 1)},
        {"key": "é" * (KEY_BYTES_MAX // 2 + 1)},
        {"data": None},
        {"data": {"a": float("nan")}},
        {"data": {"a": object()}},
        {"data": {"a": "x" * 93}},
    ],
)
def test_what_cannot_be_written_is_refused_and_leaves_nothing(changes: dict[str, Any]) -> None:
    effects = Effects()
    with pytest.raises(Refused) as refused:
        ask(effects, **changes)
    assert refused.value.code == "outcome_refused"
    assert effects == Effects()


def test_the_largest_that_can_be_written() -> None:
    effects = Effects()
    assert len(ask(effects, data={"a": "x" * 92}).value) == 100
    ask(effects, key="k" * KEY_BYTES_MAX, type="t" * 200)
    ask(effects, key="Köln 😀 \u200d")


def test_outcomes_of_one_event_are_bounded_and_cheap_up_to_the_bound() -> None:
    effects = Effects()
    begun = time.process_time()
    ids = {ask(effects).outcome_id for _ in range(OUTCOMES_PER_EVENT_MAX)}
    assert time.process_time() - begun < 5
    assert len(ids) == OUTCOMES_PER_EVENT_MAX
    with pytest.raises(Refused, match="at most 1000 outcomes"):
        ask(effects)


@pytest.mark.parametrize(
    ("namespace", "parts", "key"),
    [
        ("paid", ("in_1",), "in_1"),
        ("fee-back", ("in_1", "2"), "in_1/2"),
        ("a", ("x/y", "z"), "x%2Fy/z"),
        ("a", ("x", "y/z"), "x/y%2Fz"),
        ("a", ("%2F",), "%252F"),
        ("Ä", ("é 😀\n",), "é 😀\n"),
    ],
)
def test_keys_of_facts(namespace: str, parts: tuple[str, ...], key: str) -> None:
    assert fact_key(namespace, parts) == (namespace, key)


PARTS = st.lists(st.text("a/%2F5", min_size=1, max_size=4), min_size=1, max_size=3).map(tuple)


@CASES
@given(PARTS, PARTS)
def test_two_keys_are_equal_only_when_their_parts_are(one: tuple[str, ...], other: tuple[str, ...]) -> None:
    assert (fact_key("n", one) == fact_key("n", other)) == (one == other)


@pytest.mark.parametrize(
    ("namespace", "parts"),
    [
        ("", ("a",)),
        ("n", ()),
        ("n", ("",)),
        ("n", ("a", "")),
        ("n", ("a\0",)),
        ("n", ("\ud800",)),
        ("n", (5,)),
        ("n", (None,)),
        (None, ("a",)),
        ("n", ("x" * FACT_BYTES_MAX,)),
        ("n", ("/" * (FACT_BYTES_MAX // 3 + 1),)),
    ],
)
def test_facts_that_cannot_be_kept_are_refused(namespace: Any, parts: Any) -> None:
    with pytest.raises(Refused) as refused:
        fact_key(namespace, parts)
    assert refused.value.code == "effect_refused"


def test_the_longest_fact() -> None:
    fact_key("n", ("x" * (FACT_BYTES_MAX - 1),))
