"""Delivery as Stripe does it: sign, send, and send again after anything but a 2xx, with a new signature each time.

Rule: the list of attempts is kept by the sender alone and says only what the sender saw.  An answer of 200 is a
promise that the count will hold against it; a broken connection promises nothing in either direction.
"""

from __future__ import annotations

import hmac
import http.client
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from urllib.parse import urlsplit

from onceflow.demo.traffic import Request

SENDERS = 16
QUEUE_REQUESTS = 32
ANSWER_SECONDS = 10.0
RETRY_FIRST_SECONDS = 0.2
RETRY_MAX_SECONDS = 2.0
GIVE_UP_SECONDS = 60.0
WRONG_SECRET = "whsec_somebodyElse"  # noqa: S105 - it is meant to be wrong
ANSWERED = 200
OK_FROM, OK_TO = 200, 299
REFUSED_FROM, REFUSED_TO = 400, 499


@dataclass(frozen=True, slots=True)
class Attempt:
    """One request as sent; ``status`` is None when the connection broke before the answer."""

    request: Request
    status: int | None


def signature_header(body: bytes, secret: str, *, at: int) -> str:
    """Return a Stripe-Signature header: HMAC-SHA256 of ``<time>.<body>`` under the whole secret text."""
    mac = hmac.digest(secret.encode(), b"%d." % at + body, "sha256").hex()
    return f"t={at},v1={mac}"


class StripeLikeSender:
    """Sends requests from several threads.

    ``attempts`` grows by one per request that left, ``answered`` by one per answer of 200.

    Args:
        target: returns (webhook URL, endpoint secret) as they are now; a restarted bridge may have another port.
        seed: of the jitter between retries.
        senders: how many requests are on their way at once.
    """

    def __init__(self, target: Callable[[], tuple[str, str]], *, seed: int, senders: int = SENDERS) -> None:
        self.attempts: list[Attempt] = []
        self.given_up: list[Request] = []
        self.answered = 0
        self._guard = threading.Lock()
        self._target = target
        self._queue: queue.Queue[Request | None] = queue.Queue(QUEUE_REQUESTS)
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._work, args=(Random(seed + number),), daemon=True)  # noqa: S311
            for number in range(senders)
        ]
        for thread in self._threads:
            thread.start()

    def send(self, request: Request) -> None:
        """Hand a request over; waits while too many are on their way."""
        self._queue.put(request)

    def finish(self) -> None:
        """Wait until every request was answered or given up."""
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()

    def abandon(self) -> None:
        """Stop retrying and return soon; what is unanswered stays so."""
        self._stopping.set()

    def _work(self, random: Random) -> None:
        connection = _Connection()
        while (request := self._queue.get()) is not None:
            if not self._stopping.is_set():
                self._deliver(request, connection, random)
        connection.close()

    def _deliver(self, request: Request, connection: _Connection, random: Random) -> None:
        end = time.monotonic() + GIVE_UP_SECONDS
        pause = RETRY_FIRST_SECONDS
        while True:
            url, secret = self._target()
            used = WRONG_SECRET if request.kind == "forged" else secret
            status = connection.post(
                url, request.body, signature=signature_header(request.body, used, at=int(time.time()))
            )
            self._note(Attempt(request, status))
            if status is not None and (OK_FROM <= status <= OK_TO or _final(request, status)):
                return
            if time.monotonic() > end or self._stopping.wait(pause * random.uniform(0.5, 1.0)):
                self.given_up.append(request)
                return
            pause = min(pause * 2, RETRY_MAX_SECONDS)

    def _note(self, attempt: Attempt) -> None:
        with self._guard:
            self.attempts.append(attempt)
            self.answered += attempt.status == ANSWERED


def _final(request: Request, status: int) -> bool:
    """Whoever forges does not insist; Stripe itself retries a 4xx too."""
    return request.kind == "forged" and REFUSED_FROM <= status <= REFUSED_TO


class _Connection:
    """One connection that is kept open while it works."""

    def __init__(self) -> None:
        self._address: str | None = None
        self._http: http.client.HTTPConnection | None = None

    def post(self, url: str, body: bytes, *, signature: str) -> int | None:
        """Send one request; None when the connection broke at any point."""
        parts = urlsplit(url)
        try:
            if self._http is None or self._address != parts.netloc:
                self.close()
                self._address = parts.netloc
                self._http = http.client.HTTPConnection(parts.netloc, timeout=ANSWER_SECONDS)
            headers = {"Content-Type": "application/json; charset=utf-8", "Stripe-Signature": signature}
            self._http.request("POST", parts.path, body, headers)
            answer = self._http.getresponse()
            answer.read()
        except (OSError, http.client.HTTPException):
            self.close()
            return None
        return answer.status

    def close(self) -> None:
        if self._http is not None:
            self._http.close()
            self._http = None
