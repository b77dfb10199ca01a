"""The sender behaves like Stripe: anew after a refusal or a broken connection, with a fresh signature, until a 2xx."""

from __future__ import annotations

import hmac
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest

from onceflow.demo.delivery import StripeLikeSender, signature_header
from onceflow.demo.traffic import Request

SECRET = "whsec_test"


class Endpoint(BaseHTTPRequestHandler):
    """Answers as scripted, per body; checks the signature by hand."""

    protocol_version = "HTTP/1.1"
    script: ClassVar[dict[bytes, list[int]]] = {}
    seen: ClassVar[list[tuple[bytes, bool]]] = []

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        stamp, _, mac = self.headers["Stripe-Signature"].partition(",v1=")
        right = hmac.new(SECRET.encode(), stamp.removeprefix("t=").encode() + b"." + body, "sha256").hexdigest()
        self.seen.append((body, mac == right))
        answers = self.script.get(body, [])
        status = answers.pop(0) if answers else 200
        if status == 0:
            self.close_connection = True
            return
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing."""


@pytest.fixture
def endpoint() -> Iterator[str]:
    Endpoint.script, Endpoint.seen = {}, []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/webhooks/stripe"
    server.shutdown()
    server.server_close()
    thread.join()


def send(endpoint: str, *requests: Request) -> StripeLikeSender:
    sender = StripeLikeSender(lambda: (endpoint, SECRET), seed=1, senders=2)
    for request in requests:
        sender.send(request)
    sender.finish()
    return sender


def test_refused_or_broken_is_sent_again_until_answered(endpoint: str) -> None:
    Endpoint.script = {b"late": [503, 0], b"soon": []}
    sender = send(endpoint, Request("event", b"late"), Request("event", b"soon"))
    assert sorted(str(attempt.status) for attempt in sender.attempts) == ["200", "200", "503", "None"]
    assert (sender.answered, sender.given_up) == (2, [])
    assert all(right for _, right in Endpoint.seen)


def test_forgery_is_signed_wrongly_and_not_repeated_after_a_refusal(endpoint: str) -> None:
    Endpoint.script = {b"forged": [503, 400]}
    sender = send(endpoint, Request("forged", b"forged"))
    assert [attempt.status for attempt in sender.attempts] == [503, 400]
    assert [right for _, right in Endpoint.seen] == [False, False]


def test_header_has_the_form_of_stripe() -> None:
    mac = hmac.new(b"whsec_a", b"17.body", "sha256").hexdigest()
    assert signature_header(b"body", "whsec_a", at=17) == f"t=17,v1={mac}"
