"""Validly signed bodies that say strange things: 200, and then exactly one state, with the bytes kept."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.bad_input.conftest import CREATED, Outside, body_id, dump, event, new_id, payment


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"a": value}
    return value


UNUSABLE = [
    (b"hello", "not_json"),
    (b"null", "not_an_event"),
    (b"[]", "not_an_event"),
    (b"5", "not_an_event"),
    (b'"x"', "not_an_event"),
    (b"{}", "not_an_event"),
    (b"\xff\xfe\x00", "not_utf8"),
    ("{}".encode("utf-16"), "not_utf8"),
    (b"\xef\xbb\xbf{}", "not_json"),
    (b"[" * 100_000 + b"]" * 100_000, "too_deep"),
    (b'{"id":"evt_1","id":"evt_2","object":"event"}', "duplicate_key"),
]


@pytest.mark.parametrize(("body", "code"), UNUSABLE, ids=[f"{body[:12]!r}" for body, _ in UNUSABLE])
def test_bodies_without_a_usable_id_are_kept_under_their_hash(outside: Outside, body: bytes, code: str) -> None:
    assert outside.post(body) == 200
    row = outside.quarantined(body_id(body))
    assert row["code"] == code
    assert bytes(row["value"]) == body


BAD_IDS = [None, 5, "", "evt_" + "x" * 300, "evt_1\x00", "evt_1\r\nX: y", "../evt_1", "evt_\u202e1", "evt_x\x1b[2J"]


@pytest.mark.parametrize("bad", BAD_IDS, ids=ascii)
def test_ids_that_are_none(outside: Outside, bad: Any) -> None:
    body = dump({**payment("evt_x", description=new_id()), "id": bad})
    assert outside.post(body) == 200
    assert outside.quarantined(body_id(body))["code"] == "bad_event_id"
    for log in outside.system.data_folder.glob("logs/*.log"):
        assert b"\x1b[2J" not in log.read_bytes()


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"type": None}, "bad_type"),
        ({"type": 5}, "bad_type"),
        ({"type": "x" * 10_000}, "bad_type"),
        ({"livemode": "no"}, "bad_livemode"),
        ({"created": "yesterday"}, "bad_created"),
        ({"created": 2**63}, "bad_created"),
        ({"account": "nobody"}, "bad_account"),
        ({"livemode": True}, "other_mode"),
        ({"account": "acct_stranger"}, "unknown_account"),
        ({"data": {"object": None}}, "not_an_event"),
        ({"data": None}, "not_an_event"),
        ({"object": "list"}, "not_an_event"),
    ],
    ids=ascii,
)
def test_envelopes_that_are_none(outside: Outside, change: dict[str, Any], code: str) -> None:
    event_id = new_id()
    body = dump({**payment(event_id), **change})
    assert outside.post(body) == 200
    assert outside.quarantined(event_id)["code"] == code
    assert outside.outcomes(event_id) == []


@pytest.mark.parametrize(
    ("field", "code"),
    [
        ('"amount": NaN', "bad_number"),
        ('"amount": Infinity', "bad_number"),
        ('"amount": 1e999', "bad_number"),
        ('"amount": ' + "9" * 5_000, "bad_number"),
        ('"amount": 9223372036854775808', "bad_amount"),
        ('"amount": 1.5', "bad_amount"),
        ('"amount": "100"', "bad_amount"),
        ('"amount": -1', "bad_amount"),
        ('"currency": "usd\\n"', "bad_currency"),
        ('"currency": "XXX"', "bad_currency"),
        ('"currency": "jpy", "amount": 10.5', "bad_amount"),
        ('"metadata": {"a": 1, "a": 2}', "duplicate_key"),
        ('"deep": ' + json.dumps(nested(900)), "too_deep"),
    ],
    ids=lambda text: text[:28],
)
def test_money_and_numbers_that_are_none(outside: Outside, field: str, code: str) -> None:
    event_id = new_id()
    body = dump(event(event_id, "payment_intent.succeeded", {"object": "payment_intent", "id": new_id("pi"), "X": 0}))
    assert outside.post(body.replace(b'"X": 0', field.encode())) == 200
    # Too deep a body is not parsed at all, so it has no id but its hash.
    known = body_id(body.replace(b'"X": 0', field.encode())) if code == "too_deep" else event_id
    assert outside.quarantined(known)["code"] == code


@pytest.mark.parametrize(
    ("description", "seen"),
    [
        ("a\x00b", "a\ufffdb"),
        ("\ud83d", "\ufffd"),
        ("\U0001f600", "\U0001f600"),
        ("\\u0000", "\\u0000"),
        ("Caf\xe9 \u2615", "Caf\xe9 \u2615"),
    ],
    ids=ascii,
)
def test_text_that_postgresql_cannot_hold_loses_no_payment(outside: Outside, description: str, seen: str) -> None:
    """R28: the money outcome is written, emoji stay, the raw bytes are kept in the topic, consumers get valid JSON."""
    event_id = new_id()
    body = dump(payment(event_id, description=description, metadata={"k\x00": description}))
    assert outside.post(body) == 200
    assert outside.state(event_id) == "processed"
    [outcome] = outside.outcomes(event_id)
    assert json.loads(bytes(outcome["value"]).decode("utf-8"))["description"] == seen
    assert outside.record_of(event_id).value() == body


def test_minus_zero_big_integers_and_far_times_are_processed(outside: Outside) -> None:
    """R26, C23, C34: what fits 64 bits is fine, and created is no ordering key."""
    for change in ({"amount": 9_999_999_900, "quantity": 13_580_246_790}, {"amount": 0, "x": 5}):
        event_id = new_id()
        assert outside.post(dump(payment(event_id, **change)).replace(b'"x": 5', b'"x": -0')) == 200
        assert outside.state(event_id) == "processed"
    for created in (0, 4_102_444_800):
        event_id = new_id()
        assert outside.post(dump({**payment(event_id), "created": created})) == 200
        assert outside.state(event_id) == "processed"


@pytest.mark.parametrize(
    ("event_type", "subject"),
    [
        ("payment_intent.succeeded", {"customer": None, "metadata": None}),
        ("payment_intent.succeeded", {"customer": {"id": "cus_1", "object": "customer"}, "new_field": [1]}),
        ("charge.refunded", {"object": "charge", "payment_intent": None, "amount_refunded": 5}),
        ("customer.subscription.updated", {"object": "subscription"}),
        ("charge.dispute.created", {"object": "dispute", "charge": None}),
        ("payment_intent.payment_failed", {"object": "payment_intent", "last_payment_error": None}),
    ],
    ids=ascii,
)
def test_null_missing_and_expanded_fields(outside: Outside, event_type: str, subject: dict[str, Any]) -> None:
    """R22: a guest checkout is a payment too."""
    event_id = new_id()
    body = event(event_id, event_type, {"id": new_id("obj"), **subject}, request="req_old_shape", extra={"a": 1})
    assert outside.post(dump(body)) == 200
    assert outside.state(event_id) == "processed"
    assert len(outside.outcomes(event_id)) == 1


def test_unhandled_types_and_versions_are_ignored(outside: Outside) -> None:
    event_id = new_id()
    body = {**event(event_id, "future.thing.happened", {"id": "x"}), "api_version": "2030-01-01.unheard"}
    assert outside.post(dump(body)) == 200
    assert outside.state(event_id) == "ignored"


def test_a_thin_event_is_kept(outside: Outside) -> None:
    """R07."""
    event_id = new_id()
    body = {
        "id": event_id,
        "object": "v2.core.event",
        "type": "v2.core.account[configuration.merchant].capability_status_updated",
        "livemode": False,
        "created": "2026-01-01T00:00:00.123456789Z",
        "related_object": {"id": "acct_T7", "type": "v2.core.account", "url": "/v2/core/accounts/acct_T7"},
    }
    assert outside.post(dump(body)) == 200
    row = outside.quarantined(event_id)
    assert row["code"] == "unsupported_kind"
    [marker] = outside.rows("SELECT type FROM onceflow.inbox WHERE event_id = %s", event_id)
    assert marker["type"] == body["type"]


def test_the_same_id_with_other_content_is_told_and_the_first_counts(outside: Outside) -> None:
    """C32: but another API version of the same event is no conflict."""
    event_id = new_id()
    first = payment(event_id)
    assert outside.post(dump(first)) == 200
    assert outside.state(event_id) == "processed"
    other = payment(event_id, amount=5)
    assert outside.post(dump({**first, "api_version": "2025-03-31"})) == 200
    assert outside.post(dump(other)) == 200
    [row] = _wait_for_conflict(outside, event_id)
    assert bytes(row["value"]) == dump(other)
    assert outside.state(event_id) == "processed"
    assert len(outside.outcomes(event_id)) == 1


def _wait_for_conflict(outside: Outside, event_id: str) -> list[dict[str, Any]]:
    query = "SELECT * FROM onceflow.quarantine WHERE event_id = %s AND code = 'content_conflict'"
    marker = new_id()
    # What is sent later for the same object is read later, so once it is done the conflict has been seen.
    assert outside.post(dump({**payment(marker), "created": CREATED + 1})) == 200
    outside.state(marker)
    from tests.checker.waiting import wait_for  # noqa: PLC0415

    return wait_for(lambda: outside.rows(query, event_id), limit_seconds=20, what="the conflict")


def test_two_ids_for_one_payment_are_one_effect(outside: Outside) -> None:
    """C33: Stripe may make two Event objects for one change."""
    intent = new_id("pi")
    first, second = new_id(), new_id()
    for event_id in (first, second):
        assert outside.post(dump(payment(event_id, id=intent))) == 200
    assert {outside.state(first), outside.state(second)} == {"processed"}
    assert len(outside.outcomes(first)) + len(outside.outcomes(second)) == 1


def test_a_hundred_deliveries_are_one_effect(outside: Outside) -> None:
    """C12, R21."""
    event_id = new_id()
    body = dump(payment(event_id))
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415

    with ThreadPoolExecutor(20) as pool:
        assert set(pool.map(lambda _: outside.post(body), range(100))) == {200}
    assert outside.state(event_id) == "processed"
    assert len(outside.outcomes(event_id)) == 1
