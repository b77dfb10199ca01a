"""Rows 29 to 41 of the catalogue of bad input, and R13, R15, R22 and R46, through each format on a real Kafka and PostgreSQL.

Everything is put on all topics at once, in random order; what each ends as was written down by hand, and good events
around it take effect.
"""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest

from tests.processor.conftest import event_body
from tests.processor.inputs.foreign_records import ROADS, WRAP, Headers
from tests.processor.inputs.test_roads import Bus, invoice_paid, seen
from tests.processor.processor_process import CREATED, MakeRoad, wait_until

THIN = {
    "id": "evt_thin",
    "object": "v2.core.event",
    "type": "v2.core.account[configuration.merchant].capability_status_updated",
    "livemode": False,
    "created": "2026-01-01T00:00:00.123456789Z",
    "related_object": {"id": "acct_T7", "type": "v2.core.account", "url": "/v2/core/accounts/acct_T7"},
}


def charge(
    event_id: str, *, event_type: str = "charge.succeeded", extra: dict[str, Any] | None = None, **subject: Any
) -> bytes:
    given = {"id": f"ch_{event_id}", "object": "charge", "amount": 1099, "currency": "eur", **subject}
    return event_body(event_id, event_type, given, **{"created": CREATED, **(extra or {})})


def paid(event_id: str, **subject: Any) -> bytes:
    given = {"id": f"in_{event_id}", "object": "invoice", "amount_paid": 1, **subject}
    return event_body(event_id, "invoice.paid", given, created=CREATED)


def paid_intent(event_id: str, metadata: dict[str, str]) -> bytes:
    given = {"id": f"pi_{event_id}", "object": "payment_intent", "customer": "cus_unknown", "metadata": metadata}
    return event_body(event_id, "payment_intent.succeeded", given, created=CREATED)


OTHERS = {"evt_other_app", "evt_no_metadata"}
EVENTS: dict[str, tuple[bytes, str, str | None]] = {
    # event id: (body, state, code)
    "evt_thin": (json.dumps({**THIN, "created": "2100-01-01T00:00:00Z"}).encode(), "quarantined", "unsupported_kind"),
    "evt_live": (invoice_paid("evt_live", livemode=True), "quarantined", "other_mode"),
    "evt_stranger": (invoice_paid("evt_stranger", account="acct_stranger"), "quarantined", "unknown_account"),
    "evt_type": (charge("evt_type", event_type="shop.unheard_of"), "ignored", None),
    "evt_version": (charge("evt_version", extra={"api_version": "2099-01-01.future", "x": {"y": 1}}), "ignored", None),
    "evt_1970": (invoice_paid("evt_1970", created=0), "quarantined", "too_old"),
    "evt_2100": (invoice_paid("evt_2100", created=4_102_444_800), "processed", None),
    "evt_currency": (charge("evt_currency", currency="usd\n"), "quarantined", "bad_currency"),
    "evt_xxx": (charge("evt_xxx", currency="XXX"), "quarantined", "bad_currency"),
    "evt_yen": (charge("evt_yen", currency="jpy", amount=10.5), "quarantined", "bad_amount"),
    "evt_amount": (charge("evt_amount", amount="100"), "quarantined", "bad_amount"),
    "evt_big": (charge("evt_big", amount=2**63), "quarantined", "bad_amount"),
    "evt_nul": (paid("evt_nul", description="a\x00b"), "processed", None),
    "evt_half": (paid("evt_half", description="\ud800"), "processed", None),
    # R13: events of another application on the same account.
    "evt_other_app": (paid_intent("evt_other_app", {"app": "other"}), "processed", None),
    "evt_no_metadata": (paid_intent("evt_no_metadata", {}), "processed", None),
    "evt_our_app": (paid_intent("evt_our_app", {"app": "ours"}), "processed", None),
    # R22: null, missing and expanded.
    "evt_null": (paid("evt_null", customer=None, metadata=None, payment_intent=None), "processed", None),
    "evt_expanded": (paid("evt_expanded", customer={"id": "cus_1", "object": "customer"}), "processed", None),
    "evt_old_request": (invoice_paid("evt_old_request", request="req_1"), "processed", None),
    "evt_no_request": (invoice_paid("evt_no_request", request=None), "processed", None),
}
RECORDS: list[tuple[bytes | None, str]] = [
    (None, "empty_record"),
    (b"", "empty_record"),
    (b"not json", "not_json"),
    (b"\x00\x00\x00\x00\x07\x02\x06foo", "not_json"),
    (b'{"id": "evt_', "not_json"),
    (b"\xff" * 1_000_000, "not_utf8"),
    (b"[" * 900_000, "too_deep"),
    (b'{"hello": 1}', "not_an_event"),
]
"""Rows 36 and 37, where nothing but the value is wrong; a signature cannot be right on these."""

HEADERS: list[tuple[Headers, str]] = [([("h", b"v")] * 10_000, "too_many_headers")]


def unreadable(name: str, trust: str) -> list[tuple[bytes | None, Headers, str]]:
    """Records without an identity, with their codes (row 36 to 40)."""
    good = WRAP[name](invoice_paid("evt_never"))
    without = [header for header in good.headers if header[0].lower() != "stripe-signature"]
    signed = trust == "stripe-signature"
    found: list[tuple[bytes | None, Headers, str]] = [
        (value, without, code if code == "empty_record" or not signed else "unauthenticated") for value, code in RECORDS
    ]
    found += [(good.value, headers, code) for headers, code in HEADERS]
    if signed:
        found += [
            (good.value, without, "unauthenticated"),
            (good.value + b" ", good.headers, "unauthenticated"),
            (good.value, [*good.headers, good.headers[-1]], "bad_headers"),
            (good.value, [*without, ("Stripe-Signature", b"\xff\xfe")], "unauthenticated"),
        ]
    if name == "cloudevents-binary":
        signature = [header for header in good.headers if header not in without]
        found += [
            (good.value, [("ce_specversion", b"2.0"), *signature], "future_version"),
            (good.value, [("ce_specversion", b"\xff"), *signature], "future_version"),
            (good.value, [("ce_specversion", b"1.0"), ("ce_specversion", b"1.0"), *signature], "bad_headers"),
            (good.value, signature, "bad_headers"),
        ]
    version = {"cloudevents-structured": b'"specversion": "1.0"', "eventbridge": b'"version": "0"'}.get(name)
    if version is not None:
        later = version[:-2] + b"9" + version[-1:]
        assert version in good.value
        found.append((good.value.replace(version, later), good.headers, "future_version"))
    return found


@pytest.mark.parametrize(("name", "trust"), ROADS)
def test_every_row_ends_as_it_should_and_its_neighbours_take_effect(make_road: MakeRoad, name: str, trust: str) -> None:
    road = make_road(partitions=1)
    bus = Bus(road, (name, trust))
    bad = unreadable(name, trust)
    good = [f"evt_good{number}" for number in range(60)]
    puts: list[tuple[bytes | None, Headers]] = [(value, headers) for value, headers, _ in bad]
    puts += [WRAP[name](body) for body, _, _ in EVENTS.values()]
    puts += [WRAP[name](invoice_paid(event_id)) for event_id in good]
    Random(name + trust).shuffle(puts)
    for number, (value, headers) in enumerate(puts):
        bus.put(value, headers, key=None if number % 3 else b"\xff" * (number % 9))
    bus.flush()
    with road.processor(**bus.settings):
        wait_until(lambda: bus.passed() == len(puts), "all records are passed")
    states = road.states()
    assert {event_id: states.pop(event_id) for event_id in good} == dict.fromkeys(good, "processed")
    assert states == {event_id: state for event_id, (_, state, _) in EVENTS.items()}
    codes = [code for _, _, code in EVENTS.values() if code is not None]
    assert sorted(bus.quarantined(bus.topics[0])) == sorted([*codes, *(code for _, _, code in bad)])
    done = {event_id for event_id, (_, state, _) in EVENTS.items() if state == "processed"} - OTHERS
    assert seen(road) == sorted([*good, *done])
    assert len(road.outcome_ids()) == len(good) + len(done)
    ignored = road.rows("SELECT event_id, ignored_because FROM onceflow.inbox WHERE ignored_because IS NOT NULL")
    assert {row["event_id"]: row["ignored_because"] for row in ignored} == dict.fromkeys(
        OTHERS, "order_paid: metadata of another app, or none"
    )
    rows = road.rows("SELECT event_id, value, headers FROM onceflow.quarantine WHERE event_id IS NULL")
    assert len(rows) == len(bad), "without an identity, with the bytes as they came"
    kept = sorted(b"" if row["value"] is None else bytes(row["value"]) for row in rows)
    assert kept == sorted(value or b"" for value, _, _ in bad)
