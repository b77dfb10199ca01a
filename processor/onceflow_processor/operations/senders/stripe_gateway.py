"""Every call to Stripe, and what each answer, error and silence of it proves.

Rule: only the SDK's own errors and the transport's certain knowledge decide; whatever has no row here is ``UNKNOWN``.  Texts
of Stripe are never copied into evidence, since they may hold personal data: codes and ids are.

The SDK encodes the request and sorts the errors; the transport below carries the bytes (docs/decisions/0018).  Facts on the
SDK, as measured with 16.1: 409 and 424 are a plain ``APIError`` and most codes stand only in ``error.code``; an answer that
is no JSON loses its headers; a key that is left out or misspelt is replaced by a random one without a word.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, cast

import stripe
from typing_extensions import override

from onceflow_processor.operations.senders.connection import Headers
from onceflow_processor.operations.senders.exchange import Exchange, NoAnswer, retry_after_seconds
from onceflow_schemas.operations.evidence import Evidence, Proof
from onceflow_schemas.operations.judge import is_ours, judge, judge_list
from onceflow_schemas.operations.lookup import how_to_look
from onceflow_schemas.operations.operation import Operation, Step
from onceflow_schemas.operations.request_checks import SDK_OPTIONS

PAGE_OBJECTS = 100
LOOKUP_PAGES_MAX = 50
LOOKUP_SLACK = timedelta(hours=1)
"""A list is read from this long before the window's start, since our database's clock is not Stripe's."""

_CODE = re.compile(r"[a-z0-9_.\-]{1,80}")
_PARAMETER = re.compile(r"[a-z0-9_\[\]]{1,80}")
_PERMISSION = re.compile(r"\brak_[a-z_]+\b")
_PATH = re.compile(r"(/[A-Za-z0-9_\-]{1,255})+")
_OBJECT_ID = re.compile(r"[A-Za-z0-9_\-]{1,255}")

_BY_CLASS: Mapping[type[stripe.StripeError], Proof] = {
    stripe.IdempotencyError: Proof.KEY_MISMATCH,
    stripe.RateLimitError: Proof.LIMITED,
    stripe.AuthenticationError: Proof.UNAUTHORISED,
    stripe.PermissionError: Proof.UNAUTHORISED,
    stripe.CardError: Proof.DECLINED,
    stripe.InvalidRequestError: Proof.REFUSED,
    # By type, in API version 2 only, where a failed request has had no effect:
    stripe.AlreadyCanceledError: Proof.REFUSED,
    stripe.BlockedByStripeError: Proof.REFUSED,
    stripe.CannotProceedError: Proof.REFUSED,
    stripe.CapabilityNotEnabledError: Proof.REFUSED,
    stripe.ControlledByAlternateResourceError: Proof.REFUSED,
    stripe.FeatureNotEnabledError: Proof.REFUSED,
    stripe.FinancialAccountNotOpenError: Proof.REFUSED,
    stripe.FxQuoteNeedsRefreshError: Proof.REFUSED,
    stripe.InsufficientFundsError: Proof.REFUSED,
    stripe.InvalidPaymentMethodError: Proof.REFUSED,
    stripe.InvalidPayoutMethodError: Proof.REFUSED,
    stripe.InvalidVaultedCredentialError: Proof.REFUSED,
    stripe.NotCancelableError: Proof.REFUSED,
    stripe.QuotaExceededError: Proof.REFUSED,
    stripe.RecipientNotNotifiableError: Proof.REFUSED,
    stripe.TemporarySessionExpiredError: Proof.REFUSED,
    stripe.VerificationAttemptFailedError: Proof.REFUSED,
    stripe.VerificationExpiredError: Proof.REFUSED,
    stripe.VerificationNotInitiatedError: Proof.REFUSED,
}
"""Classes that decide alone.  ``APIError`` goes by its status, ``APIConnectionError`` by its cause; the rest is ``UNKNOWN``."""
_NOT_FOUND = 404
_CONFLICT = 409
_TOO_MANY = 429


@dataclass(frozen=True, slots=True, kw_only=True)
class StripeAccess:
    """How one account is reached.

    Attributes:
        account, mode: as in ``Operation``.
        api_key: the secret or restricted key.
        connected: the key is the platform's; the account is named in ``Stripe-Account``.
    """

    account: str
    mode: str
    api_key: str = field(repr=False)
    connected: bool = False


class StripeGateway:
    """A ``Sender`` for steps of kind ``stripe``.

    Making one switches the SDK's telemetry off and its log to warnings, both for the whole process: they are globals of the
    SDK, the first writes a file under the user's home, the second prints bodies.

    Args:
        accesses: one for each account and mode that may be called.
        api_base: ``https://api.stripe.com``, or a simulator's address.
        connect_seconds, total_seconds: as in ``Exchange``; a look-up with all its pages has ``total_seconds`` too.
    """

    def __init__(
        self, accesses: Iterable[StripeAccess], *, api_base: str, connect_seconds: float, total_seconds: float
    ) -> None:
        stripe.enable_telemetry = False
        logging.getLogger("stripe").setLevel(logging.WARNING)
        self.seconds_max = total_seconds
        self._exchange = Exchange(
            connect_seconds=connect_seconds, total_seconds=total_seconds, authorities=stripe.ca_bundle_path
        )
        self._clients = {(a.account, a.mode): _client(a, api_base, self._exchange) for a in accesses}

    async def send(self, step: Step, operation: Operation) -> Evidence:
        """Make the step's call once, with its key."""
        request = step.request
        assert request["method"] == "POST", "only POST has an effect that a key guards"
        answer = await self._call(
            "post", _path(request["path"], operation), request["params"], operation=operation, key=step.key
        )
        if isinstance(answer, stripe.StripeResponse):
            return _from_answer(answer, step, operation)
        return _from_error(answer, step, operation)

    async def look_up(self, step: Step, operation: Operation, *, how: Mapping[str, Any] | None = None) -> Evidence:
        """Read one object by its id, or a complete list."""
        how = how or how_to_look(step, operation.external_id)
        assert how is not None, "a step without a look-up is not looked up"
        try:
            async with asyncio.timeout(self.seconds_max):
                if "retrieve" in how:
                    return await self._retrieve(how["retrieve"], step, operation)
                return await self._find(how, step, operation)
        except TimeoutError:
            return _not_learnt("deadline", f"the look-up took longer than {self.seconds_max:g} s")

    async def close(self) -> None:
        """Let go of connections."""
        await self._exchange.close()

    async def _retrieve(self, path: str, step: Step, operation: Operation) -> Evidence:
        if not _PATH.fullmatch(path):
            return _not_learnt("no_object_id", "the id of the object does not fit in a path")
        answer = await self._call("get", path, {}, operation=operation)
        if isinstance(answer, stripe.StripeResponse):
            if (found := _object(answer.data)) is None:
                return _not_learnt("unreadable", "the answer is no object of Stripe")
            known = _for_attempt(answer.headers, answer.code)
            return replace(judge(step, found, operation=operation, from_lookup=True), **known)
        if isinstance(answer, stripe.InvalidRequestError) and answer.http_status == _NOT_FOUND:
            detail = "the object that it is about does not exist for this account and key"
            return Evidence(proof=Proof.STRANGE, from_lookup=True, code=_code(answer), detail=detail, **_known(answer))
        return _look_up_failed(answer, step, operation)

    async def _find(self, how: Mapping[str, Any], step: Step, operation: Operation) -> Evidence:
        """Read the list to its end; what carries our id is ours."""
        since = math.floor((operation.window_from - LOOKUP_SLACK).timestamp())
        params = {"created": {"gte": since}, **how["params"], "limit": PAGE_OBJECTS}
        seen: set[str] = set()
        ours: list[Mapping[str, Any]] = []
        for _ in range(LOOKUP_PAGES_MAX):
            answer = await self._call("get", how["list"], params, operation=operation)
            if not isinstance(answer, stripe.StripeResponse):
                return _look_up_failed(answer, step, operation)
            page = _page(answer.data, seen)
            if isinstance(page, Evidence):
                return page
            ours += [one for one in page if is_ours(one, operation)]
            if cast("Mapping[str, Any]", answer.data)["has_more"] is False:
                return judge_list(step, ours, operation=operation)
            params["starting_after"] = page[-1]["id"]
        return _not_learnt("too_many", f"the list has more than {LOOKUP_PAGES_MAX} pages of {PAGE_OBJECTS}")

    async def _call(
        self, method: str, path: str, params: Mapping[str, Any], *, operation: Operation, key: str | None = None
    ) -> stripe.StripeResponse | Exception:
        """One request.  Options are built here and nowhere else."""
        assert not SDK_OPTIONS & params.keys(), "a parameter has the name of an option of the SDK"
        client = self._clients.get((operation.account, operation.mode))
        if client is None:
            return _NoKey()
        options: dict[str, Any] = {"stripe_version": operation.api_version, "max_network_retries": 0}
        if key is not None:
            options["idempotency_key"] = key
        try:
            answer: stripe.StripeResponse = await client.raw_request_async(method, path, **params, **options)
        except Exception as error:  # noqa: BLE001  the SDK itself fails on odd bodies, and the request has been sent
            return error
        return answer


class _NoKey(Exception):
    """There is no key for the account."""


class _Transport(stripe.HTTPClient):
    """The SDK's bytes over our exchange."""

    name = "onceflow"

    def __init__(self, exchange: Exchange) -> None:
        super().__init__()
        self._exchange = exchange

    @override
    async def request_async(
        self, method: str, url: str, headers: Mapping[str, str], post_data: str | None = None
    ) -> tuple[bytes, int, Mapping[str, str]]:
        """Carry one request; silence becomes the SDK's connection error, whose cause tells the rest."""
        try:
            answer = await self._exchange.request(method.upper(), url, headers=headers, body=(post_data or "").encode())
        except NoAnswer as error:
            raise stripe.APIConnectionError(error.detail) from error  # type: ignore[no-untyped-call]
        return answer.body, answer.status, answer.headers


def proof_of(error: Exception) -> Proof:
    """What an error of a call proves by itself."""
    if isinstance(error, _NoKey):
        return Proof.UNAUTHORISED
    if isinstance(error, stripe.APIConnectionError):
        cause = error.__cause__
        return Proof.NOT_SENT if isinstance(cause, NoAnswer) and not cause.sent else Proof.UNKNOWN
    if not isinstance(error, stripe.StripeError):
        return Proof.UNKNOWN
    if error.http_status == _TOO_MANY:  # whoever sends it, with whatever body: the request went no further
        return Proof.LIMITED
    if error.http_status == _CONFLICT and error.error:
        return Proof.BUSY
    return _BY_CLASS.get(type(error), Proof.UNKNOWN)


def _client(access: StripeAccess, api_base: str, exchange: Exchange) -> stripe.StripeClient:
    assert f"_{'test' if access.mode == 'live' else 'live'}_" not in access.api_key, "a key of the other mode"
    return stripe.StripeClient(
        access.api_key,
        stripe_account=access.account if access.connected else None,
        base_addresses={"api": api_base.rstrip("/")},
        max_network_retries=0,
        http_client=_Transport(exchange),
    )


def _path(path: str, operation: Operation) -> str:
    """The path with the stored object's id in it."""
    if "{external_id}" not in path:
        return path
    external_id = operation.external_id or ""
    assert _OBJECT_ID.fullmatch(external_id), (
        "the step needs the id of the object, and there is none that fits in a path"
    )
    return path.replace("{external_id}", external_id)


def _from_answer(answer: stripe.StripeResponse, step: Step, operation: Operation) -> Evidence:
    """A 2xx with a JSON body."""
    known = _for_attempt(answer.headers, answer.code)
    found = _object(answer.data)
    if found is None:
        return Evidence(proof=Proof.UNKNOWN, code="unreadable", detail="the answer is no object of Stripe", **known)
    if answer.idempotency_key not in {None, step.key}:
        return Evidence(proof=Proof.STRANGE, detail="the answer belongs to another idempotency key", **known)
    return replace(judge(step, found, operation=operation), **known)


def _from_error(error: Exception, step: Step, operation: Operation) -> Evidence:
    """An answer that is none of success, or none at all.  A decline names the intent that it leaves behind."""
    proof, known = proof_of(error), _known(error)
    if proof is Proof.UNKNOWN and known["replayed"]:
        proof = Proof.STORED_FAILURE
    evidence = Evidence(proof=proof, code=_code(error), detail=_detail(error, proof), **known)
    intent = _object(_error_of(error).get("payment_intent"))
    about = (step.expect or {}).get("object", "payment_intent")
    if proof is not Proof.DECLINED or intent is None or about != "payment_intent":
        return evidence
    judged = judge(step, intent, operation=operation)
    if judged.proof is Proof.STRANGE:
        evidence = replace(evidence, proof=Proof.STRANGE, detail=judged.detail)
    return replace(evidence, external_id=judged.external_id, status=judged.status, object=judged.object)


def _look_up_failed(error: Exception, step: Step, operation: Operation) -> Evidence:
    """A read that gave nothing; a refused key or a limit is the account's matter and is told as such."""
    evidence = _from_error(error, step, operation)
    proof = evidence.proof if evidence.proof in {Proof.LIMITED, Proof.UNAUTHORISED} else Proof.LOOKUP_FAILED
    return replace(evidence, proof=proof, from_lookup=True, external_id=None, status=None, object=None)


def _not_learnt(code: str, detail: str) -> Evidence:
    return Evidence(proof=Proof.LOOKUP_FAILED, from_lookup=True, code=code, detail=detail)


def _page(data: object, seen: set[str]) -> list[Mapping[str, Any]] | Evidence:
    """The objects of a page, each new and with id and metadata; a list that cannot be believed is not evidence of absence."""
    if not isinstance(data, dict) or "error" in data or data.get("object") != "list":
        return _not_learnt("unreadable", "the answer is no list of Stripe")
    if not isinstance(data.get("data"), list) or not isinstance(data.get("has_more"), bool):
        return _not_learnt("unreadable", "the list does not say what is in it, or whether there is more")
    page: list[Mapping[str, Any]] = []
    for one in data["data"]:
        if _object(one) is None or "metadata" not in one:
            return _not_learnt("unreadable", "the list has an entry without id or metadata")
        if one["id"] in seen:
            return _not_learnt("repeated", "the list repeats itself")
        seen.add(one["id"])
        page.append(one)
    if data["has_more"] and not page:
        return _not_learnt("unreadable", "an empty page says that there is more")
    return page


def _object(data: object) -> Mapping[str, Any] | None:
    """The data when it is an object with an id, and no error."""
    if not isinstance(data, dict) or "error" in data or not isinstance(data.get("id"), str):
        return None
    return data if _OBJECT_ID.fullmatch(data["id"]) else None


def _error_of(error: Exception) -> Mapping[str, Any]:
    """The ``error`` of the body, empty when there is none."""
    body = error.json_body if isinstance(error, stripe.StripeError) else None
    found = body.get("error") if isinstance(body, dict) else None
    return found if isinstance(found, dict) else {}


def _code(error: Exception) -> str | None:
    """Stripe's code, of which some errors of the SDK drop their copy; for silence, the transport's word."""
    if isinstance(error.__cause__, NoAnswer):
        return error.__cause__.reason
    said = _error_of(error)
    reason = _headers(error).get("Stripe-Rate-Limited-Reason")
    codes = (said.get("decline_code"), said.get("code"), reason, said.get("type"))
    return next((code for code in codes if isinstance(code, str) and _CODE.fullmatch(code)), None)


def _detail(error: Exception, proof: Proof) -> str:
    """One sentence of ours about it."""
    if isinstance(error, _NoKey):
        return "no key is set for this account and mode"
    if isinstance(error.__cause__, NoAnswer):
        return error.__cause__.detail
    said, code = _error_of(error), _code(error)
    permission = _PERMISSION.search(str(said.get("message")))
    if proof is Proof.UNAUTHORISED and permission:
        return f"the key lacks the permission {permission[0]}"
    if not isinstance(error, stripe.StripeError):
        return f"Stripe answered what the SDK cannot read ({type(error).__name__})"
    parameter = said.get("param")
    about = f", parameter {parameter}" if isinstance(parameter, str) and _PARAMETER.fullmatch(parameter) else ""
    return f"Stripe answered {error.http_status}" + (f" ({code}{about})" if code else ", in no form of its own")


def _headers(error: Exception) -> Mapping[str, str]:
    """The answer's headers.  For a body that is no JSON the SDK puts them where the parsed body belongs."""
    if not isinstance(error, stripe.StripeError):
        return {}
    return error.json_body if isinstance(error.json_body, Headers) else (error.headers or {})


def _known(error: Exception) -> dict[str, Any]:
    status = error.http_status if isinstance(error, stripe.StripeError) else None
    return {**_for_attempt(_headers(error), status), "retry_after_seconds": retry_after_seconds(_headers(error))}


def _for_attempt(headers: Mapping[str, str], status: int | None) -> dict[str, Any]:
    replayed = headers.get("Idempotent-Replayed", "").lower() == "true"
    return {"http_status": status, "request_id": headers.get("Request-Id"), "replayed": replayed}
