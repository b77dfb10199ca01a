"""Table C of bad inputs, rows 19 to 34: what is validly signed is taken, whatever it says, and kept byte for byte."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from onceflow_schemas.attestation import AttestationKey
from onceflow_schemas.event_record import EventRecord, open_event
from tests.producer.bridge_process import ATTESTATION_SECRET, BridgeProcess, event

KEYS = {"test-key": AttestationKey("test-key", ATTESTATION_SECRET)}


def changed(**changes: Any) -> bytes:
    return event("evt_odd", **changes)


def charge(text: str) -> bytes:
    """An event whose charge has this JSON text as one more field."""
    return event("evt_odd").replace(b'"amount": 1099', text.encode())


THIN = {
    "id": "evt_T7",
    "object": "v2.core.event",
    "type": "v2.core.account[configuration.merchant].capability_status_updated",
    "livemode": False,
    "created": "2026-01-01T00:00:00.123456789Z",
    "related_object": {"id": "acct_T7", "type": "v2.core.account", "url": "/v2/core/accounts/acct_T7"},
}

ODD: dict[str, bytes] = {
    "19 word": b"hello",
    "19 null": b"null",
    "19 list": b"[]",
    "19 number": b"5",
    "19 text": b'"x"',
    "19 empty object": b"{}",
    "20 id missing": changed(id=None),
    "20 id number": changed(id=5),
    "20 id empty": changed(id=""),
    "20 id long": changed(id="evt_" + "x" * 300),
    "20 id NUL": changed(id="evt_1\0"),
    "20 id CR LF": changed(id="evt_1\r\nX-Injected: 1"),
    "20 id path": changed(id="../evt_1"),
    "20 id bidi": changed(id="evt_\u202e1"),
    "20 id escape": changed(id="evt_x\x1b[2J"),
    "21 type missing": changed(type=None),
    "21 type number": changed(type=7),
    "21 type long": changed(type="x" * 10_000),
    "21 type CR LF": changed(type="a\r\nb"),
    "22 doubled id": event("evt_odd").replace(b'"object": "event"', b'"object": "event", "id": "evt_other"'),
    "22 doubled inside": charge('"amount": 1, "amount": 2'),
    "23 NaN": charge('"amount": NaN'),
    "23 Infinity": charge('"amount": -Infinity'),
    "23 1e999": charge('"amount": 1e999'),
    "23 -0": charge('"fee": -0, "amount": 1'),
    "24 5,000 digits": charge('"amount": ' + "9" * 5_000),
    "24 2^63": charge('"amount": 9223372036854775808'),
    "24 fraction": charge('"amount": 1.5'),
    "24 text": charge('"amount": "100"'),
    "24 negative": charge('"amount": -1'),
    "25 100,000 lists": b"[" * 100_000 + b"]" * 100_000,
    "25 lists without end": b"[" * 200_000,
    "25 900 objects": charge('"amount": ' + '{"a":' * 900 + "1" + "}" * 900),
    "26 NUL in metadata": charge(r'"metadata": {"k": "a\u0000b"}'),
    "27 lone surrogate": charge(r'"description": "\ud800"'),
    "28 many keys": b"{" + b",".join(b'"k%d":1' % n for n in range(90_000)) + b"}",
    "28 many doubled keys": b'{"a":0,' + b",".join(b'"k%d":1' % (n % 30_000) for n in range(90_000)) + b"}",
    "28 long text": json.dumps({"id": "evt_odd", "x": "y" * 1_000_000}).encode(),
    "29 thin": json.dumps(THIN).encode(),
    "30 other mode": changed(livemode=True),
    "30 unknown account": changed(account="acct_unknown"),
    "30 account number": changed(account=5),
    "31 unknown type": changed(type="never.heard.of"),
    "31 unknown version": changed(api_version="2099-01-01.future", extra={"a": [1]}),
    "34 created 1970": changed(created=0),
    "34 created 2100": changed(created=4_102_444_800),
    "34 created far": changed(created=10**18),
    "34 created text": changed(created="yesterday"),
    "35 currency": charge('"currency2": "usd\\n", "amount": 1'),
    "13 bytes": b"\xff" * 1_000,
    "13 UTF-16": event("evt_odd").decode().encode("utf-16"),
    "13 BOM": b"\xef\xbb\xbf" + event("evt_odd"),
    "37 Avro": b"Obj\x01\x04\x16avro.schema",
    "one byte": b"\x00",
    "white space": b" \n ",
}


@pytest.mark.parametrize("name", ODD)
def test_signed_oddities_are_taken_and_kept(bridge: BridgeProcess, name: str) -> None:
    body = ODD[name]
    answer = bridge.post(body)
    assert answer.status_code == 200, answer.text
    stored = bridge.stored(answer)
    assert stored.value == body
    headers = [(name, value.encode()) for name, value in stored.headers.items()]
    assert all(value.isprintable() for value in stored.headers.values())
    opened = open_event(topic=bridge.topic, value=stored.value, headers=headers, deployment="test", keys=KEYS)
    assert isinstance(opened, EventRecord), opened


@pytest.mark.parametrize("name", ["19 null", "20 id missing", "20 id NUL", "22 doubled id", "13 bytes"])
def test_what_has_no_usable_id_is_known_by_its_bytes(bridge: BridgeProcess, name: str) -> None:
    stored = bridge.stored(bridge.post(ODD[name]))
    assert stored.headers["ce_id"].startswith("sha256:")
    assert len(stored.headers["ce_id"]) == len("sha256:") + 64


def test_rows_32_and_33_the_same_id_again_and_two_ids_for_one_change(bridge: BridgeProcess) -> None:
    first = bridge.stored(bridge.post(event("evt_twice")))
    second = bridge.stored(bridge.post(event("evt_twice", created=1_700_000_001)))
    assert first.value != second.value
    assert first.key == second.key
    same = {"object": {"id": "ch_shared", "object": "charge"}}
    keys = {bridge.stored(bridge.post(event(name, data=same))).key for name in ("evt_one", "evt_two")}
    assert len(keys) == 1


def test_row_28_the_largest_odd_bodies_do_not_hold_others_up(bridge: BridgeProcess) -> None:
    slowest = 0.0
    for name in ("28 many keys", "28 many doubled keys", "28 long text", "25 lists without end"):
        started = time.monotonic()
        assert bridge.post(ODD[name]).status_code == 200
        slowest = max(slowest, time.monotonic() - started)
    assert slowest < 2.0
    assert bridge.metric("onceflow_bridge_refused_total", code="internal_error") == 0
