"""Events as records: what goes in comes out, and no headers make opening raise or believe."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceflow_schemas.attestation import AttestationKey
from onceflow_schemas.envelope import read_envelope
from onceflow_schemas.event_record import EventRecord, OutgoingRecord, Untrusted, build_event, open_event
from onceflow_schemas.failure import RECORD_FAILURES
from onceflow_schemas.identity import Identity, body_event_id
from tests.schemas.stripe_bodies import CASES, event_with

KEY = AttestationKey("k1", b"0123456789abcdef0123456789abcdef")
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
RECEIVED = datetime(2026, 1, 1, 0, 0, 1, 234_567, tzinfo=UTC)
BODY = event_with()
Headers = list[tuple[str, bytes | None]]


def build(body: bytes = BODY, **changes: Any) -> OutgoingRecord:
    settings: dict[str, Any] = {
        "envelope": read_envelope(body),
        "default_account": "acct_own",
        "default_mode": "test",
        "received_at": RECEIVED,
        "endpoint": "shop.eu-1",
        "source": "webhook",
        "deployment": "shop",
        "topic": "stripe.events.v1",
        "key": KEY,
        "traceparent": TRACE,
    }
    return build_event(body, **{**settings, **changes})


RECORD = build()


def reopen(
    headers: Headers,
    *,
    value: bytes = BODY,
    topic: str = "stripe.events.v1",
    deployment: str = "shop",
    keys: dict[str, AttestationKey] | None = None,
) -> EventRecord | Untrusted:
    return open_event(
        topic=topic, value=value, headers=headers, deployment=deployment, keys={"k1": KEY} if keys is None else keys
    )


def changed(**changes: bytes | None) -> Headers:
    """The headers of the record with some replaced; None takes one away."""
    replaced = [(name, changes.get(name, raw)) for name, raw in RECORD.headers]
    return [(name, raw) for name, raw in replaced if raw is not None]


def test_a_record_is_the_signed_bytes_with_headers_that_say_what_they_are() -> None:
    assert RECORD.value is BODY
    assert RECORD.key == b"acct_1A/pi_1"
    assert RECORD.identity == Identity("acct_1A", "test", "evt_1B")
    attestation = dict(RECORD.headers)["onceflow_attestation"]
    assert RECORD.headers == [
        ("ce_specversion", b"1.0"),
        ("ce_id", b"evt_1B"),
        ("ce_source", b"urn:stripe:acct_1A:test"),
        ("ce_type", b"com.stripe.payment_intent.succeeded"),
        ("ce_subject", b"pi_1"),
        ("ce_time", b"2026-01-01T00:00:00.000000Z"),
        ("content-type", b"application/json"),
        ("traceparent", TRACE.encode()),
        ("onceflow_received_at", b"2026-01-01T00:00:01.234567Z"),
        ("onceflow_endpoint", b"shop.eu-1"),
        ("onceflow_source", b"webhook"),
        ("onceflow_attestation", attestation),
    ]


def test_what_goes_in_comes_out() -> None:
    assert reopen(list(RECORD.headers)) == EventRecord(
        identity=Identity("acct_1A", "test", "evt_1B"),
        type="payment_intent.succeeded",
        object_id="pi_1",
        created_text="2026-01-01T00:00:00.000000Z",
        received_at_text="2026-01-01T00:00:01.234567Z",
        received_at=RECEIVED,
        endpoint="shop.eu-1",
        source="webhook",
        traceparent=TRACE,
        body_sha256=hashlib.sha256(RECORD.value).digest(),
    )


def test_the_body_says_account_and_mode_and_the_settings_stand_in() -> None:
    assert build(event_with(livemode=True)).identity == Identity("acct_1A", "live", "evt_1B")
    assert build(event_with(account=..., livemode=...)).identity == Identity("acct_own", "test", "evt_1B")


@pytest.mark.parametrize("body", [b"\xff", b"null", b"", b"{}", event_with(id="evt_\r\nx: y", type="a\x1b[2J")])
def test_a_body_that_is_no_event_is_a_record_still(body: bytes) -> None:
    record = build(body, traceparent=None, source="reconciler")
    event_id = body_event_id(body)
    assert record.identity.event_id == event_id
    opened = reopen(list(record.headers), value=body)
    assert isinstance(opened, EventRecord)
    assert (opened.identity.event_id, opened.type, opened.traceparent) == (event_id, "unknown", None)
    assert opened.source == "reconciler"


def test_what_a_body_does_not_say_has_no_header() -> None:
    record = build(b"null", traceparent=None)
    assert record.key == f"acct_own/{body_event_id(b'null')}".encode()
    assert {"ce_subject", "ce_time", "traceparent"}.isdisjoint(name for name, _ in record.headers)
    opened = reopen(list(record.headers), value=b"null")
    assert isinstance(opened, EventRecord)
    assert (opened.object_id, opened.created_text) == ("", None)


@pytest.mark.parametrize(
    ("opened", "code"),
    [
        (reopen(list(RECORD.headers), topic="stripe.events.v2"), "unauthenticated"),
        (reopen(list(RECORD.headers), deployment="other"), "unauthenticated"),
        (reopen(list(RECORD.headers), value=BODY + b" "), "unauthenticated"),
        (reopen(list(RECORD.headers), value=b""), "unauthenticated"),
        (reopen(list(RECORD.headers), keys={}), "unknown_key_id"),
        (reopen([]), "unauthenticated"),
        (reopen([("other", b"x"), ("other", None)]), "unauthenticated"),
        (reopen(changed(onceflow_attestation=None)), "unauthenticated"),
        (reopen(changed(onceflow_attestation=b"v99 k1 x")), "future_version"),
        (reopen(changed(ce_id=None)), "bad_headers"),
        (reopen(changed(onceflow_source=None)), "bad_headers"),
        (reopen(changed(ce_source=b"urn:stripe:acct_1A")), "bad_headers"),
        (reopen(changed(ce_source=b"urn:stripe:acct_1A:test:x")), "bad_headers"),
        (reopen(changed(ce_source=b"urn:other:acct_1A:test")), "bad_headers"),
        (reopen(changed(ce_type=b"stripe.invoice.paid")), "bad_headers"),
        (reopen(changed(ce_time=b"yesterday")), "bad_headers"),
        (reopen(changed(onceflow_received_at=b"2026-01-01T00:00:00Z")), "bad_headers"),
        (reopen(changed(ce_id=b"evt_\xff")), "bad_headers"),
        (reopen(changed(ce_id=b"evt_1\x1b[2J")), "bad_headers"),
        (reopen(changed(ce_id=b"evt_1\x7f")), "bad_headers"),
        (reopen(changed(ce_subject=b"x" * 2049)), "bad_headers"),
        (reopen([*RECORD.headers, ("ce_id", b"evt_1B")]), "bad_headers"),
        (reopen([*RECORD.headers, ("traceparent", None)]), "bad_headers"),
        (reopen([*RECORD.headers, *[("x", b"")] * 53]), "too_many_headers"),
        (reopen([("x", b"")] * 10_000), "too_many_headers"),
    ],
)
def test_records_that_nobody_vouches_for(opened: EventRecord | Untrusted, code: str) -> None:
    assert isinstance(opened, Untrusted)
    assert opened.code == code
    assert opened.detail


@pytest.mark.parametrize(
    "headers",
    [
        [*RECORD.headers, *[("x", b"\xff"), ("x", None)] * 26],
        list(reversed(RECORD.headers)),
        changed(ce_subject=b"x" * 2048),
        [header for header in RECORD.headers if not header[0].startswith(("ce_spec", "content", "trace"))],
    ],
)
def test_headers_that_do_not_matter(headers: Headers) -> None:
    """Others' headers up to 64 in all, their order, and those of ours that nothing depends on."""
    opened = reopen(headers)
    assert isinstance(opened, EventRecord)
    assert opened.identity == RECORD.identity


ATTESTED = [
    "ce_id", "ce_source", "ce_type", "ce_time", "onceflow_received_at", "onceflow_endpoint", "onceflow_attestation",
]  # fmt: skip


@pytest.mark.parametrize("name", ATTESTED)
def test_any_flipped_bit_of_an_attested_header_is_seen(name: str) -> None:
    raw = dict(RECORD.headers)[name]
    for bit in range(len(raw) * 8):
        flipped = bytearray(raw)
        flipped[bit // 8] ^= 1 << bit % 8
        assert isinstance(reopen(changed(**{name: bytes(flipped)})), Untrusted)


BODIES = st.binary(max_size=60) | st.builds(
    event_with,
    st.fixed_dictionaries({}, optional={"id": st.text(max_size=6), "object": st.sampled_from(["charge", 5, []])}),
    id=st.sampled_from(["evt_1", "", 7]) | st.text(max_size=6),
    type=st.text(max_size=6),
    account=st.none() | st.text(max_size=6) | st.just("acct_9"),
    livemode=st.none() | st.booleans(),
    created=st.integers(-1, 253_402_300_800) | st.text(max_size=3),
)


@CASES
@given(BODIES, st.sampled_from([None, TRACE]))
def test_any_body_makes_a_record_that_opens(body: bytes, traceparent: str | None) -> None:
    made = build(body, traceparent=traceparent)
    opened = reopen(list(made.headers), value=body)
    assert isinstance(opened, EventRecord)
    envelope = read_envelope(body)
    assert opened.identity == made.identity
    assert (opened.type, opened.object_id) == (envelope.type, envelope.object_id)
    assert made.key.decode() == f"{made.identity.account}/{envelope.order_id or envelope.event_id}"
    assert (opened.received_at, opened.traceparent) == (RECEIVED, traceparent)


NAMES = st.sampled_from([name for name, _ in RECORD.headers]) | st.text(max_size=5)
RAWS = st.none() | st.binary(max_size=20) | st.sampled_from([raw for _, raw in RECORD.headers])


@CASES
@given(st.lists(st.tuples(NAMES, RAWS), max_size=20), st.binary(max_size=20))
def test_no_headers_make_it_raise(headers: Headers, value: bytes) -> None:
    opened = reopen(headers, value=value)
    assert isinstance(opened, Untrusted)
    assert opened.code in RECORD_FAILURES


@CASES
@given(st.dictionaries(st.sampled_from([name for name, _ in RECORD.headers]), RAWS, max_size=3))
def test_replaced_headers_are_seen_or_change_nothing_that_is_attested(changes: dict[str, bytes | None]) -> None:
    headers = [(name, changes.get(name, raw)) for name, raw in RECORD.headers]
    opened = reopen(headers)
    if isinstance(opened, EventRecord):
        whole = reopen(list(RECORD.headers))
        assert isinstance(whole, EventRecord)
        free: dict[str, Any] = {"object_id": whole.object_id, "source": whole.source, "traceparent": whole.traceparent}
        assert opened._replace(**free) == whole
