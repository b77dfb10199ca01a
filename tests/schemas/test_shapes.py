"""The same thing is read from every known shape, and what is not there is said to be not there."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceflow_schemas import shapes
from onceflow_schemas.shapes import Lines, Period, Reading
from tests.schemas.stripe_bodies import CASES, json_values

NEW_PARENT = "parent.subscription_details.subscription"


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        ({"object": "charge", "customer": "cus_1"}, Reading("cus_1", "customer")),
        ({"object": "charge", "customer": {"id": "cus_1", "object": "customer"}}, Reading("cus_1", "customer")),
        ({"object": "charge", "customer": {"id": "cus_1", "deleted": True}}, Reading("cus_1", "customer")),
        ({"object": "charge", "customer": None}, Reading(None, "customer", "null")),
        ({"object": "charge"}, Reading(None, None, "missing")),
        ({"object": "charge", "customer": 5}, Reading(None, "customer", "unreadable")),
        ({"object": "charge", "customer": ""}, Reading(None, "customer", "unreadable")),
        ({"object": "charge", "customer": {"name": "x"}}, Reading(None, "customer", "unreadable")),
        ({"object": "charge", "customer": ["cus_1"]}, Reading(None, "customer", "unreadable")),
        ({"object": "customer", "id": "cus_1"}, Reading("cus_1", "id")),
        ({"object": ["customer"], "customer": "cus_1"}, Reading("cus_1", "customer")),
        ({}, Reading(None, None, "missing")),
    ],
)
def test_customer(subject: dict[str, Any], expected: Reading[str]) -> None:
    assert shapes.customer(subject) == expected


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        ({"object": "invoice", "subscription": "sub_1"}, Reading("sub_1", "subscription")),
        ({"object": "invoice", "subscription": {"id": "sub_1"}}, Reading("sub_1", "subscription")),
        (
            {"object": "invoice", "parent": {"subscription_details": {"subscription": "sub_1"}}},
            Reading("sub_1", NEW_PARENT),
        ),
        (
            {"object": "invoice", "parent": {"subscription_details": {"subscription": {"id": "sub_1"}}}},
            Reading("sub_1", NEW_PARENT),
        ),
        (
            {"object": "invoice", "subscription": None, "parent": {"subscription_details": {"subscription": "sub_1"}}},
            Reading("sub_1", NEW_PARENT),
        ),
        ({"object": "invoice", "subscription": None}, Reading(None, "subscription", "null")),
        ({"object": "invoice", "parent": None}, Reading(None, NEW_PARENT, "null")),
        ({"object": "invoice", "parent": {"subscription_details": None}}, Reading(None, NEW_PARENT, "null")),
        ({"object": "invoice", "parent": {"type": "quote_details"}}, Reading(None, None, "missing")),
        ({"object": "invoice", "parent": "sub_1"}, Reading(None, None, "missing")),
        ({"object": "invoice"}, Reading(None, None, "missing")),
        ({"object": "subscription", "id": "sub_1"}, Reading("sub_1", "id")),
        ({"object": "checkout.session", "subscription": "sub_1"}, Reading("sub_1", "subscription")),
        (
            {"object": "line_item", "parent": {"subscription_item_details": {"subscription": "sub_1"}}},
            Reading("sub_1", "parent.subscription_item_details.subscription"),
        ),
        (
            {
                "object": "line_item",
                "parent": {"subscription_item_details": None, "invoice_item_details": {"subscription": "sub_1"}},
            },
            Reading("sub_1", "parent.invoice_item_details.subscription"),
        ),
    ],
)
def test_subscription(subject: dict[str, Any], expected: Reading[str]) -> None:
    assert shapes.subscription(subject) == expected


def paid_by(*payments: dict[str, Any]) -> dict[str, Any]:
    return {"object": "invoice", "payments": {"data": [{"payment": payment} for payment in payments]}}


CHARGE_PATH, INTENT_PATH = "payments.data[].payment.charge", "payments.data[].payment.payment_intent"


@pytest.mark.parametrize(
    ("subject", "charge", "intent"),
    [
        (
            {"object": "invoice", "charge": "ch_1", "payment_intent": {"id": "pi_1"}},
            Reading("ch_1", "charge"),
            Reading("pi_1", "payment_intent"),
        ),
        (
            paid_by({"type": "payment_intent", "payment_intent": "pi_1"}),
            Reading(None, None, "missing"),
            Reading("pi_1", INTENT_PATH),
        ),
        (paid_by({"type": "charge", "charge": "ch_1"}), Reading("ch_1", CHARGE_PATH), Reading(None, None, "missing")),
        (
            paid_by({"payment_intent": "pi_1"}, {"payment_intent": "pi_2"}),
            Reading(None, None, "missing"),
            Reading(None, INTENT_PATH, "differs"),
        ),
        (paid_by(), Reading(None, None, "missing"), Reading(None, None, "missing")),
        (
            {"object": "refund", "charge": "ch_1", "payment_intent": None},
            Reading("ch_1", "charge"),
            Reading(None, "payment_intent", "null"),
        ),
        (
            {"object": "payment_intent", "id": "pi_1", "latest_charge": {"id": "ch_1"}},
            Reading("ch_1", "latest_charge"),
            Reading("pi_1", "id"),
        ),
        (
            {"object": "payment_intent", "id": "pi_1", "charges": {"data": [{"id": "ch_2"}, {"id": "ch_1"}]}},
            Reading("ch_2", "charges.data[].id"),
            Reading("pi_1", "id"),
        ),
        (
            {"object": "charge", "id": "ch_1", "payment_intent": "pi_1"},
            Reading("ch_1", "id"),
            Reading("pi_1", "payment_intent"),
        ),
    ],
)
def test_charge_and_payment_intent(subject: dict[str, Any], charge: Reading[str], intent: Reading[str]) -> None:
    assert shapes.charge(subject) == charge
    assert shapes.payment_intent(subject) == intent


@pytest.mark.parametrize("more", [{"has_more": True}, {"has_more": False, "total_count": 3}])
@pytest.mark.parametrize(
    ("payments", "problem"),
    [
        ([{"payment_intent": "pi_1"}], "truncated"),
        ([], "truncated"),
        ([{"type": "charge", "charge": "ch_1"}], "truncated"),
        ([{"payment_intent": "pi_1"}, {"payment_intent": "pi_2"}], "differs"),
    ],
)
def test_payments_that_are_cut_off_do_not_stand_for_all(
    payments: list[dict[str, Any]], problem: shapes.Problem, more: dict[str, Any]
) -> None:
    invoice = paid_by(*payments)
    invoice["payments"] |= more
    assert shapes.payment_intent(invoice) == Reading(None, INTENT_PATH, problem)
    assert shapes.payment_intent(
        {**invoice, "payments": {**invoice["payments"], "has_more": False, "total_count": 0}}
    ) == (shapes.payment_intent(paid_by(*payments)))


def test_places_that_disagree_differ() -> None:
    def invoice(old: object, new: object) -> dict[str, Any]:
        return {"object": "invoice", "subscription": old, "parent": {"subscription_details": {"subscription": new}}}

    assert shapes.subscription(invoice("sub_1", "sub_2")) == Reading(None, "subscription", "differs")
    assert shapes.subscription(invoice("sub_1", {"id": "sub_1"})) == Reading("sub_1", "subscription")
    assert shapes.subscription(invoice(None, "sub_2")).value == "sub_2"
    assert shapes.subscription(invoice(None, 5)).problem == "unreadable"
    assert shapes.charge({**paid_by({"charge": "ch_1"}, {"charge": "ch_2"}), "charge": "ch_1"}).problem == "differs"
    assert shapes.charge({**paid_by({"charge": "ch_1"}), "charge": "ch_2"}).problem == "differs"


def item(name: str, start: Any = 100, end: Any = 200) -> dict[str, Any]:
    return {"id": name, "current_period_start": start, "current_period_end": end}


def with_items(*items: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"object": "subscription", "items": {"data": list(items), **more}}


ITEM_PATH = "items.data[].current_period_end"


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        ({"current_period_start": 100, "current_period_end": 200}, Reading(Period(100, 200), "current_period_end")),
        (with_items(item("si_1")), Reading(Period(100, 200), ITEM_PATH)),
        (with_items(item("si_1"), item("si_2")), Reading(Period(100, 200), ITEM_PATH)),
        (with_items(item("si_1"), item("si_2", end=300)), Reading(None, "items.data[]", "differs")),
        (with_items(item("si_1"), {"id": "si_2"}), Reading(None, "items.data[]", "differs")),
        (with_items(item("si_1"), has_more=True), Reading(None, "items.data[]", "truncated")),
        (with_items({"id": "si_1"}), Reading(None, None, "missing")),
        (with_items(), Reading(None, None, "missing")),
        ({"items": None}, Reading(None, None, "missing")),
        ({"current_period_start": None, "current_period_end": None}, Reading(None, "current_period_end", "null")),
        ({"current_period_start": 1, "current_period_end": "2"}, Reading(None, "current_period_end", "unreadable")),
        (with_items(item("si_1", end=None)), Reading(None, ITEM_PATH, "null")),
        (
            {"current_period_start": 1, "current_period_end": 2, **with_items(item("si_1"))},
            Reading(Period(1, 2), "current_period_end"),
        ),
    ],
)
def test_current_period(subject: dict[str, Any], expected: Reading[Period]) -> None:
    assert shapes.current_period(subject) == expected


def test_the_periods_of_items_that_differ() -> None:
    subject = with_items(
        item("si_1"), item("si_2", end=300), {"id": "si_3"}, {"current_period_end": 1}, item("si_4", end="x")
    )
    assert shapes.item_periods(subject) == {"si_1": Period(100, 200), "si_2": Period(100, 300)}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ({"data": [{"id": "il_1"}], "has_more": False}, Lines(({"id": "il_1"},), None, is_truncated=False)),
        ({"data": [{"id": "il_1"}], "has_more": True}, Lines(({"id": "il_1"},), None, is_truncated=True)),
        ({"data": [{}], "has_more": False, "total_count": 37}, Lines(({},), 37, is_truncated=True)),
        ({"data": [{}], "has_more": False, "total_count": 1}, Lines(({},), 1, is_truncated=False)),
        ({"data": 5, "total_count": True}, Lines((), None, is_truncated=False)),
        ({"data": ["il_1"]}, Lines((), None, is_truncated=False)),
        (None, Lines((), None, is_truncated=False)),
        ([], Lines((), None, is_truncated=False)),
    ],
)
def test_lines(found: Any, expected: Lines) -> None:
    assert shapes.lines({"lines": found}) == expected


def test_any_reference() -> None:
    assert shapes.reference({"default_payment_method": {"id": "pm_1"}}, "default_payment_method") == Reading(
        "pm_1", "default_payment_method"
    )


@given(json_values(st.text()))
@CASES
def test_no_shape_makes_them_fail(value: Any) -> None:
    kinds = ["invoice", "line_item", "payment_intent", "subscription", "charge", "customer"]
    for kind in kinds:
        subject = {
            "object": kind,
            "customer": value,
            "parent": value,
            "payments": value,
            "charges": value,
            "items": value,
        }
        for read in (shapes.customer, shapes.subscription, shapes.charge, shapes.payment_intent):
            reading = read(subject)
            assert (reading.value is None) == (reading.problem is not None)
        shapes.current_period(subject)
        shapes.item_periods(subject)
        shapes.lines(subject, "items")


@given(st.permutations(["customer", "subscription", "parent", "object"]))
def test_reading_changes_nothing(names: list[str]) -> None:
    subject = dict.fromkeys(names, "invoice")
    before = dict(subject)
    shapes.subscription(subject)
    assert subject == before
