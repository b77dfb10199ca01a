"""Idempotency keys: what is given again byte for byte, what is refused, what is forgotten."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
import requests
import stripe

from onceflow_simulator import Simulator
from onceflow_simulator.client import wait_until
from tests.simulator.asking import pay, post, refund

BODY = "amount=2000&currency=usd&confirm=true&payment_method=pm_card_visa"
DECLINED = "amount=2000&currency=usd&confirm=true&payment_method=pm_card_chargeDeclined"
INTENTS = "/v1/payment_intents"


def test_the_first_answer_is_given_again(simulator: Simulator) -> None:
    first = post(simulator.url, INTENTS, BODY, key="k")
    again = post(simulator.url, INTENTS, BODY, key="k")
    assert (again.status_code, again.content) == (200, first.content)
    assert again.headers["Idempotent-Replayed"] == "true"
    assert again.headers["Original-Request"] == first.headers["Request-Id"] != again.headers["Request-Id"]
    assert "Idempotent-Replayed" not in first.headers
    assert first.headers["Idempotency-Key"] == "k"
    assert simulator.ledger().count("charge") == 1


def test_a_decline_is_given_again(simulator: Simulator) -> None:
    first = post(simulator.url, INTENTS, DECLINED, key="k")
    again = post(simulator.url, INTENTS, DECLINED, key="k")
    assert first.status_code == again.status_code == 402
    assert again.content == first.content
    assert again.headers["Idempotent-Replayed"] == "true"
    assert simulator.ledger().count("intent") == 1


@pytest.mark.parametrize(("fault", "charges"), [("server_error", 0), ("server_error_with_effect", 1)])
def test_a_500_is_given_again_for_ever(simulator: Simulator, fault: str, charges: int) -> None:
    simulator.faults.add(fault)
    first = post(simulator.url, INTENTS, BODY, key="k")
    again = post(simulator.url, INTENTS, BODY, key="k")
    assert first.status_code == again.status_code == 500
    assert again.content == first.content
    assert again.headers["Idempotent-Replayed"] == "true"
    assert simulator.ledger().count("charge") == charges


def test_a_500_is_repaired_later_and_only_the_event_tells(simulator: Simulator, client: stripe.StripeClient) -> None:
    simulator.faults.add("server_error_repaired", late_seconds=600)
    assert post(simulator.url, INTENTS, BODY, key="k").status_code == 500
    assert client.v1.events.list({}).data == []
    simulator.advance(600)
    assert post(simulator.url, INTENTS, BODY, key="k").status_code == 500
    assert simulator.ledger().count("charge") == 1
    newest = client.v1.events.list({}).data[0]
    assert newest.request is not None
    assert (newest.type, newest.request.idempotency_key) == ("payment_intent.succeeded", "k")


def test_a_state_that_does_not_allow_it_is_kept(simulator: Simulator, client: stripe.StripeClient) -> None:
    """The endpoint had begun to execute: this 400 is an answer like any other."""
    intent = pay(client).id
    path = f"{INTENTS}/{intent}/cancel"
    assert [post(simulator.url, path, key="k").status_code for _ in range(2)] == [400, 400]
    assert post(simulator.url, path, key="k").headers["Idempotent-Replayed"] == "true"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (INTENTS, BODY.replace("2000", "2001")),
        (INTENTS, BODY + "&metadata[a]=b"),
        ("/v1/refunds", "payment_intent=pi_1"),
    ],
)
def test_another_request_with_the_key_is_refused(simulator: Simulator, path: str, body: str) -> None:
    post(simulator.url, INTENTS, BODY, key="k")
    refused = post(simulator.url, path, body, key="k")
    assert refused.status_code == 400
    assert refused.json()["error"]["type"] == "idempotency_error"
    assert "code" not in refused.json()["error"]
    assert simulator.ledger().count("charge") == 1
    assert post(simulator.url, INTENTS, BODY, key="k").status_code == 200


def test_the_order_of_parameters_is_no_difference(simulator: Simulator) -> None:
    post(simulator.url, INTENTS, BODY, key="k")
    again = post(simulator.url, INTENTS, "&".join(reversed(BODY.split("&"))), key="k")
    assert again.headers["Idempotent-Replayed"] == "true"


def test_the_version_is_compared_by_a_knob(simulator: Simulator) -> None:
    def ask(key: str, version: str) -> int:
        return post(simulator.url, INTENTS, BODY, key=key, Stripe_Version=version).status_code

    assert [ask("a", "2024-06-20"), ask("a", "2025-01-01")] == [200, 200]
    simulator.set(key_compares_version=True)
    assert [ask("b", "2024-06-20"), ask("b", "2025-01-01")] == [200, 400]


def test_the_library_sees_its_own_errors(client: stripe.StripeClient) -> None:
    pay(client, key="k")
    with pytest.raises(stripe.IdempotencyError) as refused:
        pay(client, key="k", amount=2100)
    assert refused.value.code is None


def in_background(ask: Callable[[], requests.Response]) -> tuple[threading.Thread, list[requests.Response]]:
    """Ask while the test goes on."""
    answers: list[requests.Response] = []
    thread = threading.Thread(target=lambda: answers.append(ask()))
    thread.start()
    return thread, answers


def test_a_second_request_while_the_first_runs(simulator: Simulator) -> None:
    simulator.faults.add("slow", latency_ms=1000)
    thread, answers = in_background(lambda: post(simulator.url, INTENTS, BODY, key="k"))
    wait_until(lambda: bool(simulator.journal()), "the first has begun", timeout_seconds=5)
    refused = post(simulator.url, INTENTS, BODY, key="k")
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "idempotency_key_in_use")
    thread.join(10)
    again = post(simulator.url, INTENTS, BODY, key="k")
    assert again.content == answers[0].content
    assert simulator.ledger().count("charge") == 1


def test_409_is_an_api_error_of_the_library(simulator: Simulator, client: stripe.StripeClient) -> None:
    simulator.faults.add("conflict")
    with pytest.raises(stripe.APIError) as refused:
        pay(client, key="k")
    assert (refused.value.http_status, refused.value.code) == (409, None)
    assert refused.value.error is not None
    assert refused.value.error.code == "idempotency_key_in_use"
    assert pay(client, key="k").status == "succeeded"


@pytest.mark.parametrize(
    ("fault", "status"),
    [("unauthorized", 401), ("forbidden", 403), ("rate_limited", 429), ("lock_timeout", 429), ("conflict", 409)],
)
def test_what_never_ran_leaves_the_key_free(simulator: Simulator, fault: str, status: int) -> None:
    simulator.faults.add(fault)
    assert post(simulator.url, INTENTS, BODY, key="k").status_code == status
    after = post(simulator.url, INTENTS, BODY, key="k")
    assert (after.status_code, "Idempotent-Replayed" in after.headers) == (200, False)


def test_a_refused_parameter_leaves_the_key_free(simulator: Simulator) -> None:
    assert post(simulator.url, INTENTS, BODY + "&colour=red", key="k").status_code == 400
    assert post(simulator.url, INTENTS, BODY, key="k").status_code == 200


def test_the_key_ends_after_a_day(simulator: Simulator) -> None:
    first = post(simulator.url, INTENTS, BODY, key="k")
    simulator.advance(24 * 3600 - 60)
    assert post(simulator.url, INTENTS, BODY, key="k").content == first.content
    simulator.advance(60)
    late = post(simulator.url, INTENTS, BODY, key="k")
    assert (late.status_code, late.json()["id"] == first.json()["id"]) == (200, False)
    assert simulator.ledger().count("charge") == 2


def test_keys_can_be_forgotten_at_once(simulator: Simulator) -> None:
    post(simulator.url, INTENTS, BODY, key="k")
    simulator.prune_keys()
    post(simulator.url, INTENTS, BODY, key="k")
    assert simulator.ledger().count("charge") == 2


def test_keys_belong_to_an_account_and_a_mode(simulator: Simulator) -> None:
    for headers in ({}, {"Stripe_Account": "acct_b"}, {"Stripe_Account": "acct_c"}):
        answer = post(simulator.url, INTENTS, BODY, key="k", **headers)
        assert (answer.status_code, "Idempotent-Replayed" in answer.headers) == (200, False)
    live = post(simulator.url, INTENTS, BODY, key="k", api_key="sk_live_raw")
    assert (live.status_code, live.json()["livemode"]) == (200, True)
    assert simulator.ledger().count("charge") == 4


@pytest.mark.parametrize(("key", "status"), [("k" * 255, 200), ("k" * 256, 400), ("ké", 400)])
def test_the_form_of_a_key(simulator: Simulator, key: str, status: int) -> None:
    answer = post(simulator.url, INTENTS, BODY, Idempotency_Key=key)
    assert answer.status_code == status


def test_a_key_means_nothing_on_get(simulator: Simulator, client: stripe.StripeClient) -> None:
    intent = client.v1.payment_intents.create({"amount": 2000, "currency": "usd"}).id
    options: stripe.RequestOptions = {"idempotency_key": "k"}
    assert client.v1.payment_intents.retrieve(intent, {}, options).status == "requires_payment_method"
    client.v1.payment_intents.confirm(intent, {"payment_method": "pm_card_visa"})
    assert client.v1.payment_intents.retrieve(intent, {}, options).status == "succeeded"


def test_a_lost_refund_is_replayed(simulator: Simulator, client: stripe.StripeClient) -> None:
    intent = pay(client).id
    simulator.faults.lose_answer()
    with pytest.raises(stripe.APIConnectionError):
        refund(client, intent, key="r", amount=700)
    assert refund(client, intent, key="r", amount=700).amount == 700
    assert simulator.ledger().amount("refund") == 700
