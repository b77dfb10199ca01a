"""How an answer reaches the client, or does not: the fault's half that happens on the wire.

Rule: nothing here changes what was executed or what an idempotency key keeps.
"""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
from starlette.types import Receive, Scope, Send

from onceflow_simulator import connection, errors
from onceflow_simulator.answers import JSON, Answer, of_error
from onceflow_simulator.errors import StripeError
from onceflow_simulator.faults import TITLE, Fault

GARBAGE = b'{"id": "pi_\xff\xfe", <not json'
ELSEWHERE = "/v1/events?limit=1"
"""Where a redirect leads: to something that looks like an answer to whoever follows it."""
_PROXY_TITLES = {502: "502 Bad Gateway", 503: "503 Service Temporarily Unavailable", 504: "504 Gateway Time-out"}


def canned(fault: Fault) -> Answer:
    """The answer that a fault puts in the place of the real one."""
    headers = dict(fault.headers)
    if fault.should_retry is not None:
        headers["stripe-should-retry"] = fault.should_retry
    if fault.retry_after is not None:
        headers["retry-after"] = str(fault.retry_after)
    if fault.body is not None:
        kind = "text/html" if fault.body.startswith("<") else JSON
        if fault.status in (301, 302, 307, 308):
            headers.setdefault("location", ELSEWHERE)
        body = fault.body.replace(TITLE, _PROXY_TITLES.get(fault.status, str(fault.status)))
        return Answer(fault.status, body.encode(), {"content-type": kind, **headers})
    return of_error(_error(fault)).with_headers(headers)


def _error(fault: Fault) -> StripeError:
    if fault.status == 429:  # noqa: PLR2004 - a status is its own best name.
        return errors.limited(fault.reason)
    if fault.status == 409:  # noqa: PLR2004
        return errors.in_flight("in use elsewhere")
    if fault.status == 401:  # noqa: PLR2004
        return errors.expired_key("sk_test_expired")
    if fault.status == 403:  # noqa: PLR2004
        return errors.not_permitted("rk_test_narrow", "acct", permission="rak_charge_write")
    if fault.status == 424:  # noqa: PLR2004
        return StripeError(424, "api_error", message="An external dependency did not answer.")
    message = "An unknown error occurred. If you have any questions, we can help at https://support.stripe.com/."
    return StripeError(fault.status, "api_error", message=message)


def altered(answer: Answer, fault: Fault) -> Answer:
    """The answer with some fields set to what was not asked for."""
    body = orjson.loads(answer.body)
    for path, value in fault.set.items():
        *way, last = path.split(".")
        at: Any = body
        for name in way:
            place = int(name) if isinstance(at, list) else name
            if isinstance(at, dict) and not isinstance(at.get(name), (dict, list)):
                at[name] = {}
            at = at[place]
        at[int(last) if isinstance(at, list) else last] = value
    return Answer(answer.status, orjson.dumps(body), answer.headers)


def odd_list(answer: Answer, fault: Fault) -> Answer:
    """A page of a list as it must never be."""
    body = orjson.loads(answer.body)
    if not isinstance(body, dict) or not isinstance(body.get("data"), list):
        return answer
    if fault.reply == "no_id":
        for item in body["data"][:1]:
            item.pop("id", None)
    elif fault.reply == "empty_page":
        body |= {"data": [], "has_more": True}
    else:
        body["has_more"] = True
    return Answer(answer.status, orjson.dumps(body), answer.headers)


async def send_answer(answer: Answer, send: Send, *, body: bytes | None = None) -> None:
    """Send it as it is; with another ``body``, the stated length stays that of the real one."""
    headers = [(name.encode(), value.encode("latin-1")) for name, value in answer.headers.items()]
    headers.append((b"content-length", str(len(answer.body)).encode()))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send(
        {"type": "http.response.body", "body": answer.body if body is None else body, "more_body": body is not None}
    )


async def spoil(answer: Answer | None, fault: Fault, *, scope: Scope, receive: Receive, send: Send) -> None:
    """Lose the answer in the way that the fault says."""
    # Whoever waits for what comes late has been kept waiting before.
    if fault.reply == "hang" and fault.effect != "late":
        await hang(fault.hang_ms, receive=receive)
    if answer is None or fault.reply in {"reset", "hang"}:
        await connection.reset(scope)
    elif fault.reply == "truncated":
        await send_answer(answer, send, body=answer.body[: len(answer.body) // 2])
        await connection.close(scope, receive)
    else:
        body = GARBAGE if fault.body is None else fault.body.encode()
        await send_answer(Answer(200, body, {"content-type": JSON}), send)


async def hang(hang_ms: float, *, receive: Receive) -> None:
    """Say nothing until the client gives up, or the time is over."""
    try:
        async with asyncio.timeout(hang_ms / 1000):
            await connection.gone(receive)
    except TimeoutError:
        return
