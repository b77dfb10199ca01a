"""Effects that are no call to Stripe, from the request to the end, each by its policy, at a server that loses its first answer."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from email import message_from_bytes
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import takewhile
from typing import Any

import pytest

from onceflow_processor.operations.senders.http_sender import HttpSender
from onceflow_processor.operations.senders.mail_sender import MailSender, MailServer
from onceflow_processor.operations.senders.sender import Sender
from onceflow_schemas.operations.calls import Call, HttpCall, Mail
from onceflow_schemas.operations.evidence import Evidence
from onceflow_schemas.operations.operation import Operation, Step
from tests.processor.operations.conftest import Desk, Scripted
from tests.processor.processor_process import wait_until

ITEM = 7


class Through(Scripted):
    """A genuine sender in the place of the scripted one."""

    def __init__(self, sender: Sender) -> None:
        super().__init__()
        self._sender = sender

    async def send(self, step: Step, operation: Operation) -> Evidence:
        return await self._sender.send(step, operation)

    async def look_up(self, step: Step, operation: Operation, *, how: Mapping[str, Any] | None = None) -> Evidence:
        return await self._sender.look_up(step, operation, how=how)

    async def close(self) -> None:
        await self._sender.close()


class Stock(ThreadingHTTPServer):
    """Takes from a stock, once for each key where it ``remembers`` them; the answer to the first POST is lost after the effect."""

    daemon_threads = True

    def __init__(self, *, remembers: bool = False, has_everything: bool = False) -> None:
        super().__init__(("127.0.0.1", 0), _Taking)
        self.remembers, self.has_everything = remembers, has_everything
        self.asked: list[tuple[str, str]] = []
        self.taken: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Taking(BaseHTTPRequestHandler):
    server: Stock

    def do_POST(self) -> None:
        key = self.headers["Idempotency-Key"]
        self.rfile.read(int(self.headers["Content-Length"]))
        first = not any(method == "POST" for method, _ in self.server.asked)
        self.server.asked.append(("POST", key))
        if not (self.server.remembers and key in self.server.taken):
            self.server.taken.append(key)
        self.close_connection = True
        if not first:
            self._answer(201)

    def do_GET(self) -> None:
        key = self.path.rpartition("/")[2]
        self.server.asked.append(("GET", key))
        self._answer(200 if self.server.has_everything or key in self.server.taken else 404)

    def _answer(self, status: int) -> None:
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Mailbox(socketserver.ThreadingTCPServer):
    """Takes every mail; the first one's answer is lost."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Receiving)
        self.mails: list[bytes] = []


class _Receiving(socketserver.StreamRequestHandler):
    server: Mailbox

    def handle(self) -> None:
        self.wfile.write(b"220 here\r\n")
        for line in self.rfile:
            if line.upper().startswith(b"DATA"):
                self.wfile.write(b"354 go on\r\n")
                self.server.mails.append(b"".join(takewhile(lambda part: part != b".\r\n", self.rfile)))
                if len(self.server.mails) == 1:
                    return
            self.wfile.write(b"250 OK\r\n")


@contextmanager
def serving(server: socketserver.BaseServer) -> Iterator[None]:
    with server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


def carry_out(desk: Desk, call: Call, sender: Sender, *, until: str) -> str:
    """Ask for it and wait for its end; the pauses between tries are left out. Returns its id."""

    @desk.handlers.effect("act")
    def act(item: int) -> Call:
        assert item == ITEM
        return call

    with desk.working(Through(sender)):
        [made] = desk.ask("o-1", effect=act, item=ITEM)

        def reached() -> bool:
            desk.change(
                "UPDATE onceflow.operation SET next_attempt_at = clock_timestamp() WHERE lease_owner IS NULL"
                " AND next_attempt_at > clock_timestamp() AND next_attempt_at < 'infinity'"
            )
            return desk.states()["o-1"] == until

        wait_until(reached, f"it is {until}")
    return made


@pytest.mark.parametrize(
    ("policy", "until", "asked", "taken"),
    [
        ("idempotent", "succeeded", ["POST", "POST"], 1),
        ("at_least_once", "succeeded", ["POST", "POST"], 2),
        ("at_most_once", "review", ["POST"], 1),
        ("reconcile_first", "succeeded", ["GET", "POST", "GET"], 1),
    ],
)
def test_after_a_lost_answer_each_policy_goes_its_way(
    desk: Desk, policy: str, until: str, asked: list[str], taken: int
) -> None:
    stock = Stock(remembers=policy == "idempotent")
    lookup = f"{stock.url}/taken/{{key}}" if policy == "reconcile_first" else None
    call = HttpCall(url=f"{stock.url}/take", json={"item": ITEM}, policy=policy, lookup=lookup)
    with serving(stock):
        made = carry_out(desk, call, HttpSender(connect_seconds=2, total_seconds=2, credentials={}), until=until)
    assert [method for method, _ in stock.asked] == asked
    assert {key for _, key in stock.asked} == {made}
    assert len(stock.taken) == taken
    reviews = desk.rows("SELECT code FROM onceflow.review")
    assert [one["code"] for one in reviews] == (["operation_unproved"] if until == "review" else [])


def test_what_is_there_already_is_not_done_again(desk: Desk) -> None:
    """As after a restore of the database: the look comes first and finds it."""
    stock = Stock(has_everything=True)
    call = HttpCall(
        url=f"{stock.url}/take", json={"item": ITEM}, policy="reconcile_first", lookup=f"{stock.url}/taken/{{key}}"
    )
    with serving(stock):
        carry_out(desk, call, HttpSender(connect_seconds=2, total_seconds=2, credentials={}), until="succeeded")
    assert [method for method, _ in stock.asked] == ["GET"]


def test_a_mail_whose_answer_is_lost_comes_twice_with_one_message_id(desk: Desk) -> None:
    mailbox = Mailbox()
    call = Mail(sender="shop@example.com", to="jane@example.org", subject="Your refund", text="It is on its way.\n")
    server = MailServer(host="127.0.0.1", port=mailbox.server_address[1], security="none")
    with serving(mailbox):
        made = carry_out(desk, call, MailSender(server, connect_seconds=2, total_seconds=2), until="succeeded")
    assert [message_from_bytes(one)["Message-ID"] for one in mailbox.mails] == [f"<{made}@example.com>"] * 2
