"""Both topics hold CloudEvents 1.0 in Kafka's binary mode: the CloudEvents SDK reads them and finds nothing to object to."""

from __future__ import annotations

import base64
import hashlib
import re
from datetime import UTC, datetime
from typing import Any

import pytest
from cloudevents.core.bindings.kafka import KafkaMessage, from_binary_event, to_binary_event
from cloudevents.core.v1.event import CloudEvent

from tests.schemas.test_vectors import EVENTS, OUTCOMES

FORBIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")
"""Control characters, surrogates and noncharacters: what CloudEvents' type String may not hold."""

NAME = re.compile(r"ce_[a-z0-9]{1,20}")


def read(vector: dict[str, Any], value: bytes) -> CloudEvent:
    headers = {name: text.encode() for name, text in vector["headers"]}
    event = from_binary_event(KafkaMessage(headers=headers, key=vector["key"].encode(), value=value))
    assert isinstance(event, CloudEvent)
    return event


def body(vector: dict[str, Any]) -> bytes:
    return base64.b64decode(vector["value_base64"])


def test_an_event_is_a_cloudevent() -> None:
    vector = EVENTS["records"][0]
    event = read(vector, body(vector))
    assert event.get_id() == "evt_1B"
    assert event.get_source() == "urn:stripe:acct_1A:live"
    assert event.get_type() == "com.stripe.charge.refunded"
    assert event.get_subject() == "ch_1"
    assert event.get_time() == datetime(2026, 1, 1, tzinfo=UTC)
    assert event.get_datacontenttype() == "application/json"
    data: Any = event.get_data()
    assert data["data"]["object"]["amount"] == 1200


def test_an_outcome_is_a_cloudevent() -> None:
    vector = OUTCOMES["records"][1]
    event = read(vector, vector["value"].encode())
    assert event.get_id() == dict(vector["headers"])["ce_id"]
    assert event.get_source() == "urn:onceflow:shop-production"
    assert event.get_type() == "invoice.paid"
    assert event.get_subject() == "in_1"
    assert event.get_time() == datetime(2026, 1, 1, 0, 0, 2, 3, tzinfo=UTC)
    assert event.get_data() == {"invoice": "in_1", "amount_paid": 1000}


def test_a_body_that_is_no_json_has_the_headers_of_a_cloudevent_still() -> None:
    vector = EVENTS["records"][2]
    event = read(vector, b"{}")
    assert event.get_id() == "sha256:" + hashlib.sha256(body(vector)).hexdigest()
    assert event.get_type() == "com.stripe.unknown"
    assert event.get_subject() is None


@pytest.mark.parametrize("vector", [*EVENTS["records"], *OUTCOMES["records"]], ids=lambda vector: vector["about"])
def test_names_and_texts_of_attributes_are_those_that_cloudevents_allows(vector: dict[str, Any]) -> None:
    for name, text in vector["headers"]:
        assert text
        assert FORBIDDEN.search(text) is None
        assert not name.startswith("ce_") or NAME.fullmatch(name)


@pytest.mark.parametrize("vector", OUTCOMES["records"], ids=lambda vector: vector["about"])
def test_what_the_sdk_would_write_is_what_we_wrote(vector: dict[str, Any]) -> None:
    written = to_binary_event(read(vector, vector["value"].encode()))
    ours = {name: text.encode() for name, text in vector["headers"] if not name.startswith("onceflow_")}
    assert {name: raw for name, raw in written.headers.items() if name != "ce_partitionkey"} == ours
