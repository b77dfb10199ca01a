"""POST to any other service: what its status, or its silence, proves.

Rule: a whole 2xx is done, a 4xx was refused, and everything between (5xx, redirects, timeouts, half an answer) is
``UNKNOWN``; what follows from that is the step's policy.  Every request carries the step's key.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from onceflow_processor.operations.senders.connection import Answer
from onceflow_processor.operations.senders.exchange import Exchange, NoAnswer, retry_after_seconds
from onceflow_schemas.operations.evidence import Evidence, Proof
from onceflow_schemas.operations.operation import Operation, Step

_ID_CHARACTERS_MAX = 255

_REFUSALS: Mapping[int, Proof] = {
    401: Proof.UNAUTHORISED,
    403: Proof.UNAUTHORISED,
    408: Proof.UNKNOWN,
    409: Proof.BUSY,
    425: Proof.UNKNOWN,
    429: Proof.LIMITED,
}
"""Statuses below 500 that are no refusal of what was asked."""


class HttpSender:
    """A ``Sender`` for steps of kind ``http``.

    Args:
        connect_seconds, total_seconds: as in ``Exchange``.
        credentials: name to value, sent as ``Authorization: Bearer``; what is frozen holds the name only.
    """

    def __init__(self, *, connect_seconds: float, total_seconds: float, credentials: Mapping[str, str]) -> None:
        self.seconds_max = total_seconds
        self._credentials = dict(credentials)
        self._exchange = Exchange(connect_seconds=connect_seconds, total_seconds=total_seconds)

    async def send(self, step: Step, operation: Operation) -> Evidence:
        """POST the frozen body once."""
        del operation
        assert step.request["method"] == "POST", "only POST is sent"
        answer = await self._ask(step.request, {"Idempotency-Key": step.key})
        return answer if isinstance(answer, Evidence) else _from_answer(answer)

    async def look_up(self, step: Step, operation: Operation, *, how: Mapping[str, Any] | None = None) -> Evidence:
        """Ask whether the effect is there: 200 says yes, 404 says no, anything else says nothing."""
        del operation
        how = how or step.lookup
        assert how is not None, "a step without a look-up is not looked up"
        assert how["method"] == "GET", "a look-up only reads"
        answer = await self._ask(how, {})
        evidence = answer if isinstance(answer, Evidence) else _from_look_up(answer)
        if evidence.proof in {Proof.UNKNOWN, Proof.NOT_SENT}:
            return replace(evidence, proof=Proof.LOOKUP_FAILED, from_lookup=True)
        return replace(evidence, from_lookup=True)

    async def close(self) -> None:
        """Let go of connections."""
        await self._exchange.close()

    async def _ask(self, frozen: Mapping[str, Any], added: Mapping[str, str]) -> Answer | Evidence:
        headers = {**frozen.get("headers", {}), **added}
        if (name := frozen.get("credential")) is not None:
            if name not in self._credentials:
                detail = f"the credential {name} is not set in operations.credentials of the workers"
                return Evidence(proof=Proof.UNAUTHORISED, code="no_credential", detail=detail)
            headers["Authorization"] = f"Bearer {self._credentials[name]}"
        body = frozen.get("body", "").encode()
        try:
            return await self._exchange.request(frozen["method"], frozen["url"], headers=headers, body=body)
        except NoAnswer as error:
            proof = Proof.UNKNOWN if error.sent else Proof.NOT_SENT
            return Evidence(proof=proof, code=error.reason, detail=error.detail)


def _from_answer(answer: Answer) -> Evidence:
    """By status alone; the id in a JSON body is kept, as far as there is one."""
    proof, replayed = _proof(answer.status), answer.headers.get("Idempotent-Replayed", "").lower() == "true"
    evidence = Evidence(
        proof=Proof.STORED_FAILURE if proof is Proof.UNKNOWN and replayed else proof,
        replayed=replayed,
        code=None if answer.status in range(200, 300) else f"http_{answer.status}",
        detail=f"the other side answered {answer.status}",
        http_status=answer.status,
        request_id=answer.headers.get("X-Request-Id"),
        retry_after_seconds=retry_after_seconds(answer.headers),
    )
    return replace(evidence, external_id=_id(answer.body)) if evidence.proof is Proof.DONE else evidence


def _from_look_up(answer: Answer) -> Evidence:
    evidence = _from_answer(answer)
    if answer.status == 200:  # noqa: PLR2004
        return evidence
    if answer.status == 404:  # noqa: PLR2004
        return replace(evidence, proof=Proof.ABSENT, code=None)
    if evidence.proof in {Proof.LIMITED, Proof.UNAUTHORISED}:
        return evidence
    return replace(evidence, proof=Proof.LOOKUP_FAILED, external_id=None)


def _proof(status: int) -> Proof:
    if status in range(200, 300):
        return Proof.DONE
    return _REFUSALS.get(status, Proof.REFUSED if status in range(400, 500) else Proof.UNKNOWN)


def _id(body: bytes) -> str | None:
    try:
        data: Any = json.loads(body)
    except (ValueError, RecursionError):
        return None
    found = data.get("id") if isinstance(data, dict) else None
    return (
        found if isinstance(found, str) and found and len(found) <= _ID_CHARACTERS_MAX and found.isprintable() else None
    )
