"""Rate limits: per account and per endpoint, by rate and by what is in flight, before the idempotency keys."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import stripe

from onceflow_simulator import Simulator
from onceflow_simulator.knobs import Knobs
from onceflow_simulator.limits import Limits
from tests.simulator.asking import get, pay, post

INTENTS = "/v1/payment_intents"
BODY = "amount=2000&currency=usd&confirm=true&payment_method=pm_card_visa"


def let_through(limits: Limits, knobs: Knobs, *, endpoint: str, at: float, asked: int) -> int:
    return sum(limits.refusal(endpoint, knobs, now=at) is None for _ in range(asked))


def test_a_bucket_fills_at_its_rate() -> None:
    limits, knobs = Limits(), Knobs(account_per_second=10)
    assert let_through(limits, knobs, endpoint="/a", at=0.0, asked=30) == 10
    assert let_through(limits, knobs, endpoint="/b", at=0.5, asked=30) == 5
    assert let_through(limits, knobs, endpoint="/b", at=60.0, asked=30) == 10
    assert limits.refusal("/a", knobs, now=60.0) == "global-rate"


def test_endpoints_have_buckets_of_their_own_and_search_another_rate() -> None:
    limits, knobs = Limits(), Knobs(endpoint_per_second=5, search_per_second=2)
    assert let_through(limits, knobs, endpoint="/v1/a", at=0.0, asked=9) == 5
    assert let_through(limits, knobs, endpoint="/v1/b", at=0.0, asked=9) == 5
    assert let_through(limits, knobs, endpoint="/v1/charges/search", at=0.0, asked=9) == 2
    assert limits.refusal("/v1/a", knobs, now=0.0) == "endpoint-rate"


def test_what_is_in_flight() -> None:
    limits, knobs = Limits(), Knobs(endpoint_concurrency=1, account_concurrency=2)
    limits.enter("/a")
    assert limits.refusal("/a", knobs, now=0.0) == "endpoint-concurrency"
    assert limits.refusal("/b", knobs, now=0.0) is None
    limits.enter("/b")
    assert limits.refusal("/c", knobs, now=0.0) == "global-concurrency"
    limits.leave("/a")
    assert limits.refusal("/a", knobs, now=0.0) is None


def test_updates_of_one_object_within_an_hour() -> None:
    limits, knobs = Limits(), Knobs(updates_per_hour=2)
    times = (0.0, 1.0, 2.0, 3600.0)
    assert [limits.object_refusal("pi_1", knobs, now=at) for at in times] == [None, None, "resource-specific", None]
    assert limits.object_refusal("pi_2", knobs, now=2.0) is None


def test_the_rate_over_the_wire(simulator: Simulator) -> None:
    simulator.set(account_per_second=5, burst_seconds=1, retry_after=True)
    answers = [get(simulator.url, INTENTS) for _ in range(12)]
    refused = [answer for answer in answers if answer.status_code == 429]
    assert len(refused) >= 4
    assert {answer.headers["Stripe-Rate-Limited-Reason"] for answer in refused} == {"global-rate"}
    assert {answer.headers["Retry-After"] for answer in refused} == {"1"}
    assert get(simulator.url, INTENTS, Stripe_Account="acct_other").status_code == 200


def test_a_refused_request_is_not_kept_under_its_key(simulator: Simulator) -> None:
    simulator.set(endpoint_per_second=0.01)
    assert [post(simulator.url, INTENTS, BODY, key="k").status_code for _ in range(3)] == [200, 429, 429]
    simulator.set(endpoint_per_second=None)
    assert post(simulator.url, INTENTS, BODY, key="k").headers["Idempotent-Replayed"] == "true"
    assert simulator.ledger().count("charge") == 1


def test_concurrency_over_the_wire(simulator: Simulator) -> None:
    simulator.set(endpoint_concurrency=2, latency_ms=300)
    with ThreadPoolExecutor(6) as pool:
        statuses = list(pool.map(lambda _n: post(simulator.url, INTENTS, BODY).status_code, range(6)))
    assert statuses.count(200) >= 2
    assert statuses.count(429) >= 1
    assert simulator.ledger().count("charge") == statuses.count(200)


def test_one_intent_too_often(simulator: Simulator, client: stripe.StripeClient) -> None:
    simulator.set(updates_per_hour=3)
    intent = client.v1.payment_intents.create({"amount": 2000, "currency": "usd"}).id
    for number in range(3):
        client.v1.payment_intents.update(intent, {"description": str(number)})
    with pytest.raises(stripe.RateLimitError) as limited:
        client.v1.payment_intents.update(intent, {"description": "4"})
    assert limited.value.headers is not None
    assert limited.value.headers["Stripe-Rate-Limited-Reason"] == "resource-specific"
    assert pay(client).status == "succeeded"
