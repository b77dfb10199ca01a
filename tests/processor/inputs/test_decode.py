"""Which foreign records become events: each format with each trust rule, and each refusal by its code."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given as examples
from hypothesis import strategies as st

from onceflow_processor.admission import admit
from onceflow_schemas.failure import CONTENT_FAILURES, RECORD_FAILURES
from tests.processor.conftest import ACCOUNT
from tests.processor.inputs.foreign_records import OLD_SECRET, ROADS, SIGNED, WRAP, Headers, signature
from tests.processor.inputs.rules import BODY, NOW, code_of, given, record, rules_of, take
from tests.processor.inputs.rules import changed as body_with
from tests.schemas.stripe_bodies import CASES

CREATED = datetime(2026, 1, 1, tzinfo=UTC)
THIN = {
    "id": "evt_T7",
    "object": "v2.core.event",
    "type": "v2.core.account[configuration.merchant].capability_status_updated",
    "livemode": False,
    "created": "2026-01-01T00:00:00.123456789Z",
    "related_object": {"id": "acct_T7", "type": "v2.core.account", "url": "/v2/core/accounts/acct_T7"},
}


@pytest.mark.parametrize(("name", "trust"), ROADS)
def test_a_record_is_an_event_with_the_identity_of_its_body(name: str, trust: str) -> None:
    item = take(BODY, name, trust)
    assert item.fault is None
    event = item.event
    assert event is not None
    assert (str(event.identity), event.type, event.object_id) == ("acct_test/test/evt_1", "invoice.paid", "in_1")
    assert event.received_at == CREATED, "markers are kept by the event's own time"
    assert event.created_text == event.received_at_text == "2026-01-01T00:00:00.000000Z"
    assert (event.trust, event.endpoint) == (trust, "endpoint-1" if trust == "stripe-signature" else "")
    assert json.loads(item.body) == json.loads(BODY)
    assert item.order_key == f"{ACCOUNT}/in_1"
    if name in SIGNED:
        assert item.body == BODY


def test_only_signed_bytes_are_compared_byte_for_byte() -> None:
    signed, believed = take(BODY, trust="stripe-signature").event, take(BODY).event
    assert signed is not None
    assert believed is not None
    assert signed.body_sha256 == hashlib.sha256(BODY).digest()
    assert len(believed.body_sha256) == 33


def test_what_the_body_says_is_read_once_and_then_anew() -> None:
    item = take()
    first, second = item.take_envelope(), item.take_envelope()
    assert first == second
    assert first is not second
    assert first.body is not second.body


@pytest.mark.parametrize("name", WRAP)
@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"id": ...}, "bad_event_id"),
        ({"id": 5}, "bad_event_id"),
        ({"id": "evt_" + "x" * 300}, "bad_event_id"),
        ({"id": "evt_1\x00"}, "bad_event_id"),
        ({"livemode": ...}, "bad_livemode"),
        ({"livemode": "false"}, "bad_livemode"),
        ({"account": 5}, "bad_account"),
        ({"account": "a/b"}, "bad_account"),
        ({"object": "charge"}, "not_an_event"),
        ({"data": []}, "not_an_event"),
        ({"data": {"object": None}}, "not_an_event"),
    ],
)
def test_without_a_strict_identity_there_is_no_marker(name: str, change: dict[str, Any], code: str) -> None:
    item = take(body_with(**change), name)
    assert (code_of(item), item.event) == (code, None)


@pytest.mark.parametrize("name", WRAP)
@pytest.mark.parametrize("key", ["id", "livemode", "account", "object"])
def test_an_identity_that_stands_twice_is_none(name: str, key: str) -> None:
    """Else a body without an account would get the default one while another reader sees the second account."""
    doubled = b'"account": "acct_test", ' + BODY[1:].replace(b'"object": "event"', b'"object": "event"', 1)
    body = b'{"%b": null, ' % key.encode() + doubled
    wrapped = WRAP[name](BODY)
    value = wrapped.value.replace(json.dumps(json.loads(BODY)).encode(), body)
    assert body in value
    item = admit(record(value, wrapped.headers), rules=rules_of(given(name)), now=NOW)
    assert (code_of(item), item.event) == ("duplicate_key", None)


@pytest.mark.parametrize("name", WRAP)
def test_content_faults_are_left_to_the_batch_with_their_identity(name: str) -> None:
    invoice = {"id": "in_1", "object": "invoice", "amount_paid": 1.5}
    item = take(body_with(data={"object": invoice}), name)
    assert item.fault is None
    assert item.event is not None
    assert item.take_envelope().problem == "bad_amount"
    assert item.take_envelope().problem == "bad_amount"


@pytest.mark.parametrize("name", WRAP)
def test_an_amount_beyond_64_bits_survives_the_wrapping(name: str) -> None:
    invoice = {"id": "in_1", "object": "invoice", "amount_paid": 2**70}
    item = take(body_with(data={"object": invoice}), name)
    assert item.event is not None
    assert str(2**70).encode() in item.body
    assert item.take_envelope().problem == "bad_amount"


@pytest.mark.parametrize(("name", "trust"), ROADS)
def test_a_thin_event_is_known_as_such_and_names_its_object(name: str, trust: str) -> None:
    """R07."""
    item = take(json.dumps(THIN).encode(), name, trust)
    assert item.fault is None
    assert item.event is not None
    assert item.event.identity.event_id == "evt_T7"
    envelope = item.take_envelope()
    assert (envelope.is_thin, envelope.problem, envelope.object_id) == (True, "unsupported_kind", "acct_T7")
    assert item.order_key == f"{ACCOUNT}/acct_T7"


@pytest.mark.parametrize(("context", "account"), [("acct_A", "acct_A"), ("org_1/acct_A", "acct_A"), (None, ACCOUNT)])
def test_a_thin_event_says_its_account_in_its_context(context: str | None, account: str) -> None:
    item = take(json.dumps({**THIN, "context": context}).encode())
    assert item.event is not None
    assert item.event.identity.account == account


def test_a_context_without_an_account_gives_no_default() -> None:
    item = take(json.dumps({**THIN, "context": "org_1"}).encode())
    assert (code_of(item), item.event) == ("bad_account", None)


# Trust


@pytest.mark.parametrize("name", SIGNED)
def test_a_signature_of_any_age_and_of_any_endpoints_secret_is_believed(name: str) -> None:
    headers = WRAP[name](BODY).headers[:-1]
    for header, secret in (("STRIPE-SIGNATURE", OLD_SECRET), ("stripe-signature", OLD_SECRET)):
        signed = record(BODY, [*headers, (header, signature(BODY, secret=secret, at=4))])
        item = admit(signed, rules=rules_of(given(name, "stripe-signature")), now=NOW)
        assert item.event is not None
        assert item.event.endpoint == "old"


@pytest.mark.parametrize("name", SIGNED)
@pytest.mark.parametrize(
    ("body", "header", "code"),
    [
        (BODY + b"\n", signature(BODY), "unauthenticated"),
        (BODY.replace(b"evt_1", b"evt_2"), signature(BODY), "unauthenticated"),
        (BODY, signature(BODY, secret="whsec_other"), "unauthenticated"),
        (BODY, signature(BODY).replace(b"t=16", b"t=17"), "unauthenticated"),
        (BODY, signature(BODY).replace(b"v1=", b"v0="), "unauthenticated"),
        (BODY, b"", "unauthenticated"),
        (BODY, None, "unauthenticated"),
        (BODY, b"\xff", "unauthenticated"),
        (BODY, b"t=1," + b"v1=" + b"0" * 64 + b",v1=0" * 10_000, "unauthenticated"),
    ],
)
def test_what_stripe_did_not_sign_is_not_believed(name: str, body: bytes, header: bytes | None, code: str) -> None:
    headers = [*WRAP[name](BODY).headers[:-1], ("Stripe-Signature", header)]
    item = admit(record(body, headers), rules=rules_of(given(name, "stripe-signature")), now=NOW)
    assert (code_of(item), item.event) == (code, None)


def test_a_signature_that_stands_twice_or_not_at_all() -> None:
    rules = rules_of(given("stripe-json", "stripe-signature"))
    twice: Headers = [("Stripe-Signature", signature(BODY)), ("stripe-signature", signature(BODY))]
    assert code_of(admit(record(BODY, twice), rules=rules, now=NOW)) == "bad_headers"
    assert code_of(admit(record(BODY), rules=rules, now=NOW)) == "unauthenticated"
    named = rules_of(given("stripe-json", "stripe-signature", signature_header="X-Signed"))
    assert code_of(admit(record(BODY, [("x-signed", signature(BODY))]), rules=named, now=NOW)) is None


# Whose events


@pytest.mark.parametrize(("name", "trust"), ROADS)
def test_an_input_carries_only_its_accounts_and_its_neighbours_lose_nothing(name: str, trust: str) -> None:
    """S10: without a marker, or one tenant's bus could pre-empt another's event."""
    body = body_with(account="acct_other")
    both = frozenset({ACCOUNT, "acct_other"})
    rules = dataclasses.replace(rules_of(given(name, trust, accounts=frozenset({ACCOUNT}))), accounts=both)
    item = take(body, name, trust, rules=rules)
    assert (code_of(item), item.event) == ("foreign_account", None)
    wider = dataclasses.replace(rules_of(given(name, trust, accounts=both)), accounts=both)
    assert code_of(take(body, name, trust, rules=wider)) is None
    assert code_of(take(body, name, trust)) == "unknown_account"


@pytest.mark.parametrize(("name", "trust"), ROADS)
def test_the_other_mode_is_an_event_of_its_own(name: str, trust: str) -> None:
    """R15."""
    item = take(body_with(livemode=True), name, trust)
    assert code_of(item) == "other_mode"
    assert item.event is not None
    assert item.event.identity.mode == "live"


def test_bodies_without_an_account_belong_to_the_inputs_default() -> None:
    item = take(default_account="acct_other", rules=None)
    assert item.event is not None
    assert item.event.identity.account == "acct_other"


# Time


@pytest.mark.parametrize(("name", "trust"), ROADS)
@pytest.mark.parametrize(
    ("created", "code"),
    [
        (0, "too_old"),
        (int((NOW - timedelta(days=35)).timestamp()) - 1, "too_old"),
        (int((NOW - timedelta(days=35)).timestamp()), None),
        (4_102_444_800, None),
        (253_402_300_799, None),
    ],
)
def test_the_horizon_counts_from_the_bodys_time(name: str, trust: str, created: int, code: str | None) -> None:
    """Rows 34 and 41: 1970 and 2100."""
    item = take(body_with(created=created), name, trust)
    assert code_of(item) == code
    assert item.event is not None


@pytest.mark.parametrize("created", [None, "2026", -1, 10**12, True])
def test_an_event_without_a_usable_time_is_left_to_the_batch(created: Any) -> None:
    item = take(body_with(created=created))
    assert item.fault is None
    assert item.event is not None
    assert (item.event.created_text, item.event.received_at) == (None, NOW)
    assert item.take_envelope().problem == "bad_created"


def test_the_records_own_time_decides_nothing() -> None:
    for timestamp_ms in (-1, 0, -62_135_596_800_000, 253_402_300_799_000, 2**62):
        item = admit(record(BODY, timestamp_ms=timestamp_ms), rules=rules_of(given()), now=NOW)
        assert item.fault is None


# Keys


@pytest.mark.parametrize(
    ("key", "policy", "order_key"),
    [
        (None, "object", "acct_test/in_1"),
        (b"anything", "object", "acct_test/in_1"),
        (None, "record", "acct_test/in_1"),
        (b"", "record", "acct_test/in_1"),
        (b"cus_1", "record", "acct_test/cus_1"),
        (b"\xff\x00", "record", "acct_test/\\xff\\x00"),
        (b"k" * 256, "record", "acct_test/sha256:" + hashlib.sha256(b"k" * 256).hexdigest()),
    ],
)
def test_any_key_is_tolerated(key: bytes | None, policy: str, order_key: str) -> None:
    item = admit(record(BODY, key=key), rules=rules_of(given(key=policy)), now=NOW)
    assert (item.fault, item.order_key) == (None, order_key)


# Wrappings


@pytest.mark.parametrize(
    ("name", "change", "code"),
    [
        ("cloudevents-structured", {"specversion": "2.0"}, "future_version"),
        ("cloudevents-structured", {"specversion": ...}, "not_an_event"),
        ("cloudevents-structured", {"data": ...}, "not_an_event"),
        ("cloudevents-structured", {"data": "{}"}, "not_an_event"),
        ("cloudevents-structured", {"data_base64": "e30="}, "not_an_event"),
        ("eventbridge", {"version": "1"}, "future_version"),
        ("eventbridge", {"version": ...}, "not_an_event"),
        ("eventbridge", {"source": "aws.ec2"}, "not_an_event"),
        ("eventbridge", {"source": "aws.partner/stripe.com.evil/x"}, "not_an_event"),
        ("eventbridge", {"detail-type": ...}, "not_an_event"),
        ("eventbridge", {"detail": None}, "not_an_event"),
        ("eventbridge", {"detail": []}, "not_an_event"),
    ],
)
def test_a_wrapping_that_is_none_of_ours(name: str, change: dict[str, Any], code: str) -> None:
    wrapped = WRAP[name](BODY)
    item = admit(record(body_with(wrapped.value, **change)), rules=rules_of(given(name)), now=NOW)
    assert (code_of(item), item.event) == (code, None)


@pytest.mark.parametrize("text", ["!", "", 5, None, "e30", base64.b64encode(b"\xff").decode()])
def test_base64_that_holds_no_event(text: Any) -> None:
    wrapped = WRAP["cloudevents-structured"](BODY)
    value = body_with(wrapped.value, data=..., data_base64=text)
    item = admit(record(value), rules=rules_of(given("cloudevents-structured")), now=NOW)
    assert item.event is None
    assert code_of(item) in ("not_an_event", "not_utf8")


def test_base64_has_the_exact_bytes() -> None:
    spaced = json.dumps(json.loads(BODY), indent=3).encode()
    wrapped = WRAP["cloudevents-structured"](BODY)
    value = body_with(wrapped.value, data=..., data_base64=base64.b64encode(spaced).decode())
    item = admit(record(value), rules=rules_of(given("cloudevents-structured")), now=NOW)
    assert item.body == spaced


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ([], "bad_headers"),
        ([("ce_specversion", None)], "bad_headers"),
        ([("ce_specversion", b"2.0")], "future_version"),
        ([("ce_specversion", b"1.0"), ("ce_specversion", b"1.0")], "bad_headers"),
        ([("ce_specversion", b"1.0"), ("content-type", b"a"), ("Content-Type", b"b")], "bad_headers"),
        ([("ce_specversion", b"1.0"), ("content-type", b"application/cloudevents+json; charset=utf-8")], "bad_headers"),
        ([("ce_specversion", b"1.0"), ("ce_id", b"\xff"), ("x", None)], None),
    ],
)
def test_attributes_of_binary_mode(headers: Any, code: str | None) -> None:
    item = admit(record(BODY, headers), rules=rules_of(given("cloudevents-binary")), now=NOW)
    assert code_of(item) == code


# Row 36 to 39, R46


@pytest.mark.parametrize("name", WRAP)
@pytest.mark.parametrize(
    ("value", "codes"),
    [
        (None, {"empty_record"}),
        (b"", {"empty_record"}),
        (b"not json", {"not_json"}),
        (b"\x00\x00\x00\x00\x07\x02\x06foo", {"not_json"}),
        (b'{"id": "evt_', {"not_json"}),
        (b"[" * 900_000, {"too_deep"}),
        (b"\xff" * 900_000, {"not_utf8"}),
        (b'{"hello": 1}', {"not_an_event"}),
        (b"null", {"not_an_event"}),
        (b"[]", {"not_an_event"}),
        (b'{"a": NaN}', {"not_an_event", "bad_number"}),
    ],
)
def test_garbage_has_no_event(name: str, value: bytes | None, codes: set[str]) -> None:
    headers: Any = [("ce_specversion", b"1.0")]
    item = admit(record(value, headers), rules=rules_of(given(name)), now=NOW)
    assert item.event is None
    assert code_of(item) in codes


@pytest.mark.parametrize("name", WRAP)
def test_ten_thousand_headers(name: str) -> None:
    item = admit(record(BODY, [("x", b"")] * 10_000), rules=rules_of(given(name)), now=NOW)
    assert (code_of(item), item.event) == ("too_many_headers", None)


@CASES
@examples(
    st.sampled_from(ROADS),
    st.none() | st.binary(max_size=20),
    st.none() | st.binary(max_size=30) | st.sampled_from([BODY, *(wrap(BODY).value for wrap in WRAP.values())]),
    st.lists(
        st.tuples(
            st.sampled_from(["ce_specversion", "stripe-signature", "content-type"]), st.none() | st.binary(max_size=9)
        )
    ),
    st.binary(max_size=3),
)
def test_no_record_makes_it_raise(
    road: tuple[str, str], key: bytes | None, value: bytes | None, headers: Any, tail: bytes
) -> None:
    value = None if value is None else value + tail
    item = admit(record(value, headers, key=key), rules=rules_of(given(*road)), now=NOW)
    assert item.event is not None or code_of(item) in {**RECORD_FAILURES, **CONTENT_FAILURES}
