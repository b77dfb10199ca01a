"""Sending to Stripe: every answer, error and silence of the SDK, against a server that does what a script says."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import Any

import pytest
import stripe

from onceflow_processor.operations.senders.stripe_gateway import StripeAccess, StripeGateway, proof_of
from onceflow_schemas.operations.calls import StripeCall
from onceflow_schemas.operations.evidence import Evidence, Proof
from onceflow_schemas.operations.operation import Operation, Step
from onceflow_schemas.operations.request_checks import SDK_OPTIONS
from tests.processor.operations.senders import operations
from tests.processor.operations.senders.operations import CANCEL, CONFIRM, CREATE, ID, intent_object, refund_object
from tests.processor.operations.senders.scripted import (
    Entry,
    Server,
    answer,
    cut,
    drip,
    error,
    hang_up,
    reset,
    scripted,
    silent,
)

KEY = "sk_test_canary"
ACCESS = StripeAccess(account="acct_1", mode="test", api_key=KEY)


def gateway(url: str, *accesses: StripeAccess, total_seconds: float = 5.0) -> StripeGateway:
    return StripeGateway(
        accesses or [ACCESS], api_base=url, connect_seconds=min(2.0, total_seconds), total_seconds=total_seconds
    )


def send(
    *entries: Entry, what: tuple[Step, Operation] | None = None, total_seconds: float = 5.0
) -> tuple[Evidence, Server]:
    """What one send proves, and what the server saw."""

    async def scenario() -> tuple[Evidence, Server]:
        async with scripted(*entries) as server:
            sender = gateway(server.url, total_seconds=total_seconds)
            evidence = await sender.send(*(what or operations.refund()))
            await sender.close()
            return evidence, server

    return asyncio.run(scenario())


def ok(body: Any, **headers: str) -> bytes:
    return answer(200, body, Request_Id="req_1", **headers)


def test_a_success_is_judged_and_the_request_was_what_is_frozen() -> None:
    evidence, server = send(ok(refund_object(), Idempotency_Key=str(ID)))
    assert (evidence.proof, evidence.external_id, evidence.status) == (Proof.DONE, "re_1", "succeeded")
    assert (
        evidence.http_status,
        evidence.request_id,
        evidence.replayed,
        evidence.from_lookup,
    ) == (200, "req_1", False, False)
    (request,) = server.requests
    assert (request.method, request.target) == ("POST", "/v1/refunds")
    assert [("charge", "ch_1"), ("amount", "500"), ("metadata[onceflow_operation]", str(ID))] == request.form
    assert str(ID) == request.headers["idempotency-key"]
    assert f"Bearer {KEY}" == request.headers["authorization"]
    assert request.headers["stripe-version"] == "2026-10-28.endive"
    assert "stripe-account" not in request.headers


def test_each_send_of_a_step_has_the_same_bytes() -> None:
    async def scenario() -> None:
        async with scripted(ok(refund_object()), ok(refund_object())) as server:
            sender = gateway(server.url)
            for _ in range(2):
                await sender.send(*operations.refund())
            await sender.close()
            first, second = server.requests
            assert first == second
            assert "x-stripe-client-telemetry" not in second.headers

    asyncio.run(scenario())


def test_the_steps_of_a_charge_have_their_own_keys_paths_and_parameters() -> None:
    for step, path, key in (
        (CREATE, "/v1/payment_intents", f"{ID}.create"),
        (CONFIRM, "/v1/payment_intents/pi_1/confirm", f"{ID}.confirm"),
        (CANCEL, "/v1/payment_intents/pi_1/cancel", f"{ID}.cancel"),
    ):
        _, server = send(ok(intent_object()), what=operations.charge(step))
        (request,) = server.requests
        assert (path, key) == (request.target, request.headers["idempotency-key"])
        assert ("off_session" in dict(request.form)) == (step == CONFIRM)


def test_a_connected_account_is_called_with_the_platforms_key() -> None:
    async def scenario() -> None:
        async with scripted(ok(refund_object())) as server:
            access = StripeAccess(account="acct_1", mode="test", api_key="rk_test_platform", connected=True)
            await gateway(server.url, access).send(*operations.refund())
            (request,) = server.requests
            assert (
                request.headers["authorization"],
                request.headers["stripe-account"],
            ) == ("Bearer rk_test_platform", "acct_1")

    asyncio.run(scenario())


@pytest.mark.parametrize("change", [{"account": "acct_2"}, {"mode": "live"}])
def test_an_account_without_a_key_is_called_by_nobody(change: dict[str, Any]) -> None:
    step, operation = operations.refund()
    evidence, server = send(ok(refund_object()), what=(step, replace(operation, **change)))
    assert (evidence.proof, server.requests) == (Proof.UNAUTHORISED, [])
    assert evidence.detail == "no key is set for this account and mode"


def test_a_key_of_the_other_mode_is_refused_at_once() -> None:
    for mode, key in (("test", "sk_live_x"), ("live", "rk_test_x")):
        with pytest.raises(AssertionError):
            gateway("http://127.0.0.1:1", StripeAccess(account="acct_1", mode=mode, api_key=key))


PERMISSION = (
    "The provided key 'rk_test_*********abc' does not have the required permissions for this endpoint on account 'acct_1'. "
    "Having the 'rak_charge_write' permission would allow this request to continue."
)
LOCKED: dict[str, Any] = {"code": "lock_timeout", "type": "invalid_request_error"}

ANSWERS = [
    # Executed or refused, with certainty.
    (
        error(400, type="invalid_request_error", code="parameter_missing", param="amount"),
        Proof.REFUSED,
        "parameter_missing",
    ),
    (
        error(404, type="invalid_request_error", code="resource_missing", param="charge"),
        Proof.REFUSED,
        "resource_missing",
    ),
    (
        error(400, type="invalid_request_error", code="charge_already_refunded"),
        Proof.REFUSED,
        "charge_already_refunded",
    ),
    (error(402, type="card_error", code="card_declined", decline_code="lost_card"), Proof.DECLINED, "lost_card"),
    (error(402, type="card_error", code="authentication_required"), Proof.DECLINED, "authentication_required"),
    # The key was used before.
    (error(400, type="idempotency_error"), Proof.KEY_MISMATCH, "idempotency_error"),
    (error(404, type="idempotency_error"), Proof.KEY_MISMATCH, "idempotency_error"),
    (error(409, type="invalid_request_error", code="idempotency_key_in_use"), Proof.BUSY, "idempotency_key_in_use"),
    (error(409, type="idempotency_error", code="idempotency_key_in_use"), Proof.BUSY, "idempotency_key_in_use"),
    (error(409, type="invalid_request_error", code="lock_timeout"), Proof.BUSY, "lock_timeout"),
    # Before execution.
    (error(429, type="invalid_request_error", code="rate_limit"), Proof.LIMITED, "rate_limit"),
    (error(400, type="invalid_request_error", code="rate_limit"), Proof.LIMITED, "rate_limit"),
    (error(429, **LOCKED), Proof.LIMITED, "lock_timeout"),
    (
        error(429, headers={"Stripe_Rate_Limited_Reason": "endpoint-rate"}, type="invalid_request_error"),
        Proof.LIMITED,
        "endpoint-rate",
    ),
    (answer(429, "<html>slow down</html>"), Proof.LIMITED, None),
    (error(401, type="invalid_request_error"), Proof.UNAUTHORISED, "invalid_request_error"),
    (error(403, type="invalid_request_error", message=PERMISSION), Proof.UNAUTHORISED, "invalid_request_error"),
    (error(403, type="invalid_request_error", code="account_invalid"), Proof.UNAUTHORISED, "account_invalid"),
    # It may have happened.
    (error(500, type="api_error"), Proof.UNKNOWN, "api_error"),
    (error(503, type="api_error"), Proof.UNKNOWN, "api_error"),
    (error(424, type="api_error", code="external_dependency"), Proof.UNKNOWN, "external_dependency"),
    (error(418, type="api_error"), Proof.UNKNOWN, "api_error"),
    (answer(502, "<html>Bad Gateway</html>", Content_Type="text/html"), Proof.UNKNOWN, None),
    (answer(504, ""), Proof.UNKNOWN, None),
    (answer(500, {"unexpected": 1}), Proof.UNKNOWN, None),
    (answer(400, "<html>Bad Request</html>"), Proof.UNKNOWN, None),
    (answer(403, "<html>blocked</html>"), Proof.UNKNOWN, None),
    (answer(409, "<html>conflict</html>"), Proof.UNKNOWN, None),
    (answer(200, ""), Proof.UNKNOWN, None),
    (answer(200, "<html>welcome</html>"), Proof.UNKNOWN, None),
    (answer(200, '{"id": "re_1", "obj'), Proof.UNKNOWN, None),
    (answer(200, "[" * 100_000), Proof.UNKNOWN, None),
    (answer(200, "null"), Proof.UNKNOWN, "unreadable"),
    (answer(200, "[]"), Proof.UNKNOWN, "unreadable"),
    (answer(200, '"re_1"'), Proof.UNKNOWN, "unreadable"),
    (answer(200, {}), Proof.UNKNOWN, "unreadable"),
    (answer(200, {"id": 5}), Proof.UNKNOWN, "unreadable"),
    (answer(200, {"id": "../re_1"}), Proof.UNKNOWN, "unreadable"),
    (answer(200, {**refund_object(), "error": {"code": "x"}}), Proof.UNKNOWN, "unreadable"),
    (answer(204, ""), Proof.UNKNOWN, None),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n\xff\xfe", Proof.UNKNOWN, None),
    (b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\n\x1f\x8b\x08", Proof.UNKNOWN, None),
    # Elsewhere.
    (answer(301, "", Location="http://127.0.0.1:1/"), Proof.UNKNOWN, None),
    (answer(302, refund_object(), Location="/v1/refunds/re_1"), Proof.UNKNOWN, None),
    (answer(307, "", Location="/v1/refunds"), Proof.UNKNOWN, None),
    # What the SDK itself cannot read.
    (answer(400, {"error": []}), Proof.UNKNOWN, None),
    (answer(400, {"error": None}), Proof.UNKNOWN, None),
    (answer(400, {"error": "surprise"}), Proof.UNKNOWN, None),
    (answer(401, {"error": "invalid_client"}), Proof.UNKNOWN, None),
    (answer(500, "[1]"), Proof.UNKNOWN, None),
    # Silence after the request was written.
    (reset, Proof.UNKNOWN, "closed"),
    (hang_up, Proof.UNKNOWN, "closed"),
    (cut(ok(refund_object()), keep=20), Proof.UNKNOWN, "closed"),
    (cut(ok(refund_object()), keep=120), Proof.UNKNOWN, "closed"),
    (b"SSH-2.0-OpenSSH\r\n", Proof.UNKNOWN, "unreadable"),
]


@pytest.mark.parametrize(("entry", "proof", "code"), ANSWERS)
def test_what_each_answer_proves(entry: Entry, proof: Proof, code: str | None) -> None:
    evidence, server = send(entry)
    assert proof == evidence.proof, evidence
    if code is not None:
        assert code == evidence.code
    assert len(server.requests) == 1, "nothing is repeated or followed"
    assert evidence.detail
    assert not evidence.from_lookup
    assert KEY not in repr(evidence)
    assert "canary" not in repr(evidence)


@pytest.mark.parametrize("entry", [silent, drip(ok(refund_object()), pause_seconds=0.01)])
def test_one_deadline_bounds_a_silent_and_a_dripping_server(entry: Entry) -> None:
    evidence, _ = send(entry, total_seconds=0.3)
    assert (evidence.proof, evidence.code) == (Proof.UNKNOWN, "deadline")


def test_a_refused_connection_has_sent_nothing() -> None:
    async def scenario() -> Evidence:
        async with scripted() as server:
            pass
        return await gateway(server.url).send(*operations.refund())

    evidence = asyncio.run(scenario())
    assert (evidence.proof, evidence.code) == (Proof.NOT_SENT, "unreachable")


def test_a_cancelled_send_is_cancelled_and_nothing_else() -> None:
    async def scenario() -> None:
        arrived = asyncio.Event()

        async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            arrived.set()
            await silent(reader, writer)

        async with scripted(hold) as server:
            call = asyncio.create_task(gateway(server.url).send(*operations.refund()))
            await arrived.wait()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call

    asyncio.run(scenario())


def test_a_stored_answer_is_told_as_one() -> None:
    for entry in (
        ok(refund_object(), Idempotent_Replayed="true"),
        error(500, headers={"Idempotent_Replayed": "true"}, type="api_error"),
    ):
        assert send(entry)[0].replayed


def test_a_stored_failure_is_told_from_one_that_may_pass() -> None:
    stored = error(500, headers={"Idempotent_Replayed": "true"}, type="api_error")
    assert send(stored)[0].proof is Proof.STORED_FAILURE
    assert send(error(500, type="api_error"))[0].proof is Proof.UNKNOWN
    assert send(error(402, headers={"Idempotent_Replayed": "true"}, type="card_error"))[0].proof is Proof.DECLINED


def test_the_wait_that_is_asked_for_is_kept_also_when_the_body_is_no_json() -> None:
    for entry in (error(429, headers={"Retry_After": "7"}, **LOCKED), answer(429, "<html>", Retry_After="7")):
        assert send(entry)[0].retry_after_seconds == 7.0


def test_a_missing_permission_is_named_and_nothing_else_of_the_message_is_kept() -> None:
    evidence, _ = send(error(403, type="invalid_request_error", message=PERMISSION))
    assert evidence.detail == "the key lacks the permission rak_charge_write"
    evidence, _ = send(
        error(400, type="card_error", code="email_invalid", param="email", message="jane@example.com is none")
    )
    assert evidence.detail == "Stripe answered 400 (email_invalid, parameter email)"


def test_texts_that_are_no_codes_are_not_kept() -> None:
    evidence, _ = send(error(400, type="jane@example.com", code="Jane Doe", param="Jane <x>"))
    assert evidence.detail == "Stripe answered 400, in no form of its own"
    assert evidence.code is None


def test_an_answer_under_another_key_is_strange() -> None:
    evidence, _ = send(ok(refund_object(), Idempotency_Key="3f2c-random"))
    assert (evidence.proof, evidence.external_id) == (Proof.STRANGE, None)


@pytest.mark.parametrize(
    "change", [{"amount": 501}, {"charge": "ch_2"}, {"metadata": {}}, {"object": "charge"}, {"status": "quantum"}]
)
def test_an_answer_about_something_else_than_asked_is_strange(change: dict[str, Any]) -> None:
    assert send(ok(refund_object(**change)))[0].proof == Proof.STRANGE


@pytest.mark.parametrize("change", [{"id": "pi_2"}, {"amount": 1}, {"currency": "eur"}])
def test_a_confirm_that_answers_about_another_intent_is_strange(change: dict[str, Any]) -> None:
    assert send(ok(intent_object(**change)), what=operations.charge(CONFIRM))[0].proof == Proof.STRANGE


def declined(**changes: Any) -> bytes:
    intent = intent_object(status="requires_payment_method", amount_received=0, **changes)
    return error(402, type="card_error", code="card_declined", decline_code="lost_card", payment_intent=intent)


def test_a_decline_names_the_intent_that_it_leaves_behind() -> None:
    evidence, _ = send(declined(), what=operations.charge(CONFIRM))
    assert (evidence.proof, evidence.external_id) == (Proof.DECLINED, "pi_1")
    assert (evidence.code, evidence.status) == ("lost_card", "requires_payment_method")


def test_a_decline_of_another_intent_is_strange() -> None:
    assert send(declined(id="pi_2"), what=operations.charge(CONFIRM))[0].proof == Proof.STRANGE


def test_a_decline_of_what_is_no_intent_is_not_judged_by_the_intent_that_it_names() -> None:
    topup = operations.operation(StripeCall.post("/v1/topups", amount=5, currency="usd"))
    assert send(declined(metadata={}), what=topup)[0].proof == Proof.DECLINED


def test_a_notice_of_stripe_is_no_warning() -> None:
    assert send(ok(refund_object(), Stripe_Notice="upgrade now"))[0].proof == Proof.DONE


def test_nothing_of_request_or_answer_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        send(ok(refund_object()))
        send(error(400, code="x", message="canary"))
    assert not [record for record in caplog.records if "stripe" in record.name]
    assert KEY not in caplog.text
    assert "canary" not in caplog.text


def test_a_gateway_has_switched_telemetry_off() -> None:
    gateway("http://127.0.0.1:1")
    assert stripe.enable_telemetry is False


@pytest.mark.parametrize("name", sorted(SDK_OPTIONS))
def test_a_parameter_with_the_name_of_an_option_is_a_bug(name: str) -> None:
    step, operation = operations.refund()
    step = replace(step, request={**step.request, "params": {name: "x"}})
    with pytest.raises(AssertionError):
        send(ok(refund_object()), what=(step, operation))


def test_a_path_needs_the_id_that_it_asks_for() -> None:
    step, operation = operations.charge(CONFIRM)
    for external_id in (None, "", "pi/../../x", "pi_1?x"):
        with pytest.raises(AssertionError):
            send(ok(intent_object()), what=(step, replace(operation, external_id=external_id)))


def _classes(base: type[Any]) -> set[type[Any]]:
    return {base}.union(*(_classes(child) for child in base.__subclasses__()))


UNPLACED = {
    "APIConnectionError",  # by its cause
    "APIError",  # by its status
    "OAuthError",
    "SignatureVerificationError",
    "StripeError",
    "StripeErrorWithParamCode",
}
"""Classes that prove nothing by themselves; those of OAuth beside."""


def test_no_error_of_the_sdk_is_without_a_place() -> None:
    import stripe.oauth_error  # noqa: PLC0415  makes its classes known

    classes = _classes(stripe.StripeError)
    assert len(classes) > 30
    for one in classes:
        bare = Exception.__new__(one)
        bare.http_status = None
        proof = proof_of(bare)
        unplaced = one.__name__ in UNPLACED or one.__module__ == stripe.oauth_error.__name__
        assert unplaced == (proof is Proof.UNKNOWN), one
    assert Proof.UNKNOWN is proof_of(ValueError())
