"""Money: integers of minor units and a lower-case code, whatever the object is."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceflow_schemas.money import AMOUNT_FIELDS, AMOUNT_MAX, money_problem
from tests.schemas.stripe_bodies import CASES, json_values


@pytest.mark.parametrize(
    "subject",
    [
        {},
        {"amount": None, "currency": None},
        {"object": "charge", "amount": 0, "currency": "usd"},
        {"object": "charge", "amount": 9899, "currency": "jpy"},
        {"object": "charge", "amount": 5120, "currency": "kwd"},
        {"object": "charge", "amount": 9_999_999_900, "currency": "idr"},
        {"object": "payout", "amount": -1, "currency": "usd"},
        {"object": "invoice", "total": -AMOUNT_MAX},
        {"object": "charge", "amount": AMOUNT_MAX},
        {"object": "usdc_thing", "currency": "usdc"},
        {"object": ["charge"], "amount": -1},
        {"object": {"charge": 1}, "amount": 1},
        {"quantity": 1.5, "unit_amount_decimal": "0.5"},
    ],
)
def test_sound_money(subject: dict[str, Any]) -> None:
    assert money_problem(subject) is None


@pytest.mark.parametrize("amount", [1.0, 1.5, "100", True, [1], {}, AMOUNT_MAX + 1, 2**63, -(2**63)])
@pytest.mark.parametrize("name", AMOUNT_FIELDS)
def test_sums_that_could_be_booked_in_two_ways(name: str, amount: object) -> None:
    found = money_problem({"object": "invoice", name: amount})
    assert found is not None
    assert found[0] == "bad_amount"
    assert name in found[1]


@pytest.mark.parametrize("kind", ["charge", "payment_intent", "refund", "dispute", "checkout.session"])
def test_sums_that_cannot_be_negative(kind: str) -> None:
    assert money_problem({"object": kind, "amount": -1}) == ("bad_amount", "amount is out of range")


@pytest.mark.parametrize("currency", ["USD", "usd\n", "XXX", "", "us", "usdollar", "u$d", "üsd", 840, ["usd"], {}])
def test_currencies_that_are_no_codes(currency: object) -> None:
    found = money_problem({"currency": currency})
    assert found is not None
    assert found[0] == "bad_currency"


@CASES
@given(st.dictionaries(st.sampled_from(["object", "currency", *AMOUNT_FIELDS]), json_values(st.text(max_size=5))))
def test_no_object_makes_it_raise_and_only_integers_pass(subject: dict[str, Any]) -> None:
    if money_problem(subject) is None:
        sums = [subject[name] for name in AMOUNT_FIELDS if subject.get(name) is not None]
        assert all(type(value) is int and abs(value) <= AMOUNT_MAX for value in sums)
