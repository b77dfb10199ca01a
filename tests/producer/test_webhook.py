"""The webhook over a real broker: what is accepted, and what then lies in the topic."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
import requests
from cloudevents.v1.kafka import KafkaMessage, from_binary

from onceflow_producer.endpoint_secrets import EndpointSecret
from onceflow_producer.webhook import secrets_by_path
from onceflow_schemas.attestation import AttestationKey
from onceflow_schemas.event_record import EventRecord, open_event
from onceflow_schemas.times import parse_time
from tests.producer.bridge_process import ATTESTATION_SECRET, BridgeProcess, event, signed


def test_an_event_lies_in_the_topic_byte_for_byte(bridge: BridgeProcess) -> None:
    body = event("evt_A1").replace(b"eur", 'eur", "description": "Café ☕'.encode())
    answer = bridge.post(body)
    assert answer.status_code == 200
    assert answer.json()["received"] is True
    stored = bridge.stored(answer)
    assert stored.value == body
    assert stored.key == b"acct_test/ch_evt_A1"
    assert stored.headers["ce_id"] == "evt_A1"
    assert stored.headers["ce_type"] == "com.stripe.charge.succeeded"
    assert stored.headers["ce_source"] == "urn:stripe:acct_test:test"
    assert stored.headers["onceflow_source"] == "webhook"
    assert re.fullmatch(r"ep_[0-9a-f]{12}", stored.headers["onceflow_endpoint"])
    received_at = parse_time(stored.headers["onceflow_received_at"])
    assert abs(datetime.now(UTC) - received_at) < timedelta(seconds=30)


def test_the_attestation_holds_for_this_topic_and_deployment_only(bridge: BridgeProcess) -> None:
    stored = bridge.stored(bridge.post(event("evt_A2")))
    keys = {"test-key": AttestationKey("test-key", ATTESTATION_SECRET)}
    headers = [(name, value.encode()) for name, value in stored.headers.items()]
    found = open_event(topic=bridge.topic, value=stored.value, headers=headers, deployment="test", keys=keys)
    assert isinstance(found, EventRecord)
    assert found.identity.event_id == "evt_A2"
    other = open_event(topic="other", value=stored.value, headers=headers, deployment="test", keys=keys)
    assert not isinstance(other, EventRecord)


def test_an_independent_reader_sees_a_cloud_event(bridge: BridgeProcess) -> None:
    stored = bridge.stored(bridge.post(event("evt_A3")))
    headers = {name: value.encode() for name, value in stored.headers.items()}
    found = from_binary(KafkaMessage(headers=headers, key=stored.key.decode(), value=stored.value))
    assert found["id"] == "evt_A3"
    assert found["source"] == "urn:stripe:acct_test:test"
    assert found["subject"] == "ch_evt_A3"


def test_a_trace_is_passed_on_and_an_odd_one_is_not(bridge: BridgeProcess) -> None:
    valid = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    for given, passed_on in ((valid, True), ("00-odd", False)):
        body = event("evt_A4")
        headers = {"Stripe-Signature": signed(body), "traceparent": given}
        answer = requests.post(bridge.url + "/webhooks/stripe", data=body, headers=headers, timeout=10)
        assert (bridge.stored(answer).headers["traceparent"] == given) is passed_on


def test_events_of_one_object_share_a_partition(bridge: BridgeProcess) -> None:
    charge = {"object": {"id": "ch_same", "object": "charge", "payment_intent": "pi_same"}}
    intent = {"object": {"id": "pi_same", "object": "payment_intent"}}
    answers = [bridge.post(event(f"evt_B{n}", data=intent if n % 2 else charge)).json() for n in range(6)]
    assert len({answer["partition"] for answer in answers}) == 1


def test_the_account_of_a_connected_event_is_in_key_and_source(bridge: BridgeProcess) -> None:
    stored = bridge.stored(bridge.post(event("evt_A5", account="acct_C1", livemode=True)))
    assert stored.key == b"acct_C1/ch_evt_A5"
    assert stored.headers["ce_source"] == "urn:stripe:acct_C1:live"


def test_a_hundred_repeats_are_all_taken(bridge: BridgeProcess) -> None:
    body = event("evt_A6")
    header = signed(body)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: bridge.post(body, header=header), range(100)))
    assert {answer.status_code for answer in answers} == {200}
    assert len({(answer.json()["partition"], answer.json()["offset"]) for answer in answers}) == 100


def test_each_secret_has_its_own_path() -> None:
    first, second, rolled = EndpointSecret("a", b"1"), EndpointSecret("b", b"2"), EndpointSecret("a", b"3")
    assert secrets_by_path((first, second, rolled)) == {
        "/webhooks/stripe": (first, second, rolled),
        "/webhooks/stripe/a": (first, rolled),
        "/webhooks/stripe/b": (second,),
    }


@pytest.mark.parametrize(
    ("path", "secret", "status"),
    [
        ("", "whsec_old", 200),
        ("", "whsec_new", 200),
        ("", "whsec_other", 200),
        ("", "whsec_gone", 400),
        ("/shop", "whsec_old", 200),
        ("/shop", "whsec_new", 200),
        ("/shop", "whsec_other", 400),
        ("/other", "whsec_other", 200),
        ("/other", "whsec_old", 400),
    ],
)
def test_rotation_and_endpoints(two_endpoints: BridgeProcess, *, path: str, secret: str, status: int) -> None:
    body = event("evt_rotation")
    answer = two_endpoints.post(body, header=signed(body, secret=secret), path="/webhooks/stripe" + path)
    assert answer.status_code == status
    if status == 200:
        endpoint = two_endpoints.stored(answer).headers["onceflow_endpoint"]
        assert endpoint == ("other" if secret == "whsec_other" else "shop")
    else:
        assert answer.json()["error"]["code"] == "wrong_signature"


def test_an_unknown_endpoint_is_404(two_endpoints: BridgeProcess) -> None:
    for path in ("/nobody", "/shop/", "/shop/x", "/SHOP", "/shop%00", "/%2e%2e", "x"):
        answer = two_endpoints.post(event("evt_x"), path="/webhooks/stripe" + path)
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "unknown_endpoint"), path


def test_answers_and_refusals_are_counted(bridge: BridgeProcess) -> None:
    before = {
        status: bridge.metric("onceflow_bridge_requests_total", status=status) for status in ("200", "400", "405")
    }
    wrong = bridge.metric("onceflow_bridge_refused_total", code="wrong_signature")
    published = bridge.metric("onceflow_bridge_publish_seconds_count")
    bridge.post(event("evt_M1"))
    bridge.post(event("evt_M1"), header="t=1,v1=" + "0" * 64)
    bridge.get("/webhooks/stripe")
    for status, count in before.items():
        assert bridge.metric("onceflow_bridge_requests_total", status=status) == count + 1
    assert bridge.metric("onceflow_bridge_refused_total", code="wrong_signature") == wrong + 1
    assert bridge.metric("onceflow_bridge_publish_seconds_count") == published + 1
    assert bridge.metric("onceflow_bridge_in_flight") == 0
    assert bridge.metric("onceflow_bridge_body_bytes") == 0
    assert bridge.metric("onceflow_bridge_ready") == 1


def test_no_body_secret_or_signature_is_logged(bridge: BridgeProcess) -> None:
    canary = "4242424242424242"
    body = event("evt_L1", data={"object": {"id": "ch_L1", "object": "charge", "card": canary}})
    header = signed(body)
    bridge.post(body)
    bridge.post(body + b" ", header=header)
    bridge.post(body, header=header + f",x={canary}\x1b[2J")
    bridge.post(body, header="v1=" + canary)
    bridge.post(body, path=f"/webhooks/stripe/{canary}")
    metrics = requests.get(bridge.metrics_url, timeout=5).text
    for text in (bridge.log_text(), metrics):
        assert canary not in text
        assert "whsec" not in text
        assert header.rpartition("=")[2] not in text
        assert "\x1b" not in text
    assert "Traceback" not in bridge.log_text()


def test_the_skew_is_in_the_log(bridge: BridgeProcess) -> None:
    body = event("evt_S1")
    moment = int(datetime.now(UTC).timestamp()) + 86_400
    answer = bridge.post(body, header=signed(body, timestamp=moment))
    assert answer.json()["error"]["code"] == "future_timestamp"
    skews = [line["skew_seconds"] for line in bridge.lines("webhook_refused", code="future_timestamp")]
    assert any(-86_401 <= skew <= -86_395 for skew in skews)


def test_log_lines_are_json(bridge: BridgeProcess) -> None:
    bridge.post(event("evt_x"), header="x")
    for line in bridge.log_text().splitlines():
        json.loads(line)
