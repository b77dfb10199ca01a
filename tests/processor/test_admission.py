"""Which records become events: each refusal by its code, and that no record makes admission raise."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceflow_processor.admission import Item, admit, glimpse_api_version, key_fits
from onceflow_processor.records import Partition, Record
from onceflow_schemas.envelope import read_envelope
from onceflow_schemas.failure import RECORD_FAILURES
from tests.processor.conftest import ACCOUNT, KEY, RULES, TOPIC, event_body, record
from tests.schemas.stripe_bodies import CASES

NOW = datetime(2026, 3, 1, tzinfo=UTC)
BODY = event_body("evt_1", "charge.refunded", {"id": "ch_1", "object": "charge", "payment_intent": "pi_1"})


def take(body: bytes = BODY, *, received_at: datetime = NOW, **changes: Any) -> Record:
    return dataclasses.replace(record(body, 7, received_at=received_at), **changes)


def code_of(item: Item) -> str | None:
    return None if item.fault is None else item.fault.code


def test_an_attested_record_is_an_event() -> None:
    item = admit(take(), rules=RULES, now=NOW)
    assert (item.fault, item.tries, item.body) == (None, 0, BODY)
    assert item.event is not None
    assert str(item.event.identity) == "acct_test/test/evt_1"


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"value": None}, "empty_record"),
        ({"value": b""}, "empty_record"),
        ({"value": b"not json"}, "unauthenticated"),
        ({"value": b"[" * 900_000}, "unauthenticated"),
        ({"headers": []}, "unauthenticated"),
        ({"headers": [("x", b"")] * 10_000}, "too_many_headers"),
        ({"headers": [("ce_id", b"evt_1"), ("ce_id", b"evt_1")]}, "bad_headers"),
        ({"partition": Partition("another.topic", 0)}, "unauthenticated"),
        ({"key": None}, "bad_key"),
        ({"key": b""}, "bad_key"),
        ({"key": b"acct_other/pi_1"}, "bad_key"),
        ({"key": b"acct_test"}, "bad_key"),
        ({"key": b"\xff/pi_1"}, "bad_key"),
    ],
)
def test_a_record_that_nobody_vouches_for_has_no_event(changes: dict[str, Any], code: str) -> None:
    """So it cannot take the marker of the real one."""
    item = admit(take(**changes), rules=RULES, now=NOW)
    assert (code_of(item), item.event) == (code, None)


def test_records_with_an_identity_that_are_not_for_us() -> None:
    others = dataclasses.replace(RULES, accounts=frozenset({"acct_other"}))
    live = dataclasses.replace(RULES, mode="live")
    for rules, code in ((others, "unknown_account"), (live, "other_mode")):
        item = admit(take(), rules=rules, now=NOW)
        assert code_of(item) == code
        assert item.event is not None


def test_the_horizon_counts_from_the_signed_time() -> None:
    oldest = NOW - RULES.horizon
    assert admit(take(received_at=oldest), rules=RULES, now=NOW).fault is None
    item = admit(take(received_at=oldest - timedelta(microseconds=1)), rules=RULES, now=NOW)
    assert code_of(item) == "too_old"
    assert item.event is not None


def test_the_records_own_time_decides_nothing() -> None:
    for timestamp_ms in (-1, 0, -62_135_596_800_000, 253_402_300_799_000, 2**62):
        assert admit(take(timestamp_ms=timestamp_ms), rules=RULES, now=NOW).fault is None


def test_keys_of_the_deployment_are_needed() -> None:
    assert code_of(admit(take(), rules=dataclasses.replace(RULES, keys={}), now=NOW)) == "unknown_key_id"
    revoked = dataclasses.replace(KEY, revoked_before=NOW + timedelta(days=1))
    item = admit(take(), rules=dataclasses.replace(RULES, keys={KEY.id: revoked}), now=NOW)
    assert code_of(item) == "unauthenticated"


@CASES
@given(
    st.none() | st.binary(max_size=20),
    st.none() | st.binary(max_size=30),
    st.lists(st.tuples(st.sampled_from(["ce_id", "onceflow_attestation", "x"]), st.none() | st.binary(max_size=9))),
    st.integers(-(2**63), 2**63 - 1),
)
def test_no_record_makes_it_raise(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]], timestamp_ms: int
) -> None:
    found = admit(Record(Partition(TOPIC, 0), 0, timestamp_ms, key, value, headers, 1), rules=RULES, now=NOW)
    assert found.event is None
    assert code_of(found) in RECORD_FAILURES


@pytest.mark.parametrize(
    ("key", "fits"),
    [
        (b"acct_test/pi_1", True),
        (b"acct_test/ch_1", True),
        (b"acct_test/evt_1", True),
        (b"acct_test/cus_1", True),
        (b"acct_test/in_1", True),
        (b"acct_test/pi_2", False),
        (b"acct_test/", False),
        (b"acct_test/USD", False),
        (b"\xff", False),
        (b"", False),
        (None, False),
    ],
)
def test_a_key_is_an_object_that_the_event_names(key: bytes | None, fits: bool) -> None:  # noqa: FBT001 - the expectation.
    subject = {
        "id": "ch_1",
        "object": "charge",
        "payment_intent": "pi_1",
        "customer": "cus_1",
        "invoice": {"id": "in_1"},
    }
    envelope = read_envelope(event_body("evt_1", "charge.refunded", subject))
    assert key_fits(key, account=ACCOUNT, envelope=envelope) is fits


def test_a_body_without_an_object_has_its_own_id_as_key() -> None:
    envelope = read_envelope(b"null")
    assert key_fits(f"{ACCOUNT}/{envelope.event_id}".encode(), account=ACCOUNT, envelope=envelope)
    assert not key_fits(f"{ACCOUNT}/pi_1".encode(), account=ACCOUNT, envelope=envelope)


@pytest.mark.parametrize(
    ("body", "version"),
    [
        (b'{"id":"evt_1","api_version":"2024-06-20"}', "2024-06-20"),
        (b'{\n  "api_version": "2026-10-28.endive"', "2026-10-28.endive"),
        (b'{"api_version":null}', None),
        (b'{"api_version":"a b"}', None),
        (b'{"pad":"' + b"x" * 512 + b'","api_version":"2024-06-20"}', None),
        (b"", None),
        (b"\xff", None),
    ],
)
def test_a_glimpse_of_the_api_version(body: bytes, version: str | None) -> None:
    assert glimpse_api_version(body) == version
