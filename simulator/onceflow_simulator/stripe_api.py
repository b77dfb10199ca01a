"""The way of one request: who asks, limits, faults, idempotency, checks, execution, answer.

Rule: the order is Stripe's.  Limits and authentication stand before the idempotency keys, checks of parameters before
execution; what executed is kept under its key before the answer leaves, so that losing the answer loses nothing else.
"""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, replace
from email.utils import formatdate
from typing import Any

import orjson
from starlette.types import Receive, Scope, Send

from onceflow_simulator import errors, keys, reply
from onceflow_simulator.answers import Answer, of_error, ok
from onceflow_simulator.books import Books
from onceflow_simulator.emission import Origin
from onceflow_simulator.errors import StripeError, invalid
from onceflow_simulator.expansion import expanded
from onceflow_simulator.faults import OF_LISTS, Fault, Faults, Subject
from onceflow_simulator.idempotency import Kept
from onceflow_simulator.keys import Asker
from onceflow_simulator.params import Params, decode
from onceflow_simulator.routes import Call, Handler, Route, Routes
from onceflow_simulator.validation import check, check_key
from onceflow_simulator.world import Account, World

BODY_BYTES_MAX = 1_000_000
CURSORS = frozenset({"starting_after", "ending_before", "page"})
_NAMES = frozenset(
    {b"authorization", b"content-type", b"idempotency-key", b"stripe-account", b"stripe-context", b"stripe-version"}
)


@dataclass(frozen=True)
class Request:
    """A request as it came, its parameters decoded."""

    id: str
    method: str
    path: str
    headers: Mapping[str, str]
    params: Params

    @property
    def key(self) -> str | None:
        """The idempotency key; it means something on POST only."""
        return self.headers.get("idempotency-key") or None if self.method == "POST" else None


@dataclass(frozen=True)
class Found:
    """A request whose asker and address are known."""

    request: Request
    asker: Asker
    route: Route
    ids: tuple[str, ...]

    @property
    def account(self) -> Account:
        """Whose objects are meant."""
        return self.asker.account


Noted = tuple[Fault, dict[str, Any]]


class StripeApi:
    """Stripe's interface as a plain ASGI application."""

    def __init__(self, world: World, routes: Routes, faults: Faults) -> None:
        self._world = world
        self._routes = routes
        self._faults = faults
        self.requests = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        self.requests += 1
        request_id = self._world.ids.new("req")
        noted: Noted | None = None
        answer: Answer | None
        headers: dict[str, str] = {}
        try:
            body = await _body(receive)
            headers = {name.decode(): value.decode("latin-1") for name, value in scope["headers"] if name in _NAMES}
            request = _request(scope, headers=headers, body=body, id=request_id)
            found = self._find(request)
            found.account.limits.enter(found.route.template)
            try:
                noted = self._fault(found)
                answer = await self._serve(found, noted, receive=receive)
            finally:
                found.account.limits.leave(found.route.template)
        except StripeError as error:
            answer = of_error(error)
        except Exception:  # noqa: BLE001 - a bug of the simulator must not look like a fault that a test asked for.
            answer = self._bug()
        await self._send(answer, noted, scope=scope, receive=receive, send=send, request_id=request_id, headers=headers)

    def _find(self, request: Request) -> Found:
        """Who asks for what, unless a limit stands before it."""
        account = request.headers.get("stripe-account") or request.headers.get("stripe-context") or ""
        asker = keys.identify(
            self._world, authorization=request.headers.get("authorization", ""), stripe_account=account
        )
        route = self._routes.find(request.method, request.path)
        if route is None:
            raise errors.no_such_route(request.method, request.path)
        found = Found(request, asker, *route)
        if request.method == "GET":
            self._world.reads[asker.account.id, request.path] += 1
        knobs, limits = self._world.knobs, asker.account.limits
        reason = limits.refusal(found.route.template, knobs, now=time.monotonic())
        if reason is None and request.method == "POST" and found.ids and "payment_intents" in found.route.template:
            reason = limits.object_refusal(found.ids[0], knobs, now=self._world.clock.now())
        if reason is not None:
            raise errors.limited(reason, retry_after=1 if knobs.retry_after else None)
        return found

    def _fault(self, found: Found) -> Noted | None:
        request = found.request
        subject = Subject(
            method=request.method,
            path=request.path,
            template=found.route.template,
            account=found.account.id,
            key=request.headers.get("idempotency-key"),
            metadata=_metadata(found),
            request_id=request.id,
        )
        return self._faults.pick(subject, now=self._world.clock.now())

    async def _serve(self, found: Found, noted: Noted | None, *, receive: Receive) -> Answer | None:
        """The answer of a request, None when a fault leaves none."""
        fault = noted[0] if noted else None
        if fault is not None and fault.effect == "none" and not fault.stored:
            await _wait(fault.latency_ms)
            return reply.canned(fault) if fault.reply == "canned" else None
        keys.check_permission(found.asker, found.route.permission)
        key = found.request.key
        asked = self._asked(found)
        kept = self._kept(found, key, asked)
        latency_ms = self._world.knobs.latency_ms + (fault.latency_ms if fault else 0.0)
        if kept is not None:
            await _wait(latency_ms)
            assert kept.answer is not None
            return kept.answer.with_headers({"idempotent-replayed": "true", "original-request": kept.request_id})
        check(found.request.params, found.route.spec, known=found.route.known)
        if key is not None:
            found.account.keys.begin(key, asked)
        await _wait(latency_ms)
        if noted is None:
            answer: Answer | None = self._execute(found, key, None)
        else:
            answer = await self._execute_faulty(found, key, noted, receive=receive)
        await _wait(self._world.knobs.answer_ms + (fault.answer_ms if fault else 0.0))
        return answer

    def _kept(self, found: Found, key: str | None, asked: Kept) -> Kept | None:
        if key is None:
            return None
        check_key(key)
        return found.account.keys.find(key, asked, life_seconds=self._world.knobs.key_life_seconds)

    def _asked(self, found: Found) -> Kept:
        request = found.request
        version = request.headers.get("stripe-version", "") if self._world.knobs.key_compares_version else ""
        fingerprint = orjson.dumps([version, request.params], option=orjson.OPT_SORT_KEYS)
        return Kept(request.path, fingerprint, since=self._world.clock.now(), request_id=request.id)

    async def _execute_faulty(self, found: Found, key: str | None, noted: Noted, *, receive: Receive) -> Answer | None:
        """Execute now, later or never, as the fault says."""
        fault, entry = noted
        if fault.effect == "now":
            answer = self._execute(found, key, noted)
            return reply.canned(fault) if fault.reply == "canned" else answer
        if fault.stored and key is not None:
            found.account.keys.keep(key, reply.canned(fault))
        if fault.effect == "none":
            return reply.canned(fault)
        landed = asyncio.get_running_loop().create_future()

        def land() -> None:
            answer = self._execute(found, key, noted)
            entry["landed_at"] = self._world.clock.now()
            if not landed.done():
                landed.set_result(answer)

        if fault.late_ms is not None:
            asyncio.get_running_loop().call_later(fault.late_ms / 1000, land)
        else:
            self._world.agenda.after(fault.late_seconds or 0.0, land)
        if fault.reply == "canned":
            return reply.canned(fault)
        if fault.reply == "hang":
            waiting = asyncio.ensure_future(reply.hang(fault.hang_ms, receive=receive))
            await asyncio.wait({waiting, landed}, return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            return landed.result() if landed.done() else None
        return None

    def _execute(self, found: Found, key: str | None, noted: Noted | None) -> Answer:
        """Run the handler, and keep its answer under the key before anybody hears of it."""
        request = found.request
        books = Books(self._world, found.account, Origin(request.id, request.headers.get("idempotency-key")))
        call = Call(books, found.ids, request.params, request.path)
        fault = noted[0] if noted else None
        try:
            answer = _answered(call, found.route.handler, fault)
            if noted is not None:
                noted[1]["object"] = answer.object_id
            if fault is not None and fault.reply == "altered":
                answer = reply.altered(answer, fault)
        except Exception:  # noqa: BLE001 - the same: it is told as what it is.
            answer = self._bug()
        if key is not None:
            found.account.keys.keep(key, reply.canned(fault) if fault is not None and fault.stored else answer)
        return answer

    def _bug(self) -> Answer:
        """Note the exception that is being handled; its answer."""
        bugs = self._world.bugs
        bugs.append(traceback.format_exc())
        return of_error(StripeError(500, "api_error", message=f"a bug of the simulator: {bugs[-1]}"))

    async def _send(
        self,
        answer: Answer | None,
        noted: Noted | None,
        *,
        scope: Scope,
        receive: Receive,
        send: Send,
        request_id: str,
        headers: Mapping[str, str],
    ) -> None:
        fault = noted[0] if noted else None
        if fault is not None and (answer is None or fault.reply in {"reset", "truncated", "garbage"} or _hangs(fault)):
            await reply.spoil(answer, fault, scope=scope, receive=receive, send=send)
            return
        assert answer is not None
        if fault is not None and fault.reply in OF_LISTS:
            answer = reply.odd_list(answer, fault)
        if not answer.body.startswith(b"<"):
            answer = answer.with_headers(self._headers(answer, request_id=request_id, headers=headers))
        await reply.send_answer(answer, send)

    def _headers(self, answer: Answer, *, request_id: str, headers: Mapping[str, str]) -> dict[str, str]:
        """What Stripe says besides; a proxy's page has none of it."""
        own = {
            "date": formatdate(self._world.clock.now(), usegmt=True),
            "request-id": request_id,
            "stripe-version": headers.get("stripe-version") or self._world.api_version,
        }
        if "idempotency-key" in headers:
            own["idempotency-key"] = headers["idempotency-key"]
        if "stripe-account" in headers:
            own["stripe-account"] = headers["stripe-account"]
        advice = self._world.knobs.should_retry.get(answer.status)
        if advice is not None and "stripe-should-retry" not in answer.headers:
            own["stripe-should-retry"] = advice
        return own


def _answered(call: Call, handler: Handler, fault: Fault | None) -> Answer:
    try:
        return ok(expanded(call.books, _result(call, handler, fault), paths=call.params.get("expand")))
    except StripeError as error:
        return of_error(error)


def _result(call: Call, handler: Handler, fault: Fault | None) -> Any:
    """What the handler returns; by a fault the first page of a list, always or when there is nothing after its cursor."""
    if fault is None or fault.reply not in {"repeat_page", "endless"}:
        return handler(call)
    first = replace(call, params={name: value for name, value in call.params.items() if name not in CURSORS})
    result = handler(first if fault.reply == "repeat_page" else call)
    ended = isinstance(result, dict) and result.get("data") == []
    return handler(first) if ended else result


def _hangs(fault: Fault) -> bool:
    """The effect is done and the connection stays silent; a late one was waited for before."""
    return fault.reply == "hang" and fault.effect == "now"


def _metadata(found: Found) -> dict[str, str]:
    """The metadata of the request, over that of the object that it is about."""
    own = found.request.params.get("metadata")
    about = (
        found.ids[0] if found.ids else found.request.params.get("payment_intent") or found.request.params.get("charge")
    )
    body = found.account.index.get(about) if isinstance(about, str) else None
    inherited = (body or {}).get("metadata") or {}
    asked = own if isinstance(own, dict) else {}
    return {name: text for name, text in {**inherited, **asked}.items() if isinstance(text, str)}


def _request(scope: Scope, *, headers: Mapping[str, str], body: bytes, id: str) -> Request:
    path: str = scope["path"].rstrip("/") or "/"
    method: str = scope["method"]
    params = decode(scope["query_string"].decode("latin-1"))
    if body:
        params |= _decoded(body, headers.get("content-type", ""))
    return Request(id, method, path, headers, params)


def _decoded(body: bytes, content_type: str) -> Params:
    if content_type.startswith("application/json"):
        try:
            found = orjson.loads(body)
        except orjson.JSONDecodeError:
            raise invalid("Invalid JSON in the request's body.") from None
        return found if isinstance(found, dict) else {}
    try:
        return decode(body.decode("ascii"))
    except UnicodeDecodeError:
        raise invalid("Invalid request body: it is not form-encoded.") from None


async def _body(receive: Receive) -> bytes:
    parts, size, more = [], 0, True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            break
        part = message.get("body", b"")
        size += len(part)
        if size > BODY_BYTES_MAX:
            raise invalid("The request is too large.", status=413)
        parts.append(part)
        more = message.get("more_body", False)
    return parts[0] if len(parts) == 1 else b"".join(parts)


async def _wait(milliseconds: float) -> None:
    if milliseconds > 0:
        await asyncio.sleep(milliseconds / 1000)
