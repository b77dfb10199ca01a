"""Scripted faults: each kind as a client sees it, what it did to the effect, and which requests it meets."""

from __future__ import annotations

import time

import pytest
import requests
import stripe

from onceflow_simulator import Simulator, SimulatorRefused
from onceflow_simulator.faults import FAULTS, Faults, Rule, Subject, merged
from tests.simulator.asking import get, pay, post, refund
from tests.simulator.conftest import Connect

BODY = "amount=2000&currency=usd&confirm=true&payment_method=pm_card_visa"
INTENTS = "/v1/payment_intents"


@pytest.mark.parametrize(("fault", "charges"), [("lost_request", 0), ("lost_answer", 1)])
def test_the_client_cannot_tell_a_lost_request_from_a_lost_answer(
    simulator: Simulator, client: stripe.StripeClient, fault: str, charges: int
) -> None:
    simulator.faults.add(fault)
    with pytest.raises(stripe.APIConnectionError) as lost:
        pay(client, key="k")
    assert lost.value.http_status is None
    assert simulator.ledger().count("charge") == charges
    (entry,) = simulator.journal()
    assert (entry["fault"], entry["method"], entry["path"], entry["key"], entry["metadata"]) == (
        fault,
        "POST",
        INTENTS,
        "k",
        {"onceflow_operation": "op_1"},
    )
    assert (entry["object"] is not None) == bool(charges)


def test_a_truncated_answer(simulator: Simulator) -> None:
    simulator.faults.lose_answer("truncated")
    with pytest.raises(requests.exceptions.ChunkedEncodingError):
        post(simulator.url, INTENTS, BODY)
    assert simulator.ledger().count("charge") == 1


def test_garbage_with_200(simulator: Simulator, client: stripe.StripeClient) -> None:
    """Bytes that are no UTF-8 escape the library's own errors; text that is no JSON does not."""
    simulator.faults.lose_answer("garbage")
    with pytest.raises(UnicodeDecodeError):
        pay(client)
    simulator.faults.lose_answer("garbage", body='{"id": "pi_')
    with pytest.raises(stripe.APIError) as odd:
        pay(client)
    assert odd.value.http_status == 200
    assert simulator.ledger().count("charge") == 2


def test_silence(simulator: Simulator, connect: Connect) -> None:
    simulator.faults.lose_answer("hang")
    begun = time.monotonic()
    with pytest.raises(stripe.APIConnectionError):
        pay(connect(timeout_seconds=0.3))
    assert time.monotonic() - begun < 5
    assert simulator.ledger().count("charge") == 1


def test_a_success_that_lands_after_a_first_look(
    simulator: Simulator, client: stripe.StripeClient, connect: Connect
) -> None:
    simulator.faults.land_late(seconds=30)
    with pytest.raises(stripe.APIConnectionError):
        pay(connect(timeout_seconds=0.3), key="k")
    assert client.v1.payment_intents.list({}).data == []
    with pytest.raises(stripe.APIError) as running:
        pay(client, key="k")
    assert running.value.http_status == 409
    simulator.advance(31)
    (found,) = client.v1.payment_intents.list({}).data
    assert simulator.journal()[0]["object"] == found.id
    assert simulator.journal()[0]["landed_at"] is not None
    assert pay(client, key="k").id == found.id
    assert simulator.ledger().count("charge") == 1


def test_whoever_still_waits_gets_the_late_answer(simulator: Simulator, client: stripe.StripeClient) -> None:
    simulator.faults.land_late(ms=300)
    assert pay(client).status == "succeeded"


@pytest.mark.parametrize("status", [502, 503, 504])
@pytest.mark.parametrize(("effect", "charges"), [("none", 0), ("now", 1)])
def test_a_page_of_a_proxy(simulator: Simulator, status: int, effect: str, charges: int) -> None:
    simulator.faults.add("proxy_error", status=status, effect=effect)
    page = post(simulator.url, INTENTS, BODY, key="k")
    assert (page.status_code, page.headers["Content-Type"]) == (status, "text/html")
    assert "Request-Id" not in page.headers
    assert page.text.startswith("<html>")
    assert simulator.ledger().count("charge") == charges
    assert post(simulator.url, INTENTS, BODY, key="k").status_code == 200
    assert simulator.ledger().count("charge") == 1


@pytest.mark.parametrize(
    ("fault", "status", "code"),
    [
        ("dependency_failed", 424, None),
        ("conflict", 409, "idempotency_key_in_use"),
        ("lock_timeout", 429, "lock_timeout"),
        ("rate_limited", 429, "rate_limit"),
        ("unauthorized", 401, "api_key_expired"),
        ("forbidden", 403, None),
        ("server_error", 500, None),
    ],
)
def test_errors_without_effect(simulator: Simulator, fault: str, status: int, code: str | None) -> None:
    simulator.faults.add(fault)
    answer = post(simulator.url, INTENTS, BODY)
    assert (answer.status_code, answer.json()["error"].get("code")) == (status, code)
    assert "Request-Id" in answer.headers
    assert simulator.ledger().count("charge") == 0


def test_429_with_and_without_reason(simulator: Simulator) -> None:
    simulator.faults.add("rate_limited", reason="endpoint-concurrency", retry_after=3)
    limited = post(simulator.url, INTENTS, BODY)
    assert limited.headers["Stripe-Rate-Limited-Reason"] == "endpoint-concurrency"
    assert limited.headers["Retry-After"] == "3"
    simulator.faults.add("lock_timeout")
    locked = post(simulator.url, INTENTS, BODY)
    assert "Stripe-Rate-Limited-Reason" not in locked.headers
    assert locked.json()["error"]["type"] == "invalid_request_error"


def test_429_is_a_rate_limit_error_of_the_library(simulator: Simulator, client: stripe.StripeClient) -> None:
    for fault in ("rate_limited", "lock_timeout"):
        simulator.faults.add(fault)
        with pytest.raises(stripe.RateLimitError) as limited:
            pay(client)
        assert limited.value.code is None


@pytest.mark.parametrize("advice", ["true", "false", None])
def test_should_retry(simulator: Simulator, advice: str | None) -> None:
    simulator.faults.add("server_error", should_retry=advice)
    answer = post(simulator.url, INTENTS, BODY)
    assert answer.headers.get("Stripe-Should-Retry") == advice


def test_should_retry_by_a_knob(simulator: Simulator) -> None:
    simulator.set(should_retry={"400": "false"})
    assert post(simulator.url, INTENTS, "amount=1").headers["Stripe-Should-Retry"] == "false"


def test_a_redirect_that_looks_like_success_to_whoever_follows_it(
    simulator: Simulator, client: stripe.StripeClient
) -> None:
    simulator.faults.add("redirect", times=2)
    answer = post(simulator.url, INTENTS, BODY)
    assert (answer.status_code, answer.headers["Location"]) == (302, "/v1/events?limit=1")
    assert pay(client).object == "list"
    assert simulator.ledger().count("charge") == 0


def test_200_without_a_body_and_with_an_error(simulator: Simulator, client: stripe.StripeClient) -> None:
    simulator.faults.add("empty_answer")
    with pytest.raises(stripe.APIError) as odd:
        pay(client)
    assert odd.value.http_status == 200
    simulator.faults.add("error_in_success")
    answer = post(simulator.url, INTENTS, BODY)
    assert (answer.status_code, "error" in answer.json()) == (200, True)
    assert simulator.ledger().count("charge") == 2


def test_another_object_than_asked_for(simulator: Simulator, client: stripe.StripeClient) -> None:
    simulator.faults.add("altered", set={"id": "pi_other", "amount": 1, "currency": "eur", "metadata.a": "b"})
    odd = pay(client, key="k")
    assert (odd.id, odd.amount, odd.currency, odd.metadata["a"]) == ("pi_other", 1, "eur", "b")
    assert pay(client, key="k").id == "pi_other"
    (real,) = client.v1.payment_intents.list({}).data
    assert (real.amount, real.currency) == (2000, "usd")


def test_lists_that_never_end(simulator: Simulator, client: stripe.StripeClient) -> None:
    made = [pay(client).id for _ in range(3)]

    def page(**more: object) -> stripe.ListObject[stripe.PaymentIntent]:
        return client.v1.payment_intents.list({"limit": 2, **more})  # type: ignore[arg-type]

    simulator.faults.add("repeat_page", times=None)
    assert [one.id for one in page().data] == [one.id for one in page(starting_after=made[1]).data] == made[:0:-1]
    assert page(starting_after=made[1]).has_more
    simulator.faults.clear()
    simulator.faults.add("endless_list", times=2)
    last = page(starting_after=made[1])
    assert ([one.id for one in last.data], last.has_more) == ([made[0]], True)
    again = page(starting_after=made[0])
    assert ([one.id for one in again.data], again.has_more) == (made[:0:-1], True)
    simulator.faults.add("empty_page")
    assert (page().data, simulator.journal()[-1]["fault"]) == ([], "empty_page")
    simulator.faults.add("item_without_id")
    assert "id" not in get(simulator.url, "/v1/payment_intents?limit=1").json()["data"][0]


def test_a_fault_of_lists_harms_nothing_else(simulator: Simulator) -> None:
    for fault in ("endless_list", "repeat_page", "empty_page", "item_without_id"):
        simulator.faults.add(fault)
        answer = post(simulator.url, INTENTS, BODY, key=fault)
        assert (answer.status_code, answer.json()["object"]) == (200, "payment_intent")
        assert simulator.ledger().count("charge", fault) == 1
        assert post(simulator.url, INTENTS, BODY, key=fault).headers["Idempotent-Replayed"] == "true"


def test_silence_ends_when_its_time_is_over(simulator: Simulator) -> None:
    simulator.faults.land_late(seconds=30, hang_ms=1000)
    begun = time.monotonic()
    with pytest.raises(requests.ConnectionError):
        post(simulator.url, INTENTS, BODY)
    assert 1.0 <= time.monotonic() - begun < 2.0


def test_a_page_of_a_proxy_may_hold_braces(simulator: Simulator) -> None:
    simulator.faults.add("proxy_error", body="<style>p {color: red}</style>{title}")
    page = post(simulator.url, INTENTS, BODY)
    assert (page.status_code, page.text) == (502, "<style>p {color: red}</style>502 Bad Gateway")


def test_fields_that_were_not_there_are_altered(simulator: Simulator) -> None:
    simulator.faults.add("altered", set={"last_payment_error.code": "odd", "payment_method_types.0": "cash"})
    odd = post(simulator.url, INTENTS, BODY, key="k").json()
    assert (odd["last_payment_error"], odd["payment_method_types"]) == ({"code": "odd"}, ["cash"])


def test_metadata_that_is_no_text_meets_no_rule(simulator: Simulator) -> None:
    simulator.faults.add("server_error", match={"metadata": {"a": "*b"}})
    assert post(simulator.url, INTENTS, BODY + "&metadata[a][b]=c").status_code == 400
    assert post(simulator.url, INTENTS, BODY + "&metadata[a]=b").status_code == 500


def test_latency(simulator: Simulator, client: stripe.StripeClient) -> None:
    simulator.set(latency_ms=150)
    begun = time.monotonic()
    pay(client)
    assert time.monotonic() - begun >= 0.15


@pytest.mark.parametrize(
    ("match", "meets"),
    [
        ({"path": "/v1/refunds"}, True),
        ({"path": "/v1/*"}, True),
        ({"path": "/v1/payment_intents"}, False),
        ({"method": "GET"}, False),
        ({"account": "acct_simulator"}, True),
        ({"account": "acct_other"}, False),
        ({"key": "op_r.*"}, True),
        ({"key": "op_2*"}, False),
        ({"metadata": {"onceflow_operation": "op_r"}}, True),
        ({"metadata": {"onceflow_operation": "op_*", "shop": "1"}}, False),
    ],
)
def test_which_requests_a_rule_meets(
    simulator: Simulator, client: stripe.StripeClient, match: dict[str, object], *, meets: bool
) -> None:
    intent = pay(client).id
    simulator.faults.add("server_error", match=match)
    if meets:
        with pytest.raises(stripe.APIError):
            refund(client, intent, key="op_r.1")
    else:
        refund(client, intent, key="op_r.1")


def test_a_template_meets_one_kind_of_call_and_the_objects_metadata_count(
    simulator: Simulator, client: stripe.StripeClient
) -> None:
    intent = client.v1.payment_intents.create({"amount": 2000, "currency": "usd", "metadata": {"shop": "b"}}).id
    simulator.faults.add(
        "server_error", match={"path": "/v1/payment_intents/{intent}/confirm", "metadata": {"shop": "b"}}
    )
    assert client.v1.payment_intents.retrieve(intent).id == intent
    with pytest.raises(stripe.APIError):
        client.v1.payment_intents.confirm(intent, {"payment_method": "pm_card_visa"})


def test_how_often(simulator: Simulator) -> None:
    simulator.faults.add("server_error", times=2, skip=1)
    statuses = [post(simulator.url, INTENTS, BODY).status_code for _ in range(5)]
    assert statuses == [200, 500, 500, 200, 200]
    rule = simulator.call("GET", "/faults")["rules"][0]
    assert (rule["matched"], rule["fired"]) == (3, 2)
    assert [entry["n"] for entry in simulator.journal()] == [1, 2]


def subject(key: str) -> Subject:
    return Subject(
        method="POST", path=INTENTS, template=INTENTS, account="acct_1", key=key, metadata={}, request_id="req_1"
    )


def test_a_seed_decides_by_key_and_not_by_order() -> None:
    keys = [f"op_{number}" for number in range(400)]

    def met(order: list[str], seed: int = 1) -> set[str]:
        faults = Faults(seed)
        faults.add(Rule(fault="lost_answer", probability=0.1, times=None))
        return {key for key in order if faults.pick(subject(key), now=0.0) is not None}

    assert met(keys) == met(keys[::-1])
    assert 20 <= len(met(keys)) <= 65
    assert met(keys) != met(keys, seed=2)


def test_every_name_makes_a_fault_and_fields_are_replaced() -> None:
    for name in FAULTS:
        assert merged(Rule(fault=name)).name == name
    fault = merged(Rule(fault="proxy_error", status=504, effect="late", late_seconds=5))
    assert (fault.status, fault.effect, fault.late_seconds, fault.reply) == (504, "late", 5, "canned")


def test_an_unknown_fault_is_refused(simulator: Simulator) -> None:
    with pytest.raises(SimulatorRefused, match="no fault 'lost_mind'; there are lost_request"):
        simulator.faults.add("lost_mind")
    with pytest.raises(SimulatorRefused, match=r"^there is no colour; there are fault, name, "):
        simulator.faults.add("slow", colour="red")
