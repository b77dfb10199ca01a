"""The health endpoints, and which requests are the webhook's."""

from __future__ import annotations

import asyncio
import json

import pytest

from onceflow_producer.broker_state import Reason
from onceflow_producer.health import BridgeApp, build_app
from onceflow_producer.refusal import json_answer
from onceflow_producer.webhook import Receive, Scope, Send
from tests.producer.asgi import Heard, call


async def webhook(scope: Scope, receive: Receive, send: Send) -> None:
    answer = json_answer(299, b"{}")
    await send(answer.start)
    await send(answer.body)


def app(*reasons: Reason) -> BridgeApp:
    return build_app(webhook, why_not_ready=lambda: reasons)


def ask(application: BridgeApp, method: str, path: str) -> Heard:
    return asyncio.run(call(application, method=method, path=path))


@pytest.mark.parametrize("path", ["/webhooks/stripe", "/webhooks/stripe/", "/webhooks/stripe/a", "/webhooks/stripe//"])
def test_the_webhook_is_in_front_of_everything(path: str) -> None:
    assert ask(app(), "POST", path).status == 299


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_live_whatever_the_broker_does(method: str) -> None:
    heard = ask(app(Reason("broker_unavailable", "away")), method, "/livez")
    assert heard.status == 200


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_ready(method: str) -> None:
    assert ask(app(), method, "/readyz").status == 200
    assert ask(app(Reason("topic_missing", "x")), method, "/readyz").status == 503


def test_not_ready_says_why_and_what_next() -> None:
    heard = ask(app(Reason("topic_missing", "the event topic does not exist")), "GET", "/readyz")
    assert json.loads(heard.body) == {
        "ready": False,
        "reasons": [
            {
                "code": "topic_missing",
                "detail": "the event topic does not exist",
                "hint": "Run `onceflow topics apply`.",
            }
        ],
    }


@pytest.mark.parametrize(
    "path", ["/", "/webhooks", "/webhook/stripe", "//webhooks/stripe", "/livez/", "/docs", "/openapi.json"]
)
def test_there_is_nothing_else(path: str) -> None:
    heard = ask(app(), "GET", path)
    assert heard.status == 404
    assert json.loads(heard.body)["error"]["code"] == "not_found"


def test_another_method_is_told_the_right_ones() -> None:
    heard = ask(app(), "POST", "/livez")
    assert heard.status == 405
    assert sorted(heard.headers["allow"].split(", ")) == ["GET", "HEAD"]
    assert json.loads(heard.body)["error"]["code"] == "method_not_allowed"
