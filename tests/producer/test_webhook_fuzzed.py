"""Whatever is sent, the webhook answers: a 4xx without proof, 200 with it, and never a 5xx for what a sender did."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from onceflow_producer import webhook as webhook_module
from onceflow_producer.body import BodyBudget
from onceflow_producer.endpoint_secrets import EndpointSecret
from onceflow_producer.metrics import BridgeMetrics
from onceflow_producer.publisher import Acknowledged, NotPublished, Publisher
from onceflow_producer.rate import InvalidRequestRate, RatePolicy
from onceflow_producer.webhook import Webhook, WebhookSettings
from onceflow_schemas.attestation import AttestationKey
from onceflow_schemas.event_record import OutgoingRecord
from tests.producer.asgi import HANG_UP, Heard, Message, body_message, call
from tests.producer.bridge_process import event, signed

SETTINGS = WebhookSettings(
    secrets=(EndpointSecret("main", b"whsec_A"),),
    tolerance_seconds=300,
    body_bytes_max=100_000,
    read_deadline_seconds=0.002,
    answer_deadline_seconds=1.0,
    default_account="acct_test",
    default_mode="test",
    deployment="test",
    topic="events",
    attestation_keys=(AttestationKey("k", bytes(32)),),
)
METRICS = BridgeMetrics()


class Taken:
    """Stands where the publisher stands; the real one has its own tests over a real broker."""

    def __init__(self, answer: Acknowledged | NotPublished) -> None:
        self.answer = answer
        self.records: list[OutgoingRecord] = []

    def publish(self, record: OutgoingRecord, *, deadline: float) -> asyncio.Future[Acknowledged] | NotPublished:
        assert deadline > 0
        self.records.append(record)
        if isinstance(self.answer, NotPublished):
            return self.answer
        future = asyncio.get_running_loop().create_future()
        future.set_result(self.answer)
        return future


def ask(
    *messages: Message, publisher: Taken | None = None, settings: WebhookSettings = SETTINGS, **request: Any
) -> tuple[Heard, Taken]:
    taken = Taken(Acknowledged(1, 2)) if publisher is None else publisher

    async def run() -> Heard:
        budget = BodyBudget(1_000_000)
        one = Webhook(
            settings,
            publisher=cast("Publisher", taken),
            budget=budget,
            rate=InvalidRequestRate(RatePolicy(burst=10_000)),
            metrics=METRICS,
        )
        heard = await call(one, messages=messages, **request)
        assert budget.held_bytes == 0
        return heard

    return asyncio.run(run()), taken


def header_of(body: bytes) -> tuple[bytes, bytes]:
    return b"stripe-signature", signed(body, secret="whsec_A").encode()


NAMES = st.sampled_from([b"stripe-signature", b"content-length", b"content-encoding", b"traceparent", b"x"])
HEADERS = st.lists(st.tuples(NAMES, st.binary(max_size=100) | st.sampled_from([b"identity", b"5", b"t=1"])), max_size=8)
MESSAGES = st.lists(
    st.builds(body_message, st.binary(max_size=600), more=st.booleans()) | st.just(HANG_UP), min_size=1, max_size=4
)


@given(headers=HEADERS, messages=MESSAGES, method=st.sampled_from(["POST", "GET", "HEAD", "X"]))
def test_without_proof_there_is_no_record_and_no_5xx(
    headers: list[tuple[bytes, bytes]], messages: list[Message], method: str
) -> None:
    heard, taken = ask(*messages, headers=headers, method=method)
    assert heard.status == 0 or 400 <= heard.status < 500
    assert taken.records == []


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=10,
)
FIELDS = st.fixed_dictionaries(
    {},
    optional=dict.fromkeys(("id", "type", "created", "livemode", "account", "data", "object", "api_version"), JSON),
)
BODIES = st.binary(min_size=1, max_size=500) | FIELDS.map(lambda fields: json.dumps(fields).encode())


@given(body=BODIES)
def test_with_proof_everything_is_taken_byte_for_byte(body: bytes) -> None:
    heard, taken = ask(body_message(body), headers=[header_of(body)])
    assert (heard.status, json.loads(heard.body)) == (200, {"received": True, "partition": 1, "offset": 2})
    assert [record.value for record in taken.records] == [body]
    assert all(value.isascii() for _, value in taken.records[0].headers)


def test_without_a_key_to_sign_with_nothing_is_published() -> None:
    body = event("evt_1")
    none = WebhookSettings(
        **{name: getattr(SETTINGS, name) for name in SETTINGS.__slots__ if name != "attestation_keys"},
        attestation_keys=(),
    )
    heard, taken = ask(body_message(body), headers=[header_of(body)], settings=none)
    assert heard.status == 503
    assert json.loads(heard.body)["error"]["code"] == "attestation_key_missing"
    assert taken.records == []


@pytest.mark.parametrize("code", ["queue_full", "broker_timeout", "record_too_large"])
def test_what_the_publisher_says_is_answered(code: str) -> None:
    body = event("evt_1")
    publisher = Taken(NotPublished(code, "x"))
    heard, _ = ask(body_message(body), headers=[header_of(body)], publisher=publisher)
    assert json.loads(heard.body)["error"]["code"] == code


def test_a_bug_costs_one_request_and_shows_nothing_of_the_body(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(body: bytes) -> None:
        raise ValueError(body)

    monkeypatch.setattr(webhook_module, "read_envelope", broken)
    body = event("evt_canary")
    with capture_logs() as lines:
        heard, taken = ask(body_message(body), headers=[header_of(body)])
    assert heard.status == 500
    assert taken.records == []
    assert lines[0]["event"] == "webhook_failed"
    assert lines[0]["error"] == "ValueError"
    assert "canary" not in str(lines)


def test_the_clock_is_this_hosts() -> None:
    body = event("evt_1")
    header = signed(body, secret="whsec_A", timestamp=int(time.time()) - 310).encode()
    heard, _ = ask(body_message(body), headers=[(b"stripe-signature", header)])
    assert json.loads(heard.body)["error"]["code"] == "stale_timestamp"
