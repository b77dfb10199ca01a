"""Which attestation key signs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from onceflow_producer.signing_key import signing_key
from onceflow_schemas.attestation import AttestationKey

NOW = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
SECRET = bytes(32)


def test_the_newest_key_in_its_lifetime_signs() -> None:
    first = AttestationKey("first", SECRET)
    second = AttestationKey("second", SECRET, not_before=NOW - DAY)
    coming = AttestationKey("coming", SECRET, not_before=NOW + DAY)
    assert signing_key([first, second, coming], NOW) is second
    assert signing_key([coming, second, first], NOW + DAY) is coming


def test_a_retired_or_revoked_key_does_not_sign() -> None:
    retired = AttestationKey("retired", SECRET, retired_at=NOW)
    revoked = AttestationKey("revoked", SECRET, revoked_before=NOW + DAY)
    assert signing_key([retired, revoked], NOW) is None
    assert signing_key([retired, revoked], NOW - DAY) is retired
    assert signing_key([], NOW) is None
