"""What is refused before an endpoint begins to execute."""

from __future__ import annotations

from typing import Any

import pytest
import stripe

from onceflow_simulator import Simulator
from onceflow_simulator.errors import StripeError
from onceflow_simulator.validation import Spec, check
from tests.simulator import sdk_parameters
from tests.simulator.asking import get, pay, post, refund

INTENTS = "/v1/payment_intents"


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        ("currency=usd", "parameter_missing", "amount"),
        ("amount=2000", "parameter_missing", "currency"),
        ("amount=&currency=usd", "parameter_missing", "amount"),
        ("amount=2000&currency=usd&colour=red", "parameter_unknown", "colour"),
        ("amount=20.5&currency=usd", "parameter_invalid_integer", "amount"),
        ("amount=-5&currency=usd", "parameter_invalid_integer", "amount"),
        ("amount=9999999999999999999999&currency=usd", "parameter_invalid_integer", "amount"),
        ("amount=49&currency=usd", "amount_too_small", "amount"),
        ("amount=100000000&currency=usd", "amount_too_large", "amount"),
        ("amount=5124&currency=kwd", "invalid_charge_amount", "amount"),
        ("amount=2000&currency=xyz", None, "currency"),
        ("amount=2000&currency=usd%0A", None, "currency"),
        ("amount=2000&currency[a]=usd", None, "currency"),
        ("amount=2000&currency=usd&application_fee_amount=some", "parameter_invalid_integer", "application_fee_amount"),
        ("amount=2000&currency=usd&confirm=perhaps", None, "confirm"),
        ("amount=2000&currency=usd&capture_method=never", None, "capture_method"),
        ("amount=2000&currency=usd&metadata[a][b]=c", None, "metadata[a]"),
        ("amount=2000&currency=usd&metadata=text", None, "metadata"),
        ("a[b=1", None, "a[b"),
    ],
)
def test_a_parameter_is_refused(simulator: Simulator, body: str, code: str | None, param: str) -> None:
    answer = post(simulator.url, INTENTS, body)
    error = answer.json()["error"]
    assert (answer.status_code, error["type"], error.get("code"), error["param"]) == (
        400,
        "invalid_request_error",
        code,
        param,
    )
    assert simulator.ledger().entries == []


@pytest.mark.parametrize(("currency", "amount"), [("usd", 99_999_999), ("jpy", 9899), ("kwd", 5120), ("USD", 2000)])
def test_amounts_in_whole_units_of_their_currency(client: stripe.StripeClient, currency: str, amount: int) -> None:
    intent = pay(client, currency=currency, amount=amount)
    assert (intent.amount_received, intent.currency) == (amount, currency.lower())
    assert refund(client, intent.id).amount == amount


@pytest.mark.parametrize(
    ("metadata", "refused"),
    [
        ({f"k{number}": "v" for number in range(50)}, False),
        ({f"k{number}": "v" for number in range(51)}, True),
        ({"k" * 40: "v"}, False),
        ({"k" * 41: "v"}, True),
        ({"k": "v" * 500}, False),
        ({"k": "v" * 501}, True),
        ({"k": "é☃"}, False),
    ],
)
def test_metadata(client: stripe.StripeClient, metadata: dict[str, str], *, refused: bool) -> None:
    if refused:
        with pytest.raises(stripe.InvalidRequestError):
            pay(client, metadata=metadata)
    else:
        assert pay(client, metadata=metadata).metadata.to_dict() == metadata


def test_metadata_is_merged_and_unset(client: stripe.StripeClient) -> None:
    intent = pay(client, metadata={"a": "1", "b": "true"}).id
    changed: Any = client.v1.payment_intents.update(intent, {"metadata": {"c": "3"}})
    assert changed.metadata.to_dict() == {"a": "1", "b": "true", "c": "3"}
    assert post_metadata(client, intent, {"a": ""}) == {"b": "true", "c": "3"}
    assert post_metadata(client, intent, "") == {}


def post_metadata(client: stripe.StripeClient, intent: str, metadata: Any) -> dict[str, str]:
    return dict(client.raw_request("post", f"{INTENTS}/{intent}", metadata=metadata).data["metadata"])


def test_an_address_that_is_not_there(simulator: Simulator) -> None:
    answer = post(simulator.url, "/v1/payment_intent")
    assert (answer.status_code, answer.json()["error"]["type"]) == (404, "invalid_request_error")
    assert "Unrecognized request URL (POST: /v1/payment_intent)" in answer.json()["error"]["message"]
    assert get(simulator.url, "/").status_code == 404


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/transfers", "currency=usd&destination=acct_1"),
        ("/v1/customers", "balance=much"),
        ("/v1/prices/price_1", "unit_amount=much"),
        ("/v1/webhook_endpoints", "url=http://127.0.0.1:9&enabled_events=*"),
    ],
)
def test_elsewhere_too(simulator: Simulator, path: str, body: str) -> None:
    answer = post(simulator.url, path, body)
    assert (answer.status_code, answer.json()["error"]["type"]) == (400, "invalid_request_error")


def test_an_amount_is_a_number_wherever_it_stands(client: stripe.StripeClient) -> None:
    params: Any = {"amount": 2000, "currency": "usd", "application_fee_amount": 100}
    assert client.v1.payment_intents.create(params).application_fee_amount == 100


def test_a_body_that_is_no_form(simulator: Simulator) -> None:
    assert post(simulator.url, INTENTS, b"amount=\xff").status_code == 400
    assert post(simulator.url, INTENTS, b"x" * 1_000_001).status_code == 413
    assert post(simulator.url, INTENTS, "&".join(f"a{n}=1" for n in range(2001))).status_code == 400


def test_names_are_those_of_stripes_library() -> None:
    """Stripe's own library says which parameters there are; the copy is what it says now."""
    assert sdk_parameters.kept() == sdk_parameters.read()
    assert len(sdk_parameters.kept()) > 80


def test_what_a_spec_says_holds() -> None:
    spec = Spec(required=("a",), whole={"b": (1, 5)}, more=("old",))
    known = frozenset({"a", "b"})
    check({"a": "1", "b": "5", "old": "x"}, spec, known=known)
    check({"a": "1", "new": "x"}, spec, known=None)
    for params in ({}, {"a": "1", "b": "6"}, {"a": "1", "new": "x"}, {"a": {}, "b": "1"}):
        with pytest.raises(StripeError):
            check(params, spec, known=known)
