"""The published vectors: our code gives them, and so does a second implementation with the standard library only.

A vector is never changed: whoever reads the topics depends on it.  A new version of a form gets new vectors beside these.
"""

from __future__ import annotations

import base64
import json
from datetime import datetime
from importlib.resources import files
from typing import Any
from uuid import UUID

import pytest

from onceflow_schemas.attestation import AttestationKey
from onceflow_schemas.envelope import read_envelope
from onceflow_schemas.event_record import EventRecord, build_event, open_event
from onceflow_schemas.fingerprint import record_fingerprint
from onceflow_schemas.identity import (
    NAMESPACE,
    Identity,
    body_event_id,
    ce_id,
    event_cause,
    lane_of,
    operation_cause,
    operation_id,
    outcome_id,
)
from onceflow_schemas.murmur2 import murmur2
from onceflow_schemas.outcome_record import OutcomeRow, canonical_value, outcome_headers, outcome_value
from onceflow_schemas.times import parse_time
from tests.schemas import independent

Vector = dict[str, Any]


def load(name: str) -> Vector:
    found: Vector = json.loads((files("onceflow_schemas") / "vectors" / f"{name}.json").read_text("utf-8"))
    return found


IDENTITY = load("identity")
EVENTS = load("event_records")
OUTCOMES = load("outcome_records")


def test_the_namespace() -> None:
    assert str(NAMESPACE) == IDENTITY["namespace"] == str(independent.NAMESPACE)


@pytest.mark.parametrize("vector", IDENTITY["outcome_ids"])
def test_outcome_ids(vector: Vector) -> None:
    parts = ("cause", "handler", "type", "key", "n")
    made = outcome_id(**{name: vector[name] for name in parts})
    assert str(made) == vector["outcome_id"] == independent.outcome_id(vector)
    assert json.loads(vector["name"]) == ["outcome", *(vector[name] for name in parts)]


@pytest.mark.parametrize("vector", IDENTITY["operation_ids"])
def test_operation_ids(vector: Vector) -> None:
    parts = ("account", "mode", "effect", "subject", "occurrence")
    made = operation_id(**{name: vector[name] for name in parts})
    assert str(made) == vector["operation_id"] == independent.operation_id(vector)
    assert json.loads(vector["name"]) == ["operation", *(vector[name] for name in parts)]


@pytest.mark.parametrize("vector", IDENTITY["operation_causes"])
def test_causes_of_settled_operations(vector: Vector) -> None:
    made = operation_cause(UUID(vector["operation_id"]), vector["state"])
    assert made == vector["cause"] == "operation:{operation_id}/{state}".format(**vector)


@pytest.mark.parametrize("vector", IDENTITY["revisions"])
def test_revisions(vector: Vector) -> None:
    made = ce_id(UUID(vector["outcome_id"]), vector["revision"])
    assert str(made) == vector["ce_id"] == independent.revision_id(vector["outcome_id"], vector["revision"])


@pytest.mark.parametrize("vector", IDENTITY["causes"])
def test_causes(vector: Vector) -> None:
    identity = Identity(vector["account"], vector["mode"], vector["event_id"])
    assert event_cause(identity) == vector["cause"]
    assert vector["cause"] == "event:{account}/{mode}/{event_id}".format(**vector)


@pytest.mark.parametrize("vector", IDENTITY["body_event_ids"])
def test_ids_of_bodies_without_one(vector: Vector) -> None:
    assert body_event_id(vector["body"].encode()) == vector["event_id"]


@pytest.mark.parametrize("vector", IDENTITY["lanes"])
def test_lanes(vector: Vector) -> None:
    made = lane_of(vector["key"], vector["lane_count"])
    assert made == vector["lane"] == independent.lane_of(vector["key"], vector["lane_count"])


@pytest.mark.parametrize("vector", load("murmur2")["hashes"])
def test_hashes_of_kafka(vector: Vector) -> None:
    data = vector["text"].encode()
    assert murmur2(data) == vector["hash"] == independent.murmur2(data)


def test_hashes_as_kafkas_own_test_writes_them() -> None:
    """Apache Kafka, ``UtilsTest.testMurmur2``: signed numbers."""
    signed = {
        vector["text"]: vector["hash"] - 2**32 if vector["hash"] >= 2**31 else vector["hash"]
        for vector in load("murmur2")["hashes"]
    }
    assert signed["21"] == -973932308
    assert signed["foobar"] == -790332482
    assert signed["a-little-bit-long-string"] == -985981536
    assert signed["a-little-bit-longer-string"] == -1486304829
    assert signed["lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8"] == -58897971
    assert signed["abc"] == 479470107


def key_of(vector: Vector) -> AttestationKey:
    return AttestationKey(vector["key_id"], bytes.fromhex(vector["secret_hex"]))


@pytest.mark.parametrize("vector", EVENTS["records"], ids=lambda vector: vector["about"])
def test_event_records_are_built(vector: Vector) -> None:
    headers = dict(vector["headers"])
    body = base64.b64decode(vector["value_base64"])
    made = build_event(
        body,
        envelope=read_envelope(body),
        default_account=EVENTS["default_account"],
        default_mode=EVENTS["default_mode"],
        received_at=parse_time(headers["onceflow_received_at"]),
        endpoint=headers["onceflow_endpoint"],
        source=headers["onceflow_source"],
        deployment=vector["deployment"],
        topic=vector["topic"],
        key=key_of(vector),
        traceparent=headers.get("traceparent"),
    )
    assert made.key.decode() == vector["key"]
    assert made.value == body
    assert [[name, raw.decode()] for name, raw in made.headers] == vector["headers"]


@pytest.mark.parametrize("vector", EVENTS["records"], ids=lambda vector: vector["about"])
def test_event_records_are_opened(vector: Vector) -> None:
    opened = open_event(
        topic=vector["topic"],
        value=base64.b64decode(vector["value_base64"]),
        headers=[(name, text.encode()) for name, text in vector["headers"]],
        deployment=vector["deployment"],
        keys={vector["key_id"]: key_of(vector)},
    )
    assert isinstance(opened, EventRecord)
    assert opened.identity.event_id == dict(vector["headers"])["ce_id"]


@pytest.mark.parametrize("vector", EVENTS["records"], ids=lambda vector: vector["about"])
def test_attestations(vector: Vector) -> None:
    assert independent.signed_bytes(vector).hex() == vector["signed_bytes_hex"]
    assert independent.attestation(vector) == dict(vector["headers"])["onceflow_attestation"]


@pytest.mark.parametrize("vector", load("outcome_values")["values"])
def test_outcome_values(vector: Vector) -> None:
    assert canonical_value(vector["data"]) == vector["value"].encode() == independent.canonical_value(vector["data"])


@pytest.mark.parametrize("vector", OUTCOMES["records"], ids=lambda vector: vector["about"])
def test_outcome_records(vector: Vector) -> None:
    headers = dict(vector["headers"])
    row = OutcomeRow(
        lane=lane_of(vector["key"], vector["lane_count"]),
        seq=int(headers["onceflow_sequence"]),
        outcome_id=UUID(headers["onceflow_outcome_id"]),
        revision=int(headers["onceflow_revision"]),
        ce_id=ce_id(UUID(headers["onceflow_outcome_id"]), int(headers["onceflow_revision"])),
        type=headers["ce_type"],
        key=vector["key"],
        value=canonical_value(vector["data"]),
        headers={},
        cause=headers["onceflow_cause"],
        withheld=vector["withheld"],
        created_at=datetime.fromisoformat(headers["ce_time"]),
    )
    made = outcome_headers(row, deployment=vector["deployment"], refill=vector["refill"])
    assert {name: raw.decode() for name, raw in made} == headers
    assert outcome_value(row) == vector["value"].encode()


@pytest.mark.parametrize("vector", load("fingerprints")["fingerprints"])
def test_fingerprints(vector: Vector) -> None:
    made = record_fingerprint(
        offset=vector["offset"],
        timestamp_ms=vector["timestamp_ms"],
        key=None if vector["key_hex"] is None else bytes.fromhex(vector["key_hex"]),
        value=None if vector["value_hex"] is None else bytes.fromhex(vector["value_hex"]),
    )
    assert made == vector["fingerprint"] == independent.fingerprint(vector)
