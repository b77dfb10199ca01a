"""PaymentIntents through Stripe's own library: every status, and what each leaves behind."""

from __future__ import annotations

from typing import Any

import pytest
import stripe

from onceflow_simulator import Simulator
from tests.simulator.asking import pay, types


def create(client: stripe.StripeClient, **more: Any) -> Any:
    params = {"amount": 2000, "currency": "usd", "metadata": {"onceflow_operation": "op_1"}, **more}
    return client.v1.payment_intents.create(params)  # type: ignore[arg-type]


def confirm(client: stripe.StripeClient, id: str, method: str = "pm_card_visa", **more: Any) -> Any:
    return client.v1.payment_intents.confirm(id, {"payment_method": method, **more})  # type: ignore[arg-type]


def declined_intent(error: stripe.CardError) -> stripe.PaymentIntent:
    assert error.error is not None
    assert error.error.payment_intent is not None
    return error.error.payment_intent


def caused(event: stripe.Event) -> tuple[str | None, str | None]:
    assert event.request is not None
    return event.request.id, event.request.idempotency_key


def test_created_confirmed_succeeded(simulator: Simulator, client: stripe.StripeClient) -> None:
    intent = create(client)
    assert (intent.status, intent.latest_charge, intent.amount_received) == ("requires_payment_method", None, 0)
    assert simulator.ledger().count("charge") == 0
    done = confirm(client, intent.id)
    assert (done.status, done.amount_received, done.metadata.to_dict()) == (
        "succeeded",
        2000,
        {"onceflow_operation": "op_1"},
    )
    charge = client.v1.charges.retrieve(done.latest_charge)
    assert (charge.status, charge.captured, charge.payment_intent, charge.metadata["onceflow_operation"]) == (
        "succeeded",
        True,
        intent.id,
        "op_1",
    )
    assert types(client) == ["payment_intent.created", "charge.succeeded", "payment_intent.succeeded"]


def test_a_method_given_early_only_waits_for_confirmation(client: stripe.StripeClient) -> None:
    intent = create(client, payment_method="pm_card_visa")
    assert intent.status == "requires_confirmation"
    assert client.v1.payment_intents.confirm(intent.id).status == "succeeded"


def test_a_method_given_by_an_update(client: stripe.StripeClient) -> None:
    intent = create(client)
    updated = client.v1.payment_intents.update(intent.id, {"payment_method": "pm_card_visa", "amount": 2500})
    assert (updated.status, updated.amount) == ("requires_confirmation", 2500)


def test_without_a_method_nothing_is_confirmed(client: stripe.StripeClient) -> None:
    intent = create(client)
    with pytest.raises(stripe.InvalidRequestError) as refused:
        client.v1.payment_intents.confirm(intent.id)
    assert refused.value.code == "payment_intent_unexpected_state"


@pytest.mark.parametrize(
    ("method", "code", "decline_code"),
    [
        ("pm_card_chargeDeclined", "card_declined", "generic_decline"),
        ("pm_card_chargeDeclinedInsufficientFunds", "card_declined", "insufficient_funds"),
        ("pm_card_chargeDeclinedExpiredCard", "expired_card", None),
        ("pm_card_chargeDeclinedProcessingError", "processing_error", None),
    ],
)
def test_a_decline_leaves_an_intent_that_can_still_be_paid(
    simulator: Simulator, client: stripe.StripeClient, method: str, code: str, decline_code: str | None
) -> None:
    with pytest.raises(stripe.CardError) as declined:
        pay(client, payment_method=method)
    error = declined.value.error
    assert error is not None
    assert (declined.value.http_status, declined.value.code) == (402, code)
    assert error.decline_code == decline_code
    intent = client.v1.payment_intents.retrieve(declined_intent(declined.value).id)
    assert intent.status == "requires_payment_method"
    assert intent.last_payment_error is not None
    assert intent.last_payment_error.code == code
    assert intent.latest_charge == error.charge
    assert types(client) == ["payment_intent.created", "charge.failed", "payment_intent.payment_failed"]
    assert simulator.ledger().count("charge") == 0
    # The danger: whoever holds it confirms it later, and money moves after all.
    assert confirm(client, intent.id).status == "succeeded"
    assert simulator.ledger().count("charge", "op_1") == 1


def test_manual_capture(simulator: Simulator, client: stripe.StripeClient) -> None:
    intent = pay(client, capture_method="manual")
    assert (intent.status, intent.amount_capturable) == ("requires_capture", 2000)
    assert (simulator.ledger().count("authorization"), simulator.ledger().count("charge")) == (1, 0)
    with pytest.raises(stripe.InvalidRequestError) as refused:
        client.v1.payment_intents.capture(intent.id, {"amount_to_capture": 2001})
    assert refused.value.code == "amount_too_large"
    done = client.v1.payment_intents.capture(intent.id, {"amount_to_capture": 1500})
    assert (done.status, done.amount_received, done.amount_capturable) == ("succeeded", 1500, 0)
    assert simulator.ledger().amount("charge", "op_1") == 1500
    assert types(client)[1:] == [
        "charge.succeeded",
        "payment_intent.amount_capturable_updated",
        "charge.captured",
        "payment_intent.succeeded",
    ]


@pytest.mark.parametrize(
    ("method", "status", "charges"),
    [
        ("pm_usBankAccount_success", "succeeded", 1),
        ("pm_usBankAccount_insufficientFunds", "requires_payment_method", 0),
        ("pm_usBankAccount_processing", "processing", 0),
        ("pm_sepaDebit_success", "succeeded", 1),
    ],
)
def test_a_debit_settles_days_later(
    simulator: Simulator, client: stripe.StripeClient, method: str, status: str, charges: int
) -> None:
    simulator.set(processing_seconds=3 * 24 * 3600)
    intent = pay(client, payment_method=method)
    assert (intent.status, simulator.ledger().count("charge")) == ("processing", 0)
    simulator.advance(3 * 24 * 3600 - 60)
    assert client.v1.payment_intents.retrieve(intent.id).status == "processing"
    simulator.advance(120)
    assert client.v1.payment_intents.retrieve(intent.id).status == status
    assert simulator.ledger().count("charge", "op_1") == charges


def test_what_settles_by_itself_tells_of_no_request(simulator: Simulator, client: stripe.StripeClient) -> None:
    pay(client, key="k", payment_method="pm_usBankAccount_success")
    simulator.advance(10)
    newest, *_, oldest = client.v1.events.list({}).data
    assert (newest.type, caused(newest)) == ("payment_intent.succeeded", (None, None))
    assert caused(oldest)[1] == "k"
    assert newest.created >= oldest.created + 5
    assert simulator.ledger().entries[-1]["key"] == "k"


def test_a_debit_is_settled_or_failed_by_hand(simulator: Simulator, client: stripe.StripeClient) -> None:
    first, second = (pay(client, payment_method="pm_usBankAccount_processing").id for _ in range(2))
    simulator.act("settle", first)
    simulator.act("fail", second)
    assert client.v1.payment_intents.retrieve(first).status == "succeeded"
    assert client.v1.payment_intents.retrieve(second).status == "requires_payment_method"


@pytest.mark.parametrize(("succeeds", "status"), [(True, "succeeded"), (False, "requires_payment_method")])
def test_authentication(simulator: Simulator, client: stripe.StripeClient, *, succeeds: bool, status: str) -> None:
    intent = pay(client, payment_method="pm_card_authenticationRequired")
    assert (intent.status, intent.next_action.type) == ("requires_action", "use_stripe_sdk")
    simulator.act("authenticate" if succeeds else "fail_authentication", intent.id)
    assert client.v1.payment_intents.retrieve(intent.id).status == status
    assert simulator.ledger().count("charge") == int(succeeds)


@pytest.mark.parametrize("flags", [{"off_session": True}, {"error_on_requires_action": True}])
def test_nobody_is_there_to_authenticate(
    simulator: Simulator, client: stripe.StripeClient, flags: dict[str, bool]
) -> None:
    intent = create(client)
    with pytest.raises(stripe.CardError) as declined:
        confirm(client, intent.id, "pm_card_authenticationRequired", **flags)
    assert declined.value.code == "authentication_required"
    assert client.v1.payment_intents.retrieve(intent.id).status == "requires_payment_method"
    simulator.set(off_session_authentication="requires_action")
    if "off_session" in flags:
        assert confirm(client, intent.id, "pm_card_authenticationRequired", **flags).status == "requires_action"


@pytest.mark.parametrize("name", ["off_session", "error_on_requires_action"])
def test_what_belongs_to_the_confirm(client: stripe.StripeClient, name: str) -> None:
    with pytest.raises(stripe.InvalidRequestError) as refused:
        create(client, **{name: True})
    assert refused.value.param == name


def test_amount_to_confirm(simulator: Simulator, client: stripe.StripeClient) -> None:
    intent = create(client)
    with pytest.raises(stripe.InvalidRequestError) as refused:
        confirm(client, intent.id, amount_to_confirm=1999)
    assert refused.value.param == "amount_to_confirm"
    simulator.set(amount_to_confirm="ignored")
    assert confirm(client, intent.id, amount_to_confirm=1999).amount_received == 2000


@pytest.mark.parametrize(
    ("params", "cancelable"),
    [
        ({}, True),
        ({"payment_method": "pm_card_visa"}, True),
        ({"payment_method": "pm_card_authenticationRequired", "confirm": True}, True),
        ({"payment_method": "pm_card_visa", "confirm": True, "capture_method": "manual"}, True),
        ({"payment_method": "pm_card_visa", "confirm": True}, False),
        ({"payment_method": "pm_usBankAccount_processing", "confirm": True}, False),
    ],
)
def test_cancel(simulator: Simulator, client: stripe.StripeClient, params: dict[str, Any], *, cancelable: bool) -> None:
    intent = create(client, **params)
    if not cancelable:
        with pytest.raises(stripe.InvalidRequestError) as refused:
            client.v1.payment_intents.cancel(intent.id)
        assert refused.value.code == "payment_intent_unexpected_state"
        assert refused.value.error is not None
        assert refused.value.error.payment_intent is not None
        assert refused.value.error.payment_intent.status == intent.status
        assert simulator.ledger().count("cancel") == 0
        return
    gone = client.v1.payment_intents.cancel(intent.id, {"cancellation_reason": "abandoned"})
    assert (gone.status, gone.cancellation_reason, gone.amount_capturable) == ("canceled", "abandoned", 0)
    assert simulator.ledger().count("cancel", "op_1") == 1
    with pytest.raises(stripe.InvalidRequestError):
        confirm(client, intent.id)


def test_too_many_confirms_cancel_it(simulator: Simulator, client: stripe.StripeClient) -> None:
    simulator.set(confirms_max=2)
    intent = create(client)
    for _ in range(2):
        with pytest.raises(stripe.CardError):
            confirm(client, intent.id, "pm_card_chargeDeclined")
    assert confirm(client, intent.id).status == "canceled"
    assert simulator.ledger().count("charge") == 0


def test_lists_are_current_newest_first_with_cursors(client: stripe.StripeClient) -> None:
    customer = client.v1.customers.create({}).id
    made = [create(client, customer=customer).id for _ in range(5)]
    create(client)
    first = client.v1.payment_intents.list({"customer": customer, "limit": 2})
    assert ([one.id for one in first.data], first.has_more) == ([made[4], made[3]], True)
    second = client.v1.payment_intents.list({"customer": customer, "limit": 3, "starting_after": made[3]})
    assert ([one.id for one in second.data], second.has_more) == ([made[2], made[1], made[0]], False)
    back = client.v1.payment_intents.list({"customer": customer, "limit": 2, "ending_before": made[1]})
    assert ([one.id for one in back.data], back.has_more) == ([made[3], made[2]], True)
    every = client.v1.payment_intents.list({"customer": customer, "limit": 2}).auto_paging_iter()
    assert [one.id for one in every] == made[::-1]


def test_lists_by_time(simulator: Simulator, client: stripe.StripeClient) -> None:
    now = int(simulator.stop_clock(1_800_000_000))
    early = create(client).id
    simulator.advance(10)
    late = create(client).id

    def found(**created: int) -> list[str]:
        return [one.id for one in client.v1.payment_intents.list({"created": created}).data]  # type: ignore[arg-type]

    assert found(gte=now) == [late, early]
    assert found(gt=now) == [late]
    assert found(lt=now + 10) == [early]
    assert found(lte=now + 10, gte=now + 1) == [late]


def test_an_id_that_is_not_there(client: stripe.StripeClient) -> None:
    with pytest.raises(stripe.InvalidRequestError) as refused:
        client.v1.payment_intents.retrieve("pi_nothing")
    assert (refused.value.http_status, refused.value.code) == (404, "resource_missing")
    with pytest.raises(stripe.InvalidRequestError) as refused:
        client.v1.payment_intents.list({"starting_after": "pi_nothing"})
    assert (refused.value.http_status, refused.value.param) == (404, "starting_after")


def test_expand(client: stripe.StripeClient) -> None:
    intent = pay(client, expand=["latest_charge"])
    assert intent.latest_charge.status == "succeeded"
    (listed,) = client.v1.payment_intents.list({"expand": ["data.latest_charge"]}).data
    assert not isinstance(listed.latest_charge, str)
    plain = client.v1.payment_intents.retrieve(intent.id).latest_charge
    assert plain == intent.latest_charge.id
