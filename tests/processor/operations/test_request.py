"""What may be asked for: everything is checked and frozen at the call."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any, cast

import pytest

from onceflow_processor.handlers import Handlers
from onceflow_processor.operations import request as request_module
from onceflow_processor.operations.effect import Effect
from onceflow_processor.operations.request import API_VERSION, Asked, RequestRules, make_request
from onceflow_schemas.failure import Refused
from onceflow_schemas.identity import operation_id
from onceflow_schemas.operations.calls import StripeCall

CREATED = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class From:
    account: str = "acct_1"
    mode: str = "test"
    created: datetime | None = CREATED


def refund(charge: str, amount: int = 5) -> StripeCall:
    return StripeCall.refund(charge=charge, amount=amount)


def deep(levels: int) -> Any:
    return {"a": deep(levels - 1)} if levels else 1


def ask(effect: Effect | None = None, *, registered: bool = True, **given: Any) -> Asked:
    handlers = Handlers()
    chosen = handlers.effect("refund_fee")(refund) if effect is None else effect
    effects = {chosen.name: chosen} if registered else {}
    values: dict[str, Any] = {
        "subject": "in_1", "occurrence": 1, "order_key": None, "account": None, "args": {"charge": "ch_1"}, "cause": "c",
    }  # fmt: skip
    rules = RequestRules(frozenset({"acct_1", "acct_2"}), effects)
    return make_request(chosen, origin=From(), rules=rules, **{**values, **given})


def effect_of(function: Any) -> Effect:
    return Handlers().effect("some")(function)


def test_everything_is_frozen() -> None:
    one = ask(args={"charge": "ch_1", "amount": 7}, order_key="cus_1", occurrence=2, account="acct_2")
    made = operation_id(account="acct_2", mode="test", effect="refund_fee", subject="in_1", occurrence=2)
    assert one.id == made
    assert (one.account, one.mode, one.effect, one.subject, one.occurrence, one.order_key) == (
        "acct_2", "test", "refund_fee", "in_1", 2, "cus_1",
    )  # fmt: skip
    assert one.args == b'{"amount":7,"charge":"ch_1"}'
    assert one.args_sha256 == hashlib.sha256(b'{"amount":7,"charge":"ch_1"}\x00cus_1').digest()
    assert (one.kind, one.cause, one.api_version, one.happened_at) == ("stripe", "c", API_VERSION, CREATED)
    [step] = json.loads(one.steps)
    assert (step["name"], step["kind"], step["key"], step["policy"]) == ("call", "stripe", str(made), "stripe")
    assert step["request"]["path"] == "/v1/refunds"


def test_the_account_is_the_events_own_unless_named() -> None:
    assert ask().account == "acct_1"


def test_the_order_of_arguments_is_no_difference() -> None:
    first, second = (
        ask(args=dict(pairs)) for pairs in ([("charge", "c"), ("amount", 1)], [("amount", 1), ("charge", "c")])
    )
    assert first.args_sha256 == second.args_sha256


def test_what_was_left_out_is_not_what_was_given() -> None:
    """A default may change with a deploy; what was asked for may not."""
    assert ask(args={"charge": "ch_1"}).args_sha256 != ask(args={"charge": "ch_1", "amount": 5}).args_sha256


def test_another_place_in_an_order_is_another_wish() -> None:
    keys = [None, "customer-1", "customer-2"]
    assert len({ask(order_key=key).args_sha256 for key in keys}) == len(keys)
    assert ask(order_key="customer-1").args_sha256 == ask(order_key="customer-1").args_sha256


def test_an_effect_gets_a_copy() -> None:
    given = {"charge": {"id": "ch_1"}}

    def changes(charge: dict[str, Any]) -> StripeCall:
        charge["id"] = "other"
        return refund("ch_1")

    ask(effect_of(changes), args=given)
    assert given == {"charge": {"id": "ch_1"}}


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"subject": ""}, "subject"),
        ({"subject": "a\nb"}, "subject"),
        ({"subject": "ü"}, "subject"),
        ({"subject": "x" * 256}, "subject"),
        ({"subject": 5}, "subject"),
        ({"order_key": ""}, "order_key"),
        ({"occurrence": 0}, "occurrence"),
        ({"occurrence": True}, "occurrence"),
        ({"occurrence": 1.0}, "occurrence"),
        ({"occurrence": 2**31}, "occurrence"),
        ({"account": "cus_1"}, "account"),
        ({"args": {"charge": float("nan")}}, "effect 'refund_fee': charge is nan, which is no number of JSON"),
        ({"args": {"charge": "\ud800"}}, "charge holds characters that cannot be sent"),
        ({"args": {"charge": {"a": ["b", "c\x00"]}}}, r"charge\[a\] holds characters that cannot be sent"),
        ({"args": {"charge": {"\udfff": 1}}}, "charge: a key is"),
        ({"args": {"\ud800": 1}}, "the arguments: a key is"),
        ({"args": {"charge": deep(65)}}, "nested deeper than 64 levels"),
        ({"args": {"charge": CREATED}}, "its arguments are not plain JSON: a value is of type datetime"),
        ({"args": {"charge": 2**70}}, "its arguments are not plain JSON"),
        ({"args": {"charge": "x" * 100_001}}, "its arguments are longer than 100000 bytes"),
    ],
)
def test_what_cannot_be_kept_is_refused(given: dict[str, Any], why: str) -> None:
    with pytest.raises(Refused, match=why) as refused:
        ask(**given)
    assert refused.value.code == "operation_refused"


@pytest.mark.parametrize(
    ("args", "code"),
    [
        ({"charge": "ch_1", "amount": -5}, "amount_refused"),
        ({"charge": "ch_1", "amount": 1.5}, "amount_refused"),
        ({"charge": "ch_1", "amount": 10**18}, "amount_refused"),
        ({"charge": "ch_1", "amount": 2**70}, "amount_refused"),
        ({"charge": "ch_1", "amount": -(2**70)}, "amount_refused"),
        ({"charge": "ch_1", "amount": float("nan")}, "amount_refused"),
        ({"charge": "ch_1", "amount": float("-inf")}, "amount_refused"),
        ({"charge": "ch_1", "amount": Decimal(5)}, "amount_refused"),
        ({"charge": "ch_1", "amount": Fraction(5)}, "amount_refused"),
        ({"charge": "ch_1", "amount": "5"}, "amount_refused"),
        ({"charge": "ch_1", "amount": True}, "amount_refused"),
        ({"charge": "ch_1", "lines": [{"unit_amount": Decimal(5)}]}, "amount_refused"),
        ({"charge": "ch_1", "lines": {"a": {"amount": float("inf")}}}, "amount_refused"),
        ({}, "arguments_refused"),
        ({"amount": 5}, "arguments_refused"),
        ({"charg": "ch_1"}, "arguments_refused"),
        ({"charge": "ch_1", "more": 1}, "arguments_refused"),
        ({"charge": None}, "operation_refused"),
    ],
)
def test_what_stripe_would_refuse_is_refused_here(args: dict[str, Any], code: str) -> None:
    with pytest.raises(Refused) as refused:
        ask(args=args)
    assert refused.value.code == code


def test_an_amount_that_python_does_not_even_write() -> None:
    for amount in (10**5000, -(10**5000)):
        with pytest.raises(Refused, match="amount is <int>, not an integer of minor units"):
            ask(args={"charge": "ch_1", "amount": amount})
        with pytest.raises(Refused, match="amount has more than twelve digits"):
            StripeCall.refund(charge="ch_1", amount=amount)


def test_a_call_that_could_charge_twice_is_refused() -> None:
    with pytest.raises(Refused) as refused:
        ask(effect_of(lambda: StripeCall.post("/v1/charges", amount=5, currency="usd")), args={})
    assert refused.value.code == "charge_without_fence"


async def _later() -> StripeCall:
    return refund("ch_1")


class _Hides:
    """What inspect does not take for a coroutine function."""

    def __call__(self) -> object:
        return _later()


@pytest.mark.parametrize("returned", [None, {"path": "/v1/refunds"}, "x", StripeCall])
def test_what_is_no_call_is_refused(returned: Any) -> None:
    with pytest.raises(Refused, match="not a call such as StripeCall"):
        ask(effect_of(lambda: returned), args={})


def test_an_awaitable_is_refused_and_closed() -> None:
    with pytest.raises(Refused, match="returned coroutine, not a call"):
        ask(effect_of(_Hides()), args={})


def test_wrong_arguments_are_told_with_the_effects_name() -> None:
    with pytest.raises(Refused, match="effect 'refund_fee': missing a required argument: 'charge'"):
        ask(args={})
    with pytest.raises(Refused, match="effect 'refund_fee': got an unexpected keyword argument 'charg'"):
        ask(args={"charge": "ch_1", "charg": "ch_1"})


def test_what_the_function_raises_comes_out() -> None:
    def wrong() -> StripeCall:
        return refund()  # type: ignore[call-arg]

    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        ask(effect_of(wrong), args={})


def test_another_account_has_a_code_of_its_own() -> None:
    with pytest.raises(Refused, match="acct_3 is not an account of this deployment") as refused:
        ask(account="acct_3")
    assert refused.value.code == "account_not_served"


def test_an_effect_of_other_handlers_is_refused() -> None:
    with pytest.raises(Refused, match="it is not registered with the handlers that run here") as refused:
        ask(registered=False)
    assert refused.value.code == "effect_not_registered"


@pytest.mark.parametrize("wrong", [refund, "refund_fee", None])
def test_only_an_effect_can_be_asked_for(wrong: Any) -> None:
    rules = RequestRules(frozenset({"acct_1"}), None)
    with pytest.raises(Refused, match=r"effect_not_registered: .* is no effect: ask with what"):
        make_request(
            cast("Effect", wrong), subject="s", occurrence=1, order_key=None, account=None, args={}, cause="c",
            origin=From(), rules=rules,
        )  # fmt: skip


def test_a_frozen_call_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_module, "STEPS_BYTES_MAX", 100)
    with pytest.raises(Refused, match="its call is longer than 100 bytes"):
        ask()
