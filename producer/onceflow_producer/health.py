"""The FastAPI application: the webhook in front, and the two health endpoints.

Rule: ``/livez`` says that this process runs and touches nothing else, so that a broker that is away never makes an
orchestrator kill healthy bridges.  ``/readyz`` says whether an event would be tried now.  The webhook is answered
before FastAPI's own stack: it needs no routing, no parsing and no error pages.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import orjson
from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException

from onceflow_producer.broker_state import Reason
from onceflow_producer.refusal import refusal_document
from onceflow_producer.webhook import WEBHOOK_PATH, Receive, Scope, Send
from onceflow_schemas.failure import hint_for

_JSON = "application/json"
_CODE_OF_STATUS = {404: "not_found", 405: "method_not_allowed"}


class BridgeApp(FastAPI):
    """Hands each request below ``WEBHOOK_PATH`` to the webhook, every other one to FastAPI."""

    def __init__(self, webhook: Callable[[Scope, Receive, Send], Awaitable[None]], **options: Any) -> None:
        super().__init__(**options)
        self._webhook = webhook

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "http" and scope["path"].startswith(WEBHOOK_PATH):
            await self._webhook(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)


def build_app(
    webhook: Callable[[Scope, Receive, Send], Awaitable[None]], *, why_not_ready: Callable[[], tuple[Reason, ...]]
) -> BridgeApp:
    """Return the application.

    Args:
        webhook: the raw ASGI route.
        why_not_ready: the reasons at this moment, empty when the bridge is ready; must return at once.
    """
    app = BridgeApp(webhook, title="onceflow bridge", docs_url=None, redoc_url=None, openapi_url=None)
    app.router.redirect_slashes = False

    @app.api_route("/livez", methods=["GET", "HEAD"])
    async def livez() -> Response:
        return Response(b'{"live":true}', media_type=_JSON)

    @app.api_route("/readyz", methods=["GET", "HEAD"])
    async def readyz() -> Response:
        found = [
            {"code": reason.code, "detail": reason.detail, "hint": hint_for(reason.code)} for reason in why_not_ready()
        ]
        document = orjson.dumps({"ready": not found, "reasons": found})
        return Response(document, status_code=503 if found else 200, media_type=_JSON)

    @app.exception_handler(HTTPException)
    async def refuse(_request: Request, failure: HTTPException) -> Response:
        code = _CODE_OF_STATUS.get(failure.status_code, "not_found")
        return Response(
            refusal_document(code), status_code=failure.status_code, headers=failure.headers, media_type=_JSON
        )

    return app
