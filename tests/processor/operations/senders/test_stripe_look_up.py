"""Looking up at Stripe: by id, and by lists that are complete, repeat themselves, never end or make no sense."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from onceflow_processor.operations.senders import stripe_gateway as module
from onceflow_processor.operations.senders.stripe_gateway import StripeAccess, StripeGateway
from onceflow_schemas.operations.calls import StripeCall
from onceflow_schemas.operations.evidence import Evidence, Proof
from onceflow_schemas.operations.operation import Operation, Step
from tests.processor.operations.senders import operations
from tests.processor.operations.senders.operations import CONFIRM, CREATE, intent_object, refund_object
from tests.processor.operations.senders.scripted import (
    Entry,
    Server,
    answer,
    cut,
    drip,
    error,
    reset,
    scripted,
    silent,
)


def look_up(
    *entries: Entry,
    what: tuple[Step, Operation] | None = None,
    total_seconds: float = 5.0,
    how: dict[str, Any] | None = None,
) -> tuple[Evidence, Server]:
    """What one look-up proves, and what the server saw."""

    async def scenario() -> tuple[Evidence, Server]:
        async with scripted(*entries) as server:
            access = StripeAccess(account="acct_1", mode="test", api_key="sk_test_1", connected=True)
            gateway = StripeGateway(
                [access], api_base=server.url, connect_seconds=min(2.0, total_seconds), total_seconds=total_seconds
            )
            evidence = await gateway.look_up(*(what or operations.refund()), how=how)
            await gateway.close()
            return evidence, server

    return asyncio.run(scenario())


def page(*objects: Any, more: bool = False) -> bytes:
    return answer(200, {"object": "list", "url": "/v1/refunds", "data": list(objects), "has_more": more})


def other(number: int) -> dict[str, Any]:
    return refund_object(id=f"re_other_{number}", metadata={"onceflow_operation": "another"})


def test_the_list_is_filtered_by_the_server_and_matched_here() -> None:
    evidence, server = look_up(page(other(1), refund_object(), other(2)))
    assert (evidence.proof, evidence.external_id, evidence.from_lookup) == (Proof.DONE, "re_1", True)
    (request,) = server.requests
    assert (request.method, request.target.partition("?")[0]) == ("GET", "/v1/refunds")
    # One hour before 2026-01-01T12:00:00Z.
    assert request.query == {"created[gte]": "1767265200", "charge": "ch_1", "limit": "100"}
    assert request.headers["stripe-account"] == "acct_1"
    assert request.headers["stripe-version"] == "2026-10-28.endive"
    assert "idempotency-key" not in request.headers


def test_what_is_found_is_judged() -> None:
    assert look_up(page(refund_object(status="pending")))[0].proof is Proof.PROCESSING
    assert look_up(page(refund_object(status="failed")))[0].proof is Proof.ENDED
    assert look_up(page(refund_object(amount=1)))[0].proof is Proof.STRANGE


def test_nothing_of_ours_in_a_complete_list_is_absence() -> None:
    for entry in (page(), page(other(1), refund_object(id="re_2", metadata=None))):
        evidence, _ = look_up(entry)
        assert (evidence.proof, evidence.from_lookup) == (Proof.ABSENT, True)


def test_all_pages_are_read_one_after_the_other() -> None:
    evidence, server = look_up(page(other(1), other(2), more=True), page(other(3), more=True), page(refund_object()))
    assert evidence.proof is Proof.DONE
    assert [request.query.get("starting_after") for request in server.requests] == [None, "re_other_2", "re_other_3"]


def test_one_of_ours_on_a_first_page_does_not_end_the_reading() -> None:
    evidence, _ = look_up(page(refund_object(), more=True), page(refund_object(id="re_2")))
    assert evidence.proof is Proof.SEVERAL
    assert evidence.object == {"ids": ["re_1", "re_2"]}


def test_an_intent_is_looked_up_by_its_id_once_that_is_known() -> None:
    evidence, server = look_up(answer(200, intent_object()), what=operations.charge(CONFIRM))
    assert (evidence.proof, evidence.external_id, evidence.http_status) == (Proof.DONE, "pi_1", 200)
    assert evidence.from_lookup
    assert server.requests[0].target == "/v1/payment_intents/pi_1"
    _, server = look_up(page(), what=operations.charge(CREATE))
    assert server.requests[0].query["customer"] == "cus_1"


def test_another_object_may_be_looked_at() -> None:
    _, server = look_up(answer(200, refund_object()), how={"retrieve": "/v1/refunds/re_7"})
    assert server.requests[0].target == "/v1/refunds/re_7"


@pytest.mark.parametrize(
    ("entry", "code"),
    [
        pytest.param(page(more=True), "unreadable", id="empty page says more"),
        pytest.param(page({"object": "refund", "metadata": {}}), "unreadable", id="entry without id"),
        pytest.param(page({"id": 5, "metadata": {}}), "unreadable", id="id that is a number"),
        pytest.param(page({"id": "re_1"}), "unreadable", id="entry without metadata"),
        pytest.param(page(None), "unreadable", id="null entry"),
        pytest.param(page(refund_object(), refund_object()), "repeated", id="twice in a page"),
        pytest.param(
            answer(200, {"object": "list", "data": [], "has_more": "false"}), "unreadable", id="has_more is text"
        ),
        pytest.param(answer(200, {"object": "list", "data": []}), "unreadable", id="no has_more"),
        pytest.param(answer(200, {"object": "list", "has_more": False}), "unreadable", id="no data"),
        pytest.param(
            answer(200, {"object": "list", "data": {}, "has_more": False}), "unreadable", id="data is no list"
        ),
        pytest.param(answer(200, {"data": [], "has_more": False}), "unreadable", id="no list"),
        pytest.param(
            answer(200, {"object": "list", "data": [], "has_more": False, "error": {}}),
            "unreadable",
            id="an error beside",
        ),
        pytest.param(answer(200, "[]"), "unreadable", id="no object"),
        pytest.param(answer(200, ""), None, id="empty"),
        pytest.param(answer(502, "<html>"), None, id="html"),
        pytest.param(answer(302, "", Location="/v1/charges"), None, id="redirect"),
        pytest.param(error(500, type="api_error"), "api_error", id="500"),
        pytest.param(error(400, type="invalid_request_error", code="parameter_unknown"), "parameter_unknown", id="400"),
        pytest.param(error(404, type="invalid_request_error", code="resource_missing"), "resource_missing", id="404"),
        pytest.param(reset, "closed", id="reset"),
        pytest.param(cut(page(), keep=60), "closed", id="truncated"),
    ],
)
def test_a_list_that_cannot_be_believed_proves_nothing(entry: Entry, code: str | None) -> None:
    evidence, _ = look_up(entry)
    assert (evidence.proof, evidence.from_lookup) == (Proof.LOOKUP_FAILED, True)
    assert code is None or evidence.code == code
    assert evidence.detail


def test_a_page_that_comes_again_ends_the_reading() -> None:
    same = page(other(1), more=True)
    evidence, server = look_up(same, same, same)
    assert (evidence.proof, evidence.code, len(server.requests)) == (Proof.LOOKUP_FAILED, "repeated", 2)


def test_a_list_without_an_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOKUP_PAGES_MAX", 3)
    evidence, server = look_up(*(page(other(number), more=True) for number in range(5)))
    assert (evidence.proof, evidence.code, len(server.requests)) == (Proof.LOOKUP_FAILED, "too_many", 3)


def test_a_failure_on_a_later_page_proves_nothing() -> None:
    evidence, _ = look_up(page(refund_object(), more=True), error(500, type="api_error"))
    assert (evidence.proof, evidence.external_id) == (Proof.LOOKUP_FAILED, None)


@pytest.mark.parametrize("entry", [silent, drip(page(), pause_seconds=0.01)])
def test_one_deadline_bounds_a_look_up(entry: Entry) -> None:
    evidence, _ = look_up(entry, total_seconds=0.3)
    assert (evidence.proof, evidence.code) == (Proof.LOOKUP_FAILED, "deadline")


def test_all_pages_together_have_one_deadline() -> None:
    slow = [drip(page(other(number), more=True), pause_seconds=0.0005) for number in range(40)]
    evidence, server = look_up(*slow, total_seconds=0.6)
    assert (evidence.proof, evidence.code) == (Proof.LOOKUP_FAILED, "deadline")
    assert len(server.requests) < 40


def test_limits_and_a_refused_key_are_told_as_such() -> None:
    evidence, _ = look_up(error(429, headers={"Retry_After": "4"}, code="rate_limit"))
    assert (evidence.proof, evidence.from_lookup, evidence.retry_after_seconds) == (Proof.LIMITED, True, 4.0)
    evidence, _ = look_up(error(403, message="Having the 'rak_refund_read' permission would allow this"))
    assert (evidence.proof, evidence.from_lookup) == (Proof.UNAUTHORISED, True)
    assert evidence.detail == "the key lacks the permission rak_refund_read"


def test_a_stored_object_that_does_not_exist_is_for_a_person() -> None:
    evidence, _ = look_up(
        error(404, type="invalid_request_error", code="resource_missing"), what=operations.charge(CONFIRM)
    )
    assert (evidence.proof, evidence.from_lookup, evidence.code) == (Proof.STRANGE, True, "resource_missing")


@pytest.mark.parametrize(
    ("entry", "proof"),
    [
        (answer(200, intent_object(status="requires_payment_method", amount_received=0)), Proof.OPEN),
        (answer(200, intent_object(amount_received=1)), Proof.STRANGE),
        (answer(200, intent_object(livemode=True)), Proof.STRANGE),
        (answer(200, "null"), Proof.LOOKUP_FAILED),
        (answer(200, {"error": {}}), Proof.LOOKUP_FAILED),
        (error(500, type="api_error"), Proof.LOOKUP_FAILED),
        (error(400, type="invalid_request_error"), Proof.LOOKUP_FAILED),
        (reset, Proof.LOOKUP_FAILED),
    ],
)
def test_what_a_read_of_one_object_proves(entry: Entry, proof: Proof) -> None:
    evidence, _ = look_up(entry, what=operations.charge(CONFIRM))
    assert (evidence.proof, evidence.from_lookup) == (proof, True)


def test_an_id_that_does_not_fit_in_a_path_is_not_asked_for() -> None:
    evidence, server = look_up(page(), how={"retrieve": "/v1/refunds/../charges?x"})
    assert (evidence.proof, server.requests) == (Proof.LOOKUP_FAILED, [])


def test_a_step_without_a_look_up_is_not_looked_up() -> None:
    with pytest.raises(AssertionError):
        look_up(what=operations.operation(StripeCall.post("/v1/tax/transactions", reference="x")))
