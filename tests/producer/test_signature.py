"""The verifier, by hand-made headers, against the SDK's verifier, and under 10,000 flipped bits."""

from __future__ import annotations

import random
import time

import pytest
import stripe
from hypothesis import given
from hypothesis import strategies as st

from onceflow_producer.endpoint_secrets import EndpointSecret
from onceflow_producer.refusal import Refusal
from onceflow_producer.signature import SignatureHeader, Verified, parse_header, verify
from tests.producer.bridge_process import signed

NOW = 1_700_000_000
BODY = b'{"id":"evt_1"}'
OLD = EndpointSecret("old", b"whsec_A")
NEW = EndpointSecret("new", b"whsec_B")
# HMAC-SHA256 of b'1700000000.{"id":"evt_1"}' under b"whsec_A", made with `openssl dgst -sha256 -hmac`.
MAC_A = b"36aee21c8d2a6359b7c005baa766225a12489a67c830245da0f6da9b0b6acd40"
ZEROS = b"0" * 64


def check(
    header: bytes, *, body: bytes = BODY, secrets: tuple[EndpointSecret, ...] = (OLD,), now: float = NOW
) -> Verified | str:
    parsed = parse_header([header])
    if isinstance(parsed, Refusal):
        return parsed.code
    found = verify(parsed, body, secrets=secrets, now=now, tolerance_seconds=300)
    return found if isinstance(found, Verified) else found.code


def test_a_right_signature_names_its_secret() -> None:
    assert check(b"t=1700000000,v1=" + MAC_A) == Verified("old", NOW)


@pytest.mark.parametrize(
    ("values", "code"),
    [
        ([], "missing_signature"),
        ([b""], "missing_signature"),
        ([b"t=1,v1=" + ZEROS, b"t=1,v1=" + ZEROS], "malformed_signature"),
        ([b"", b""], "malformed_signature"),
    ],
)
def test_the_header_stands_exactly_once(values: list[bytes], code: str) -> None:
    found = parse_header(values)
    assert isinstance(found, Refusal)
    assert found.code == code


@pytest.mark.parametrize(
    "header",
    [
        b"v1=" + MAC_A,
        b"t=abc,v1=" + MAC_A,
        b"t=,v1=" + MAC_A,
        b"t=" + b"9" * 5_000 + b",v1=" + MAC_A,
        b"t=" + b"9" * 21 + b",v1=" + MAC_A,
        b"t=+1700000000,v1=" + MAC_A,
        b"t=-1,v1=" + MAC_A,
        b"t=1_700_000_000,v1=" + MAC_A,
        b"t=01700000000,v1=" + MAC_A,
        b"t=1700000000.0,v1=" + MAC_A,
        b"t= 1700000000,v1=" + MAC_A,
        b"t=1700000000 ,v1=" + MAC_A,
        b"t=1700000000, v1=" + MAC_A,
        b" t=1700000000,v1=" + MAC_A,
        b"t=1700000000,t=1700000000,v1=" + MAC_A,
        b"t=1700000000",
        b"t=1700000000,v0=" + MAC_A,
        b"t=1700000000,V1=" + MAC_A,
        b"t=1700000000,v1=",
        b"t=1700000000,v1=" + MAC_A[:-1],
        b"t=1700000000,v1=" + MAC_A + b"0",
        b"t=1700000000,v1=" + MAC_A.upper(),
        b"t=1700000000,v1=" + "é".encode() * 32,
        b"t=1700000000,v1=" + b"\xff" * 64,
        b"t=1700000000,v1=" + MAC_A + b",",
        b"t=1700000000,v1=" + MAC_A + b",flag",
        b"t=1700000000,v1=" + MAC_A + b",x=\x00",
        b"t=1700000000" + b",v1=" + MAC_A + b",v1=" + ZEROS + b"\n",
        b"t=1700000000" + (b",v1=" + ZEROS) * 15 + b",v1=" + MAC_A,
        b"t=1700000000" + (b",v1=" + MAC_A) * 50,
        b"t=1700000000" + (b",v1=" + MAC_A) * 10_000,
        b"t=1700000000,v1=" + MAC_A + b",x=" + b"y" * 257,
    ],
)
def test_a_header_out_of_form_is_refused_before_any_hashing(header: bytes) -> None:
    assert check(header) == "malformed_signature"


@pytest.mark.parametrize(
    "header",
    [
        b"v1=" + MAC_A + b",t=1700000000",
        b"t=1700000000,v1=" + ZEROS + b",v1=" + MAC_A,
        b"t=1700000000,v1=" + MAC_A + b",v1=" + ZEROS,
        b"t=1700000000,v0=6ffbb59b2300aae63f272406069a9788598b792a944a07aba816edb039989a39,v1=" + MAC_A,
        b"t=1700000000,v2=anything+/at-all,v1=" + MAC_A,
        b"t=1700000000" + (b",v1=" + ZEROS) * 14 + b",v1=" + MAC_A,
    ],
)
def test_one_right_v1_is_enough_wherever_it_stands(header: bytes) -> None:
    assert check(header) == Verified("old", NOW)


def test_while_a_secret_is_rolled_both_are_known() -> None:
    by_new = signed(BODY, secret="whsec_B", timestamp=NOW).encode()
    assert check(by_new, secrets=(OLD, NEW)) == Verified("new", NOW)
    assert check(by_new, secrets=(OLD,)) == "wrong_signature"
    assert check(b"t=1700000000,v1=" + MAC_A, secrets=(NEW,)) == "wrong_signature"


@pytest.mark.parametrize(
    ("offset", "code", "skew"),
    [
        (-301, "stale_timestamp", 301),
        (301, "future_timestamp", -301),
        (86_400, "future_timestamp", -86_400),
        (3_155_760_000, "future_timestamp", -3_155_760_000),
        (-NOW, "stale_timestamp", NOW),
        (99_999_999_999_999_999_999 - NOW, "future_timestamp", NOW - 99_999_999_999_999_999_999),
    ],
)
def test_a_time_outside_the_window_is_refused_on_both_sides_with_its_skew(offset: int, code: str, skew: int) -> None:
    header = parse_header([signed(BODY, secret="whsec_A", timestamp=NOW + offset).encode()])
    assert isinstance(header, SignatureHeader)
    found = verify(header, BODY, secrets=(OLD,), now=float(NOW), tolerance_seconds=300)
    assert isinstance(found, Refusal)
    assert (found.code, found.skew_seconds) == (code, skew)


@pytest.mark.parametrize("offset", [-300, -299, 0, 299, 300])
def test_a_time_inside_the_window_passes(offset: int) -> None:
    assert check(signed(BODY, secret="whsec_A", timestamp=NOW + offset).encode()) == Verified("old", NOW + offset)


def test_a_stranger_with_an_odd_time_is_no_clock_alarm() -> None:
    assert check(b"t=1,v1=" + ZEROS) == "wrong_signature"


@pytest.mark.parametrize(
    "body",
    [BODY + b"\n", b'{"id": "evt_1"}', BODY[:-1], b"", b"\xef\xbb\xbf" + BODY, BODY.decode().encode("utf-16")],
)
def test_another_body_is_refused(body: bytes) -> None:
    assert check(b"t=1700000000,v1=" + MAC_A, body=body) == "wrong_signature"


@pytest.mark.parametrize("body", [b"\xff\xfe", b"\x00", b"null", b"caf\xc3\xa9", BODY * 10_000])
def test_the_signature_is_over_bytes_whatever_they_mean(body: bytes) -> None:
    assert check(signed(body, secret="whsec_A", timestamp=NOW).encode(), body=body) == Verified("old", NOW)


def test_ten_thousand_flipped_bits_are_all_refused() -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    choose = random.Random(seed)
    header = b"t=1700000000,v1=" + MAC_A
    for _ in range(10_000):
        flipped = bytearray(header + BODY)
        position = choose.randrange(len(flipped))
        flipped[position] ^= 1 << choose.randrange(8)
        found = check(bytes(flipped[: len(header)]), body=bytes(flipped[len(header) :]))
        assert not isinstance(found, Verified), (position, flipped)


def accepted_by_sdk(header: str, body: str) -> bool:
    try:
        return bool(stripe.WebhookSignature.verify_header(body, header, "whsec_A", tolerance=300))
    except stripe.SignatureVerificationError:
        return False


@given(body=st.text(), offset=st.integers(-290, 290))
def test_what_the_sdk_signs_is_accepted(body: str, offset: int) -> None:
    now = time.time()
    encodable = body.encode("utf-8", "replace").decode()
    header = stripe.WebhookSignature.generate_signature_header(encodable, "whsec_A", timestamp=int(now) + offset)
    found = check(header.encode(), body=encodable.encode(), now=now)
    assert found == Verified("old", int(now) + offset)
    assert accepted_by_sdk(header, encodable)


HEADER_PARTS = st.lists(
    st.sampled_from(
        ["t=NOW", "t=1", "t=", "t=NOW ", "v1=MAC", "v1=" + "0" * 64, "v1=mac", "v0=MAC", "x", "", "v2=a", "t"]
    )
    | st.text(st.characters(codec="ascii"), max_size=8),
    max_size=6,
)


@given(parts=HEADER_PARTS)
def test_whatever_we_accept_the_sdk_accepts(parts: list[str]) -> None:
    now = int(time.time())
    mac = signed(BODY, secret="whsec_A", timestamp=now).rpartition("=")[2]
    header = ",".join(parts).replace("NOW", str(now)).replace("MAC", mac)
    found = check(header.encode(), now=now)
    if isinstance(found, Verified):
        assert accepted_by_sdk(header, BODY.decode())
    elif set(parts) <= {"t=NOW", "v1=MAC", "v1=" + "0" * 64, "v0=MAC", "v2=a"} and parts.count("t=NOW") == 1:
        assert not accepted_by_sdk(header, BODY.decode()), "a header in the form of Stripe's own was refused"
