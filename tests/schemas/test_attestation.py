"""The attestation: one flipped bit anywhere, another key or another lifetime, and it does not hold."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceflow_schemas.attestation import KEY_ID_PATTERN, AttestationKey, Attested, sign, verify
from tests.schemas.stripe_bodies import CASES

BODY = b'{"id":"evt_1"}'
RECEIVED = datetime(2026, 1, 1, tzinfo=UTC)
KEY = AttestationKey("k1", b"0123456789abcdef0123456789abcdef")
OTHER = AttestationKey("k2", b"fedcba9876543210fedcba9876543210")
KEYS = {"k1": KEY, "k2": OTHER}
FIELDS = Attested(
    deployment="shop",
    topic="stripe.events.v1",
    account="acct_1",
    mode="live",
    event_id="evt_1",
    type="invoice.paid",
    created="2026-01-01T00:00:00.000000Z",
    received_at="2026-01-01T00:00:01.000000Z",
    endpoint="default",
)
NAMES = list(Attested._fields)
HEADER = sign(FIELDS, BODY, key=KEY)


def check(
    header: str = HEADER,
    *,
    fields: Attested = FIELDS,
    body: bytes = BODY,
    received_at: datetime = RECEIVED,
    key: AttestationKey | None = None,
) -> str | None:
    keys = KEYS if key is None else {key.id: key}
    return verify(header, fields=fields, body_sha256=hashlib.sha256(body).digest(), received_at=received_at, keys=keys)


def flipped(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8 % len(data)] ^= 1 << bit % 8
    return bytes(changed)


def test_what_was_signed_holds() -> None:
    assert check() is None
    assert check(sign(FIELDS, BODY, key=OTHER)) is None
    assert HEADER.startswith("v1 k1 ")
    assert len(base64.urlsafe_b64decode(HEADER.split(" ")[2])) == 32


def test_any_flipped_bit_of_the_header_is_seen() -> None:
    """Also of the last character, whose lowest bits base64 ignores, and those that turn ``_`` into ``/``."""
    for bit in range(len(HEADER) * 8):
        assert check(flipped(HEADER.encode(), bit).decode("latin-1")) is not None


def test_any_flipped_bit_of_the_body_is_seen() -> None:
    for bit in range(len(BODY) * 8):
        assert check(body=flipped(BODY, bit)) == "unauthenticated"


@pytest.mark.parametrize("name", NAMES)
def test_any_flipped_bit_of_a_field_is_seen(name: str) -> None:
    value = getattr(FIELDS, name).encode()
    for bit in range(len(value) * 8):
        changed = flipped(value, bit).decode("latin-1")
        assert check(fields=FIELDS._replace(**{name: changed})) == "unauthenticated"


@CASES
@given(st.sampled_from(NAMES), st.text(max_size=6), st.binary(max_size=6))
def test_any_other_field_or_body_is_seen(name: str, text: str, body: bytes) -> None:
    fields = FIELDS._replace(**{name: text})
    assert (check(fields=fields, body=body) is None) == (fields == FIELDS and body == BODY)


@CASES
@given(st.lists(st.sampled_from(["a", "b", "ab", ""]), min_size=9, max_size=9))
def test_bytes_cannot_move_from_one_field_to_its_neighbour(values: list[str]) -> None:
    moved = Attested(**dict(zip(NAMES, values, strict=True)))
    rotated = Attested(**dict(zip(NAMES, values[1:] + values[:1], strict=True)))
    assert (sign(moved, BODY, key=KEY) == sign(rotated, BODY, key=KEY)) == (moved == rotated)


@CASES
@given(st.text(max_size=60) | st.text(max_size=50).map(lambda tail: "v1 k1 " + tail))
def test_no_header_makes_it_raise(header: str) -> None:
    assert check(header) in {"unauthenticated", "unknown_key_id", "future_version"}


@pytest.mark.parametrize(
    ("header", "code"),
    [
        ("", "unauthenticated"),
        ("v1", "unauthenticated"),
        ("v1 k1", "unauthenticated"),
        ("v1 k1 ", "unauthenticated"),
        (HEADER + " ", "unauthenticated"),
        (" " + HEADER, "unauthenticated"),
        (HEADER.replace(" ", "  "), "unauthenticated"),
        (HEADER.rstrip("="), "unauthenticated"),
        (HEADER.replace("v1", "V1"), "unauthenticated"),
        (HEADER.replace("v1", "1"), "unauthenticated"),
        (HEADER.replace("v1", "v12345"), "unauthenticated"),
        (HEADER.replace("v1", "v2"), "future_version"),
        (HEADER.replace("k1", "k3"), "unknown_key_id"),
        (HEADER.replace("k1", "k2"), "unauthenticated"),
        ("v1 k1 é", "unauthenticated"),
    ],
)
def test_other_headers(header: str, code: str) -> None:
    assert check(header) == code


SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(
    ("limits", "code"),
    [
        ({"not_before": RECEIVED}, None),
        ({"not_before": RECEIVED + SECOND}, "unauthenticated"),
        ({"retired_at": RECEIVED}, None),
        ({"retired_at": RECEIVED - SECOND}, "unauthenticated"),
        ({"revoked_before": RECEIVED}, None),
        ({"revoked_before": RECEIVED + SECOND}, "unauthenticated"),
        ({"not_before": RECEIVED - SECOND, "retired_at": RECEIVED + SECOND, "revoked_before": RECEIVED}, None),
    ],
)
def test_a_key_vouches_for_its_lifetime_only(limits: dict[str, Any], code: str | None) -> None:
    assert check(key=dataclasses.replace(KEY, **limits)) == code


def test_a_secret_is_never_shown() -> None:
    assert "0123456789abcdef" not in repr(KEY)


def test_key_ids() -> None:
    assert KEY_ID_PATTERN.fullmatch("2026-01_a")
    assert not KEY_ID_PATTERN.fullmatch("a b")
    assert not KEY_ID_PATTERN.fullmatch("")
