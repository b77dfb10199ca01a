"""Which attestation key signs a record received now.

Rule: a key signs only within its lifetime, because the processor trusts it only there.  Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from onceflow_schemas.attestation import AttestationKey

_ALWAYS = datetime.min.replace(tzinfo=UTC)


def signing_key(keys: Sequence[AttestationKey], now: datetime) -> AttestationKey | None:
    """Return the newest key (by ``not_before``) whose lifetime holds ``now``, None when there is none."""
    usable = [key for key in keys if _may_sign(key, now)]
    return max(usable, key=lambda key: key.not_before or _ALWAYS, default=None)


def _may_sign(key: AttestationKey, now: datetime) -> bool:
    if key.not_before is not None and now < key.not_before:
        return False
    if key.retired_at is not None and now >= key.retired_at:
        return False
    return key.revoked_before is None or now >= key.revoked_before
