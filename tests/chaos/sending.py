"""Single webhooks and records beside the load: what a fault sends itself, noted for the checker.

Rule: whatever is sent here is kept in the world's list, so the verdict knows it.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import time
from collections.abc import Callable
from itertools import count
from typing import Any
from urllib.parse import urlsplit

from confluent_kafka import Message, Producer

from onceflow.demo.delivery import Attempt, signature_header
from onceflow.demo.traffic import Request
from tests.chaos.world import World
from tests.checker.snapshot import Delivery
from tests.load.steady_load import delivery_of

ANSWER_SECONDS = 15.0
FLUSH_SECONDS = 20.0

_numbers = count(1)


def event(kind: str = "payment_intent.succeeded", *, name: str = "", **subject: Any) -> dict[str, Any]:
    """Return a good event about a new payment, with the changes given to its object."""
    number = name or f"{next(_numbers)}_{time.time_ns()}"
    good = {"id": f"pi_chaos{number}", "object": "payment_intent", "amount": 1_099, "currency": "eur"}
    return {
        "id": f"evt_chaos{number}",
        "object": "event",
        "api_version": "2024-06-20",
        "created": int(time.time()),
        "data": {"object": good | subject},
        "livemode": False,
        "request": None,
        "type": kind,
    }


def body_of(value: object) -> bytes:
    """Return a body."""
    return json.dumps(value).encode()


def post(
    world: World,
    body: bytes,
    *,
    url: str | None = None,
    secret: str | None = None,
    at: int | None = None,
    header: str | None = None,
    note: bool = True,
    codes: frozenset[str] = frozenset(),
) -> tuple[int | None, dict[str, Any], float]:
    """Send one webhook; return (status, answer, seconds), the status None when the connection broke.

    Args:
        world: whose first bridge takes it, unless ``url`` names another.
        body: of the request.
        url: of another bridge.
        secret: that signs; the world's own unless given.
        at: the signed time; now unless given.
        header: the whole signature header instead of a right one.
        note: keep it for the verdict; a request that must be refused is not.
        codes: codes with which it must be quarantined.
    """
    parts = urlsplit(url or world.webhook_url)
    given = header
    if given is None:
        given = signature_header(body, secret or world.secret, at=at if at is not None else int(time.time()))
    began = time.monotonic()
    connection = http.client.HTTPConnection(parts.netloc, timeout=ANSWER_SECONDS)
    status: int | None = None
    answer: dict[str, Any] = {}
    try:
        connection.request("POST", parts.path, body, {"Stripe-Signature": given, "Content-Type": "application/json"})
        response = connection.getresponse()
        status, text = response.status, response.read()
        answer = json.loads(text) if text.startswith(b"{") else {}
    except (OSError, http.client.HTTPException):
        status = None
    finally:
        connection.close()
    if note:
        world.deliveries.append(delivery_of(Attempt(Request("odd", body), status), codes))
        world.note_bodies([body])
    return status, answer, time.monotonic() - began


def post_until_taken(world: World, body: bytes, *, codes: frozenset[str] = frozenset()) -> None:
    """Send one webhook as part of the load, which repeats it until it is answered with 200."""
    if codes:
        world.deliveries.append(delivery_of(Attempt(Request("odd", body), None), codes))
    world.load.sender.send(Request("odd", body))


def code_of(answer: dict[str, Any]) -> str:
    """Return the code of a refusal."""
    return str(answer.get("error", {}).get("code"))


def plant(world: World, codes: set[str], *, topic: str | None = None, **record: Any) -> tuple[int, int]:
    """Put a record on the event topic as anybody with write access could; return (partition, offset).

    Args:
        world: whose topic it is.
        codes: codes that the record may be quarantined with; none when it must pass for what it says.
        topic: another topic.
        record: arguments of ``Producer.produce``.
    """
    producer = Producer({"bootstrap.servers": world.bootstrap, "message.max.bytes": 4_000_000})
    [placed] = produce_all(producer, topic or world.topics.events[0], [record])
    if codes and topic is None:
        world.planted[placed] = frozenset(codes)
    return placed


def produce_all(producer: Producer, topic: str, records: list[dict[str, Any]]) -> list[tuple[int, int]]:
    """Write records and wait until all are confirmed; return their places in the same order."""
    placed: dict[int, tuple[int, int]] = {}

    def report_of(number: int) -> Callable[[object, Message], None]:
        def report(error: object, message: Message) -> None:
            partition, offset = message.partition(), message.offset()
            assert error is None, error
            assert partition is not None
            assert offset is not None
            placed[number] = (partition, offset)

        return report

    for number, record in enumerate(records):
        producer.produce(topic, on_delivery=report_of(number), **record)
    assert producer.flush(FLUSH_SECONDS) == 0, "a record was not confirmed"
    return [placed[number] for number in range(len(records))]


def note_sent(world: World, body: bytes) -> None:
    """Tell the verdict that a body was signed and sent, but never answered."""
    world.deliveries.append(Delivery(hashlib.sha256(body).digest(), None))
