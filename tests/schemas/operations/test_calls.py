"""What an effect may return: checked where it is written down, with a stable code."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any, cast

import pytest

from onceflow_schemas.failure import Refused
from onceflow_schemas.operations.calls import HTTP_POLICIES, Call, Charge, HttpCall, Mail, StripeCall
from onceflow_schemas.operations.operation import Policy
from onceflow_schemas.operations.request_checks import SDK_OPTIONS, check_request

post = StripeCall.post
PAGE: dict[str, Any] = {"retrieve": "/v1/invoices/in_1", "statuses": {"paid": "done"}}


def charge(**fields: Any) -> Charge:
    good: dict[str, Any] = {"amount": 1099, "currency": "usd", "payment_method": "pm_1"}
    return Charge(**(good | fields))


def http(**fields: Any) -> HttpCall:
    return HttpCall(**({"url": "https://example.com/a"} | fields))


def mail(**fields: Any) -> Mail:
    good = {"sender": "shop@example.com", "to": "ada@example.com", "subject": "Hello", "text": "Hi"}
    return Mail(**(good | fields))


def deep(levels: int) -> Any:
    return {"a": deep(levels - 1)} if levels else 1


GOOD: list[Callable[[], Call]] = [
    lambda: post("/v1/refunds", charge="ch_1", amount=500),
    lambda: post("/v1/customers", name="Zoë", email=None, address={"line1": "a", "tags": ["x", "y"]}),
    lambda: post("/v1/customers/cus_1", description=""),
    lambda: post("/v1/payment_intents", amount=500, currency="usd", confirm=False),
    lambda: post("/v1/invoiceitems", customer="cus_1", amount=-500, currency="usd"),
    lambda: post("/v1/customers", metadata={f"k{n}": "v" * 500 for n in range(49)}),
    lambda: post("/v1/invoices/in_1/pay", lookup=PAGE),
    lambda: post("/v1/invoices/in_1/pay"),
    lambda: post("/v1/payment_intents/pi_1/confirm"),
    lambda: post("/v1/quotes/qt_1/accept"),
    lambda: post("/v1/transfers", amount=5, currency="usd", destination="acct_2"),
    lambda: post("/v1/payouts", amount=5, currency="usd"),
    lambda: post("/v1/topups", amount=5, currency="usd"),
    lambda: post("/v1/subscriptions", customer="cus_1", payment_behavior="default_incomplete"),
    lambda: post("/v1/subscriptions", customer="cus_1", collection_method="send_invoice", days_until_due=30),
    lambda: post("/v1/subscriptions", customer="cus_1", trial_period_days=30),
    lambda: post("/v1/subscriptions", customer="cus_1", trial_end=1_900_000_000),
    lambda: post("/v1/subscriptions/sub_1", cancel_at_period_end=True),
    lambda: post("/v1/subscriptions/sub_1", proration_behavior="create_prorations"),
    lambda: post("/v1/subscriptions/sub_1", proration_behavior="always_invoice", payment_behavior="default_incomplete"),
    lambda: StripeCall.refund(payment_intent="pi_1", amount=5120, currency="kwd", reason="duplicate"),
    lambda: StripeCall.capture("pi_1"),
    lambda: StripeCall.cancel("pi_1", cancellation_reason="abandoned"),
    charge,
    lambda: charge(metadata={"order": "7"}, confirm={"return_url": "https://example.com", "amount_to_confirm": 1099}),
    http,
    lambda: http(url="http://127.0.0.1:8080/a?b=c", json={"a": [1, "ü"]}, headers={"X-Shop": "7"}, credential="shop"),
    lambda: http(policy=Policy.RECONCILE_FIRST, lookup="https://example.com/{key}"),
    mail,
    lambda: mail(html="<p>Hi</p>", subject="Größe"),
]


@pytest.mark.parametrize("make", GOOD)
def test_calls_that_are_taken(make: Callable[[], Call]) -> None:
    assert make() == make()


REFUSED: list[tuple[str, Callable[[], Call]]] = [
    ("amount_refused", lambda: post("/v1/refunds", charge="ch_1", amount=5.0)),
    ("amount_refused", lambda: post("/v1/refunds", charge="ch_1", amount=0)),
    ("amount_refused", lambda: post("/v1/refunds", charge="ch_1", amount=-500)),
    ("amount_refused", lambda: post("/v1/refunds", charge="ch_1", amount="500")),
    ("amount_refused", lambda: post("/v1/transfers", amount=5124, currency="kwd", destination="acct_2")),
    ("amount_refused", lambda: post("/v1/payment_intents", amount=5, currency="usd", application_fee_amount=True)),
    ("amount_refused", lambda: StripeCall.refund(charge="ch_1", amount=5124, currency="kwd")),
    ("amount_refused", lambda: StripeCall.capture("pi_1", amount_to_capture=0)),
    ("amount_refused", lambda: charge(amount=10**13)),
    ("amount_refused", lambda: charge(confirm={"amount_to_confirm": 1})),
    ("currency_refused", lambda: post("/v1/payouts", amount=5, currency="USD")),
    ("currency_refused", lambda: charge(currency="xyz")),
    ("metadata_refused", lambda: post("/v1/customers", metadata={f"k{n}": "v" for n in range(50)})),
    ("metadata_refused", lambda: post("/v1/customers", metadata={"k" * 41: "v"})),
    ("metadata_refused", lambda: post("/v1/customers", metadata={"a[b]": "v"})),
    ("metadata_refused", lambda: post("/v1/customers", metadata={"": "v"})),
    ("metadata_refused", lambda: post("/v1/customers", metadata={"k": "v" * 501})),
    ("metadata_refused", lambda: post("/v1/customers", metadata={"k": 1})),
    ("metadata_refused", lambda: post("/v1/customers", metadata="k")),
    ("metadata_refused", lambda: post("/v1/customers", metadata={"onceflow_operation": "x"})),
    ("metadata_refused", lambda: charge(metadata={"onceflow_operation": "x"})),
    ("metadata_refused", lambda: charge(metadata={"onceflow_deployment": "x"})),
    ("charge_without_fence", lambda: post("/v1/charges", amount=5, currency="usd", source="tok_1")),
    ("charge_without_fence", lambda: post("/v1/payment_intents", amount=5, currency="usd", confirm=True)),
    ("charge_without_fence", lambda: post("/v1/payment_intents", amount=5, currency="usd", confirm="true")),
    ("charge_without_fence", lambda: post("/v1/subscriptions", customer="cus_1", items=[{"price": "price_1"}])),
    ("charge_without_fence", lambda: post("/v1/subscriptions", customer="cus_1", trial_end="now")),
    ("charge_without_fence", lambda: post("/v1/subscriptions/sub_1", proration_behavior="always_invoice")),
    ("charge_without_fence", lambda: post("/v1/subscriptions/sub_1", billing_cycle_anchor="now")),
    ("charge_without_fence", lambda: post("/v1/subscriptions/sub_1", trial_end="now")),
    ("charge_without_fence", lambda: post("/v1/subscription_items", proration_behavior="always_invoice")),
    ("charge_without_fence", lambda: post("/v1/subscription_items/si_1", proration_behavior="always_invoice")),
    ("operation_refused", lambda: post("/v1/Charges", amount=5, currency="usd")),
    ("operation_refused", lambda: post("/v1/CHARGES", amount=5, currency="usd")),
    ("operation_refused", lambda: post("/v1/Payment_Intents", amount=5, currency="usd", confirm=True)),
    ("amount_refused", lambda: post("/v1/refunds", charge="ch_1", amount=float("nan"))),
    ("amount_refused", lambda: post("/v1/refunds", charge="ch_1", amount=Decimal(5))),
    ("amount_refused", lambda: post("/v1/refunds", charge="ch_1", amount=2**70)),
    ("amount_refused", lambda: post("/v1/invoiceitems", price_data={"unit_amount": 1.5})),
    ("operation_refused", lambda: StripeCall("/v1/customers", {"\ud800": "b"})),
    ("operation_refused", lambda: post("/v1/customers", a={"\x00": "b"})),
    ("operation_refused", lambda: StripeCall("/v1/customers", cast("Any", {1: "b"}))),
    ("operation_refused", lambda: charge(description="\ud800")),
    ("operation_refused", lambda: charge(description="a\x00")),
    ("operation_refused", lambda: charge(description=5)),
    ("operation_refused", lambda: http(json={"a": float("nan")})),
    ("operation_refused", lambda: http(json={"a": "\ud800"})),
    ("operation_refused", lambda: http(json={"a\x00": 1})),
    ("operation_refused", lambda: post("/v2/core/accounts")),
    ("operation_refused", lambda: post("v1/refunds")),
    ("operation_refused", lambda: post("/v1/refunds?charge=ch_1")),
    ("operation_refused", lambda: post("/v1/../v1/refunds")),
    ("operation_refused", lambda: post("/v1/refunds/")),
    ("operation_refused", lambda: post("/v1/" + "a" * 300)),
    ("operation_refused", lambda: post("/v1/refunds", idempotency_key="k", charge="ch_1")),
    ("operation_refused", lambda: post("/v1/refunds", stripe_account="acct_2", charge="ch_1")),
    ("operation_refused", lambda: post("/v1/customers", name=1.5)),
    ("operation_refused", lambda: post("/v1/customers", name=object())),
    ("operation_refused", lambda: post("/v1/customers", name="a\x00b")),
    ("operation_refused", lambda: post("/v1/customers", name="\ud800")),
    ("operation_refused", lambda: post("/v1/customers", a=2**63)),
    ("operation_refused", lambda: post("/v1/customers", a={1: "b"})),
    ("operation_refused", lambda: post("/v1/customers", a=[None])),
    ("operation_refused", lambda: post("/v1/customers", a=deep(8))),
    ("operation_refused", lambda: post("/v1/customers", a="x" * 70_000)),
    ("operation_refused", lambda: post("/v1/invoices/in_1/pay", lookup={"retrieve": "/v1/invoices/in_1"})),
    ("operation_refused", lambda: post("/v1/invoices/in_1/pay", lookup=PAGE | {"statuses": {"paid": "good"}})),
    ("operation_refused", lambda: post("/v1/invoices/in_1/pay", lookup=PAGE | {"retrieve": "https://a"})),
    ("operation_refused", lambda: StripeCall.refund(amount=5)),
    ("operation_refused", lambda: StripeCall.refund(charge="ch_1", payment_intent="pi_1")),
    ("operation_refused", lambda: StripeCall.cancel("pi_1/../x")),
    ("operation_refused", lambda: charge(payment_method="pm/1")),
    ("operation_refused", lambda: charge(customer="")),
    ("operation_refused", lambda: charge(create={"confirm": True})),
    ("operation_refused", lambda: charge(confirm={"off_session": True})),
    ("operation_refused", lambda: http(url="ftp://example.com")),
    ("operation_refused", lambda: http(url="https://user:secret@example.com")),
    ("operation_refused", lambda: http(url="https://example.com/#a")),
    ("operation_refused", lambda: http(url="https://exämple.com")),
    ("operation_refused", lambda: http(url="https://[::1")),
    ("operation_refused", lambda: http(url="https:///a")),
    ("operation_refused", lambda: http(url="https://example.com/" + "a" * 2_048)),
    ("operation_refused", lambda: http(headers={"Authorization": "Bearer x"})),
    ("operation_refused", lambda: http(headers={"Idempotency-Key": "x"})),
    ("operation_refused", lambda: http(headers={"X-A": "b\r\nX-C: d"})),
    ("operation_refused", lambda: http(headers={"X A": "b"})),
    ("operation_refused", lambda: http(headers={f"X-{n}": "b" for n in range(33)})),
    ("operation_refused", lambda: http(json={"a": object()})),
    ("operation_refused", lambda: http(json={"a": "x" * 70_000})),
    ("operation_refused", lambda: http(json={}, body="")),
    ("operation_refused", lambda: http(body="x" * 300_000)),
    ("operation_refused", lambda: http(credential="a b")),
    ("operation_refused", lambda: http(policy=Policy.FENCED)),
    ("operation_refused", lambda: http(policy=Policy.RECONCILE_FIRST)),
    ("operation_refused", lambda: http(policy="reconcile_first")),
    ("operation_refused", lambda: http(policy="fenced")),
    ("operation_refused", lambda: http(policy="at_most_twice")),
    ("operation_refused", lambda: http(policy=None)),
    ("operation_refused", lambda: http(policy=["idempotent"])),
    ("operation_refused", lambda: http(lookup="no address")),
    ("operation_refused", lambda: mail(to="ada@example.com\r\nBcc: eve@example.com")),
    ("operation_refused", lambda: mail(to="ada")),
    ("operation_refused", lambda: mail(sender="Ada <ada@example.com>")),
    ("operation_refused", lambda: mail(subject="a\nb")),
    ("operation_refused", lambda: mail(subject="")),
    ("operation_refused", lambda: mail(text="a\x00")),
    ("operation_refused", lambda: mail(html=b"a")),
    ("operation_refused", lambda: mail(to=5)),
    ("operation_refused", lambda: charge(capture="no")),
    ("operation_refused", lambda: charge(capture=None)),
    ("operation_refused", lambda: charge(off_session="false")),
    ("operation_refused", lambda: charge(off_session=1)),
    ("operation_refused", lambda: charge(error_on_requires_action=0)),
    ("operation_refused", lambda: charge(create=[1])),
    ("operation_refused", lambda: charge(confirm="x")),
    ("operation_refused", lambda: http(headers=[1])),
    ("operation_refused", lambda: http(headers=None)),
    ("operation_refused", lambda: http(headers={"X-A": "1", "x-a": "2"})),
    ("operation_refused", lambda: http(credential=5)),
    ("operation_refused", lambda: http(body=False)),
    ("operation_refused", lambda: http(body=b"a")),
    ("operation_refused", lambda: http(url=5)),
    ("operation_refused", lambda: http(lookup=5)),
    ("operation_refused", lambda: http(lookup="https://example.com/taken")),
    ("operation_refused", lambda: http(lookup="https://example.com/{key}/{id}")),
    ("operation_refused", lambda: http(lookup="https://example.com/{key}}")),
    ("operation_refused", lambda: post("/v1/invoices/in_1/pay", lookup=cast("Any", "x"))),
    ("operation_refused", lambda: post("/v1/invoices/in_1/pay", lookup=PAGE | {"statuses": {"paid": ["done"]}})),
    ("operation_refused", lambda: StripeCall("/v1/customers", cast("Any", [1]))),
    ("operation_refused", lambda: StripeCall("/v1/customers", {}, None, cast("Any", "x"))),
    ("operation_refused", lambda: StripeCall.refund(payment_intent="")),
    ("operation_refused", lambda: StripeCall.refund(payment_intent=cast("Any", 5))),
    ("operation_refused", lambda: StripeCall.refund(charge="ch 1")),
    ("operation_refused", lambda: StripeCall.refund(charge="ch_1", reason="nope")),
    ("operation_refused", lambda: StripeCall.refund(charge="ch_1", reason=["duplicate"])),
    ("operation_refused", lambda: post("/v1/refunds", payment_intent="")),
    ("operation_refused", lambda: StripeCall.capture("")),
    ("operation_refused", lambda: StripeCall.capture(cast("Any", 5))),
    ("operation_refused", lambda: StripeCall.cancel(cast("Any", None))),
    ("operation_refused", lambda: StripeCall.cancel("pi_1", cancellation_reason="nope")),
    ("metadata_refused", lambda: post("/v1/customers", metadata={"a\x00": "b"})),
    ("metadata_refused", lambda: post("/v1/customers", metadata={"\ud800": "b"})),
    ("metadata_refused", lambda: post("/v1/customers", metadata={"a": "\x00"})),
    ("metadata_refused", lambda: post("/v1/customers", metadata={"a": "\ud800"})),
    ("metadata_refused", lambda: charge(metadata={"": "b"})),
    ("metadata_refused", lambda: charge(metadata=[("a", "b")])),
    ("metadata_refused", lambda: charge(metadata=None)),
]


@pytest.mark.parametrize(("code", "make"), REFUSED)
def test_calls_that_are_refused(code: str, make: Callable[[], Call]) -> None:
    with pytest.raises(Refused) as refused:
        make()
    assert refused.value.code == code


@pytest.mark.parametrize("policy", sorted(HTTP_POLICIES))
def test_a_policy_as_text_is_the_policy(policy: Policy) -> None:
    call = http(policy=policy.value, lookup="https://example.com/{key}")
    assert call.policy is policy
    assert call == http(policy=policy, lookup="https://example.com/{key}")


@pytest.mark.parametrize("name", sorted(SDK_OPTIONS))
def test_a_parameter_that_the_sdk_keeps_for_itself_is_refused(name: str) -> None:
    with pytest.raises(Refused, match=f" {name}: options of a call") as refused:
        StripeCall("/v1/customers", {name: "x"})
    assert refused.value.code == "operation_refused"


def test_what_is_none_is_left_out_and_the_rest_is_plain_json() -> None:
    call = post("/v1/customers", email=None, tags=("a", "b"))
    assert call.params == {"tags": ["a", "b"]}


def test_a_body_of_json_is_canonical() -> None:
    assert http(json={"b": 1, "a": "ü"}).text == '{"a":"ü","b":1}'
    assert http(body="plain").text == "plain"
    assert http().text == ""


NAME: dict[str, Any] = {"effect": "pay", "subject": "order-1", "occurrence": 1, "order_key": None, "account": "acct_1"}


def test_names_that_are_taken() -> None:
    check_request(**NAME)
    check_request(
        **(NAME | {"subject": "s" * 254 + " ", "order_key": "o 1/2", "occurrence": 2**31 - 1, "effect": "a.b-c_D"})
    )


@pytest.mark.parametrize(
    "field",
    [
        {"effect": ""},
        {"effect": "a b"},
        {"effect": "e" * 101},
        {"effect": None},
        {"subject": ""},
        {"subject": " "},
        {"subject": "   "},
        {"subject": "s" * 256},
        {"subject": "größe"},
        {"subject": "a\n"},
        {"subject": None},
        {"order_key": ""},
        {"order_key": "  "},
        {"order_key": "o" * 256},
        {"order_key": 7},
        {"occurrence": 0},
        {"occurrence": True},
        {"occurrence": 2**31},
        {"occurrence": "1"},
        {"account": "acct_"},
        {"account": "cus_1"},
        {"account": None},
    ],
)
def test_names_that_are_refused(field: dict[str, Any]) -> None:
    with pytest.raises(Refused) as refused:
        check_request(**(NAME | field))
    assert refused.value.code == "operation_refused"


@pytest.mark.parametrize("name", ["capture", "off_session", "error_on_requires_action"])
@pytest.mark.parametrize("value", ["no", "false", "", 0, 1, None])
def test_a_flag_is_true_or_false_and_nothing_else(name: str, value: object) -> None:
    """The text ``no`` is true to Python, and would take the money that was only to be held."""
    with pytest.raises(Refused, match="operation_refused"):
        Charge(amount=1500, currency="usd", payment_method="pm_1", **{name: value})  # type: ignore[arg-type]
