"""Frozen steps: exactly what will be sent, the key, where to look, what must come back; and the way to JSON and back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import orjson
import pytest

from onceflow_schemas.operations.calls import Call, StripeCall
from onceflow_schemas.operations.freeze import closing_step, freeze, rekeyed, steps_from, steps_json
from onceflow_schemas.operations.operation import Policy, Step
from tests.schemas.operations.samples import CAPTURE, CHARGE, ID, MAIL, RAW, REFUND, http, operation

MARK = {"onceflow_operation": str(ID)}


def only(call: Call) -> Step:
    [step] = freeze(call, operation_id=ID)
    return step


def test_objects_carry_the_deployment_where_there_is_room_for_it() -> None:
    many = {f"key{number}": "x" for number in range(49)}
    for metadata, named in [({}, {"onceflow_deployment": "d1"}), (many, {})]:
        for call in (
            replace(CHARGE, metadata=metadata),
            replace(REFUND, params={**REFUND.params, "metadata": metadata}),
        ):
            [made, *_] = freeze(call, operation_id=ID, deployment="d1")
            assert made.request["params"]["metadata"] == {**metadata, **MARK, **named}


def test_a_refund() -> None:
    assert only(REFUND) == Step(
        name="call",
        kind="stripe",
        key=str(ID),
        policy=Policy.STRIPE,
        request={
            "method": "POST",
            "path": "/v1/refunds",
            "params": {"charge": "ch_1", "amount": 500, "metadata": MARK},
        },
        lookup={"list": "/v1/refunds", "params": {"charge": "ch_1"}, "retrieve": "/v1/refunds/{external_id}"},
        expect={"object": "refund", "operation": str(ID), "amount": 500, "charge": "ch_1", "currency": "usd"},
    )


def test_a_charge_has_three_steps() -> None:
    create, confirm, cancel = freeze(replace(CHARGE, off_session=True, metadata={"order": "7"}), operation_id=ID)
    assert [step.key for step in (create, confirm, cancel)] == [f"{ID}.create", f"{ID}.confirm", f"{ID}.cancel"]
    assert [step.policy for step in (create, confirm, cancel)] == [Policy.HARMLESS, Policy.FENCED, Policy.FENCED]
    assert create.request == {
        "method": "POST",
        "path": "/v1/payment_intents",
        "params": {
            "amount": 1099,
            "currency": "usd",
            "customer": "cus_1",
            "metadata": {"order": "7", **MARK},
            "automatic_payment_methods": {"enabled": True, "allow_redirects": "never"},
        },
    }
    assert confirm.request == {
        "method": "POST",
        "path": "/v1/payment_intents/{external_id}/confirm",
        "params": {"payment_method": "pm_1", "off_session": True},
    }
    assert cancel.request == {
        "method": "POST",
        "path": "/v1/payment_intents/{external_id}/cancel",
        "params": {"cancellation_reason": "abandoned"},
    }
    expect = {
        "object": "payment_intent",
        "operation": str(ID),
        "amount": 1099,
        "currency": "usd",
        "customer": "cus_1",
    }
    assert create.expect == confirm.expect == cancel.expect == expect
    assert confirm.lookup == cancel.lookup == {"retrieve": "/v1/payment_intents/{external_id}"}


@pytest.mark.parametrize(
    ("fields", "step", "params"),
    [
        ({"capture": False}, 0, {"capture_method": "manual"}),
        ({"description": "7 apples"}, 0, {"description": "7 apples"}),
        ({"create": {"statement_descriptor": "APPLES"}}, 0, {"statement_descriptor": "APPLES"}),
        ({"error_on_requires_action": True}, 1, {"error_on_requires_action": True}),
        ({"confirm": {"return_url": "https://example.com"}}, 1, {"return_url": "https://example.com"}),
    ],
)
def test_each_parameter_of_a_charge_stands_in_its_step(fields: dict[str, Any], step: int, params: Any) -> None:
    steps = freeze(replace(CHARGE, **fields), operation_id=ID)
    for place, frozen in enumerate(steps):
        for name, value in params.items():
            assert (frozen.request["params"].get(name) == value) == (place == step)


@pytest.mark.parametrize(
    "fields", [{"create": {"payment_method_types": ["card"]}}, {"confirm": {"return_url": "https://example.com"}}]
)
def test_a_choice_of_payment_methods_is_left_alone(fields: dict[str, Any]) -> None:
    create = freeze(replace(CHARGE, **fields), operation_id=ID)[0]
    assert "automatic_payment_methods" not in create.request["params"]


def test_a_change_of_one_object_is_fenced_by_it_and_leaves_its_metadata_alone() -> None:
    step = only(CAPTURE)
    assert step.policy is Policy.FENCED
    assert step.request["params"] == {"amount_to_capture": 900}
    assert step.lookup == {"retrieve": "/v1/payment_intents/pi_7"}
    assert step.expect == {"object": "payment_intent", "amount_received": 900}


def test_what_is_not_known_is_sent_as_it_is() -> None:
    step = only(RAW)
    assert (step.policy, step.lookup, step.expect) == (Policy.STRIPE, None, None)
    assert step.request == {"method": "POST", "path": "/v1/invoices/in_1/send", "params": {}}
    lookup = {"retrieve": "/v1/invoices/in_1", "statuses": {"paid": "done"}}
    assert only(StripeCall.post("/v1/invoices/in_1/pay", lookup=lookup)).lookup == lookup


def test_subscriptions_are_listed_with_the_ended_ones() -> None:
    step = only(
        StripeCall.post(
            "/v1/subscriptions", customer="cus_1", items=[{"price": "price_1"}], payment_behavior="default_incomplete"
        )
    )
    assert step.lookup is not None
    assert step.lookup["params"] == {"status": "all", "customer": "cus_1"}


def test_an_http_call() -> None:
    step = only(replace(http(Policy.RECONCILE_FIRST, lookup=True), credential="stock", headers={"X-Shop": "7"}))
    assert (step.kind, step.policy, step.key) == ("http", Policy.RECONCILE_FIRST, str(ID))
    assert step.request == {
        "method": "POST",
        "url": "https://stock.example.com/take",
        "headers": {"X-Shop": "7", "Content-Type": "application/json"},
        "body": '{"item":7}',
        "credential": "stock",
    }
    assert step.lookup == {
        "method": "GET",
        "url": f"https://stock.example.com/taken/{ID}",
        "headers": {"X-Shop": "7"},
        "credential": "stock",
    }


def test_a_content_type_of_ones_own_is_kept() -> None:
    step = only(replace(http(Policy.IDEMPOTENT), headers={"content-type": "application/vnd.shop+json"}))
    assert step.request["headers"] == {"content-type": "application/vnd.shop+json"}


def test_a_mail() -> None:
    step = only(MAIL)
    assert (step.kind, step.policy, step.lookup) == ("mail", Policy.AT_LEAST_ONCE, None)
    assert step.request == {
        "sender": "shop@example.com",
        "to": "ada@example.com",
        "subject": "Thank you",
        "text": "It is on its way.",
    }


@pytest.mark.parametrize("call", [REFUND, CHARGE, CAPTURE, RAW, MAIL, http(Policy.RECONCILE_FIRST, lookup=True)])
def test_steps_are_stored_and_read_as_they_were(call: Call) -> None:
    steps = freeze(call, operation_id=ID)
    assert steps_from(orjson.loads(orjson.dumps(steps_json(steps)))) == steps


def test_the_order_of_parameters_is_kept() -> None:
    call = StripeCall.post("/v1/customers", name="a", email="b@example.com", address={"line2": "x", "line1": "y"})
    stored = orjson.dumps(steps_json(freeze(call, operation_id=ID)))
    params = steps_from(orjson.loads(stored))[0].request["params"]
    assert list(params) == ["name", "email", "address", "metadata"]
    assert list(params["address"]) == ["line2", "line1"]


def test_the_cancel_of_a_surplus_intent_has_its_own_key() -> None:
    step = closing_step(operation(CHARGE, step="confirm", external_id="pi_1"), "pi_2")
    assert step.key == f"{ID}.cancel.pi_2"
    assert step.request["path"] == "/v1/payment_intents/pi_2/cancel"
    assert len(step.key) <= 255


@pytest.mark.parametrize("call", [REFUND, CHARGE, MAIL, CAPTURE, http(Policy.RECONCILE_FIRST, lookup=True)])
def test_steps_for_another_id_are_those_that_would_be_frozen_for_it(call: Call) -> None:
    again = UUID("11111111-60a5-5c0b-9b8e-6f0f5a2d7a11")
    stored = orjson.dumps(steps_json(freeze(call, operation_id=ID))).decode()
    assert steps_from(orjson.loads(rekeyed(stored, former=ID, again=again))) == freeze(call, operation_id=again)
