"""Records that somebody else put on the event topic: kept with bytes and headers, the partition goes on."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from tests.bad_input.conftest import Outside, dump, new_id, payment

GARBAGE: dict[str, tuple[bytes | None, list[tuple[str, bytes | None]], str]] = {
    "null value": (None, [], "empty_record"),
    "empty value": (b"", [], "empty_record"),
    "not json": (b"not json", [], "unauthenticated"),
    "avro": (b"\x00\x00\x00\x00\x07\x02\x06foo", [], "unauthenticated"),
    "truncated": (b'{"id": "evt_', [], "unauthenticated"),
    "0.9 MB of [": (b"[" * 900_000, [], "unauthenticated"),
    "0.9 MB of 0xFF": (b"\xff" * 900_000, [], "unauthenticated"),
    "valid json, no envelope": (b'{"hello": 1}', [], "unauthenticated"),
    "10,000 headers": (b"x", [("h", b"v")] * 10_000, "too_many_headers"),
    "not utf-8 in a header": (b"x", [("onceflow_attestation", b"\xff\xfe")], "bad_headers"),
    "null header": (b"x", [("ce_id", None)], "bad_headers"),
    "made up attestation": (b"x", [("onceflow_attestation", b"v1 local AAAA")], "bad_headers"),
}


@pytest.mark.parametrize("name", GARBAGE)
def test_garbage_is_kept_and_passed(outside: Outside, name: str) -> None:
    value, headers, code = GARBAGE[name]
    row = outside.quarantined_at(outside.publish(value, headers=headers))
    assert row["code"] == code
    assert (None if row["value"] is None else bytes(row["value"])) == value
    kept = [(key, None if text is None else base64.b64decode(text)) for key, text in row["headers"]]
    assert kept == headers
    assert row["event_id"] is None


def real_record(outside: Outside) -> tuple[str, Any, dict[str, bytes]]:
    """A record of the bridge whose event nobody has seen: its marker is taken away again."""
    event_id = new_id()
    assert outside.post(dump(payment(event_id))) == 200
    assert outside.state(event_id) == "processed"
    message = outside.record_of(event_id)
    return event_id, message, dict(message.headers())


def forged(outside: Outside, message: Any, headers: dict[str, bytes], **change: Any) -> str:
    """Put a changed copy on the topic; return the code that it is kept under."""
    value = change.pop("value", message.value())
    key = change.pop("key", message.key())
    place = outside.publish(value, key=key, headers=list({**headers, **change}.items()))
    row = outside.quarantined_at(place)
    assert row["event_id"] is None
    return str(row["code"])


def test_no_forged_copy_is_believed(outside: Outside) -> None:
    """C38, K13: whoever can write to the topic can neither invent an event nor move, age or change one."""
    _, message, headers = real_record(outside)
    attestation = headers["onceflow_attestation"]
    cases: list[tuple[str, dict[str, Any]]] = [
        ("unauthenticated", {"value": message.value().replace(b"1099", b"9999")}),
        ("unauthenticated", {"ce_id": b"evt_other"}),
        ("unauthenticated", {"ce_source": b"urn:stripe:acct_embedded:live"}),
        ("unauthenticated", {"ce_type": b"com.stripe.invoice.paid"}),
        ("unauthenticated", {"ce_time": b"2020-01-01T00:00:00.000000Z"}),
        ("unauthenticated", {"onceflow_received_at": b"2020-01-01T00:00:00.000000Z"}),
        ("unauthenticated", {"onceflow_endpoint": b"other"}),
        ("unauthenticated", {"onceflow_attestation": attestation[:-2] + b"AA"}),
        ("unauthenticated", {"onceflow_attestation": b"v1 local " + b"A" * 44}),
        ("unknown_key_id", {"onceflow_attestation": attestation.replace(b" local ", b" other ")}),
        ("future_version", {"onceflow_attestation": attestation.replace(b"v1 ", b"v2 ")}),
        ("bad_headers", {"onceflow_received_at": b"yesterday"}),
        ("bad_headers", {"ce_source": b"urn:stripe:acct"}),
        ("bad_key", {"key": None}),
        ("bad_key", {"key": b"acct_other/pi_1"}),
    ]
    for code, change in cases:
        assert forged(outside, message, headers, **change) == code, change
    doubled = [*headers.items(), ("ce_id", headers["ce_id"])]
    row = outside.quarantined_at(outside.publish(message.value(), key=message.key(), headers=doubled))
    assert row["code"] == "bad_headers"


def test_an_exact_copy_is_a_duplicate_and_unknown_headers_do_no_harm(outside: Outside) -> None:
    event_id, message, headers = real_record(outside)
    partition, _ = outside.publish(
        message.value(), key=message.key(), headers=[*headers.items(), ("x-foreign", b"\xff")]
    )
    good = new_id()
    assert outside.post(dump(payment(good))) == 200
    outside.state(good)
    assert outside.rows("SELECT * FROM onceflow.quarantine WHERE event_id = %s", event_id) == []
    assert len(outside.outcomes(event_id)) == 1
    assert partition >= 0


def test_unsigned_bytes_reach_neither_topic_nor_tables(outside: Outside) -> None:
    """I9, R01: one changed byte, a trailing newline or another spelling of the same JSON is refused."""
    import hashlib  # noqa: PLC0415
    import hmac  # noqa: PLC0415
    import time  # noqa: PLC0415

    event_id = new_id()
    body = dump(payment(event_id, description="Caf\xe9"))
    now = int(time.time())
    mac = hmac.new(outside.ready.webhook_secret.encode(), b"%d." % now + body, hashlib.sha256).hexdigest()
    for changed in (body + b"\n", body.replace(b": ", b":"), body.replace(b"\\u00e9", "é".encode()), body[:-1] + b"]"):
        assert changed != body
        assert outside.post(changed, header=f"t={now},v1={mac}") == 400
    marker = new_id()
    assert outside.post(dump(payment(marker))) == 200
    outside.state(marker)
    assert outside.rows("SELECT * FROM onceflow.inbox WHERE event_id = %s", event_id) == []
