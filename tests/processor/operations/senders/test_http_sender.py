"""POST to another service: what each status and each silence proves, and looking first."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from onceflow_processor.operations.senders.http_sender import HttpSender
from onceflow_schemas.operations.calls import HttpCall
from onceflow_schemas.operations.evidence import Evidence, Proof
from onceflow_schemas.operations.operation import Policy
from tests.processor.operations.senders import operations
from tests.processor.operations.senders.operations import ID
from tests.processor.operations.senders.scripted import (
    Entry,
    Server,
    answer,
    cut,
    drip,
    hang_up,
    reset,
    scripted,
    silent,
)

CREDENTIALS = {"mailer": "re_canary"}


def ask(*entries: Entry, look: bool = False, total_seconds: float = 5.0, **changes: Any) -> tuple[Evidence, Server]:
    """What one send, or one look-up, proves."""

    async def scenario() -> tuple[Evidence, Server]:
        async with scripted(*entries) as server:
            call = HttpCall(url=server.url + "/mails", json={"to": "x"}, lookup=server.url + "/mails/{key}", **changes)
            sender = HttpSender(
                connect_seconds=min(2.0, total_seconds), total_seconds=total_seconds, credentials=CREDENTIALS
            )
            step, operation = operations.operation(call)
            evidence = await (sender.look_up if look else sender.send)(step, operation)
            await sender.close()
            return evidence, server

    return asyncio.run(scenario())


@pytest.mark.parametrize("policy", [Policy.IDEMPOTENT, Policy.AT_MOST_ONCE, Policy.RECONCILE_FIRST])
def test_the_frozen_body_is_posted_with_the_key(policy: Policy) -> None:
    evidence, server = ask(
        answer(201, {"id": "mail_1"}, X_Request_Id="r_1"), policy=policy, headers={"X-Shop": "1"}, credential="mailer"
    )
    assert (evidence.proof, evidence.external_id, evidence.http_status, evidence.request_id) == (
        Proof.DONE,
        "mail_1",
        201,
        "r_1",
    )
    (request,) = server.requests
    assert (request.method, request.target, request.body) == ("POST", "/mails", '{"to":"x"}')
    assert request.headers["idempotency-key"] == str(ID)
    assert request.headers["authorization"] == "Bearer re_canary"
    assert request.headers["x-shop"] == "1"
    assert request.headers["content-type"] == "application/json"
    assert "canary" not in repr(evidence)


def test_a_credential_that_is_not_set_sends_nothing() -> None:
    evidence, server = ask(answer(200, {}), credential="unset")
    assert (evidence.proof, evidence.code, server.requests) == (Proof.UNAUTHORISED, "no_credential", [])
    assert evidence.detail == "the credential unset is not set in operations.credentials of the workers"


@pytest.mark.parametrize(
    ("entry", "proof", "code"),
    [
        (answer(200, "thanks"), Proof.DONE, None),
        (answer(202, "[" * 100_000), Proof.DONE, None),
        (answer(204, ""), Proof.DONE, None),
        (answer(400, {}), Proof.REFUSED, "http_400"),
        (answer(404, ""), Proof.REFUSED, "http_404"),
        (answer(422, {}), Proof.REFUSED, "http_422"),
        (answer(401, {}), Proof.UNAUTHORISED, "http_401"),
        (answer(403, {}), Proof.UNAUTHORISED, "http_403"),
        (answer(408, ""), Proof.UNKNOWN, "http_408"),
        (answer(409, {}), Proof.BUSY, "http_409"),
        (answer(425, ""), Proof.UNKNOWN, "http_425"),
        (answer(429, ""), Proof.LIMITED, "http_429"),
        (answer(500, ""), Proof.UNKNOWN, "http_500"),
        (answer(503, "<html>"), Proof.UNKNOWN, "http_503"),
        (answer(301, "", Location="/elsewhere"), Proof.UNKNOWN, "http_301"),
        (answer(303, "", Location="/elsewhere"), Proof.UNKNOWN, "http_303"),
        (reset, Proof.UNKNOWN, "closed"),
        (hang_up, Proof.UNKNOWN, "closed"),
        (cut(answer(200, {"id": "x"}), keep=40), Proof.UNKNOWN, "closed"),
        (b"not http\r\n", Proof.UNKNOWN, "unreadable"),
        (answer(200, "x" * (9 << 20)), Proof.UNKNOWN, "too_large"),
    ],
)
def test_what_each_answer_proves(entry: Entry, proof: Proof, code: str | None) -> None:
    evidence, server = ask(entry)
    assert (evidence.proof, evidence.code) == (proof, code)
    assert len(server.requests) == 1, "nothing is repeated or followed"
    assert evidence.detail
    assert evidence.external_id is None


@pytest.mark.parametrize("entry", [silent, drip(answer(200, "{}"), pause_seconds=0.01)])
def test_one_deadline_bounds_silence_and_dripping(entry: Entry) -> None:
    evidence, _ = ask(entry, total_seconds=0.2)
    assert (evidence.proof, evidence.code) == (Proof.UNKNOWN, "deadline")


def test_a_refused_connection_has_sent_nothing() -> None:
    async def scenario() -> Evidence:
        async with scripted() as server:
            call = HttpCall(url=server.url + "/mails", lookup=server.url + "/mails/{key}")
        sender = HttpSender(connect_seconds=1, total_seconds=1, credentials={})
        step, operation = operations.operation(call)
        assert (await sender.look_up(step, operation)).proof is Proof.LOOKUP_FAILED
        return await sender.send(step, operation)

    assert asyncio.run(scenario()).proof is Proof.NOT_SENT


def test_what_is_asked_for_and_told_is_kept() -> None:
    assert ask(answer(429, "", Retry_After="3"))[0].retry_after_seconds == 3.0
    assert ask(answer(200, "", Idempotent_Replayed="true"))[0].replayed
    assert ask(answer(500, "", Idempotent_Replayed="true"))[0].proof is Proof.STORED_FAILURE


@pytest.mark.parametrize("body", ['{"id": 5}', '{"id": ""}', '{"id": "a\\u0000b"}', f'{{"id": "{"x" * 256}"}}', "[]"])
def test_an_id_that_is_none_is_not_kept(body: str) -> None:
    evidence, _ = ask(answer(200, body))
    assert (evidence.proof, evidence.external_id) == (Proof.DONE, None)


@pytest.mark.parametrize(
    ("entry", "proof"),
    [
        (answer(200, {"id": "mail_1"}), Proof.DONE),
        (answer(404, {}), Proof.ABSENT),
        (answer(204, ""), Proof.LOOKUP_FAILED),
        (answer(202, ""), Proof.LOOKUP_FAILED),
        (answer(400, ""), Proof.LOOKUP_FAILED),
        (answer(409, ""), Proof.LOOKUP_FAILED),
        (answer(410, ""), Proof.LOOKUP_FAILED),
        (answer(302, "", Location="/"), Proof.LOOKUP_FAILED),
        (answer(500, ""), Proof.LOOKUP_FAILED),
        (answer(429, ""), Proof.LIMITED),
        (answer(403, ""), Proof.UNAUTHORISED),
        (reset, Proof.LOOKUP_FAILED),
        (cut(answer(200, {"id": "x"}), keep=40), Proof.LOOKUP_FAILED),
    ],
)
def test_what_a_look_up_proves(entry: Entry, proof: Proof) -> None:
    evidence, server = ask(entry, look=True, policy=Policy.RECONCILE_FIRST, credential="mailer")
    assert (evidence.proof, evidence.from_lookup) == (proof, True)
    (request,) = server.requests
    assert (request.method, request.target, request.body) == ("GET", f"/mails/{ID}", "")
    assert request.headers["authorization"] == "Bearer re_canary"
    assert (evidence.external_id == "mail_1") == (proof is Proof.DONE)


def test_a_step_without_a_look_up_is_not_looked_up() -> None:
    step, operation = operations.operation(HttpCall(url="http://127.0.0.1:1/"))
    with pytest.raises(AssertionError):
        asyncio.run(HttpSender(connect_seconds=1, total_seconds=1, credentials={}).look_up(step, operation))
