"""The signing secrets of the webhook endpoints, read once at start.

Rule: a secret that can never match is refused at start with a clear word, not met later as "wrong signature" for
each event.  A secret is never printed: not in ``repr``, not in a fault, and not in the id that is made for it.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from dataclasses import dataclass, field

from onceflow_schemas.failure import Misconfigured

SECRETS_MAX = 32
"""Each request is checked against all of them, so the number is bounded."""

_PREFIX = "whsec_"
_SECRET = re.compile(r"whsec_[A-Za-z0-9_+/=-]{1,512}")
_ENDPOINT_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_OTHER_KINDS = {
    "sk_": "an API key",
    "rk_": "a restricted API key",
    "pk_": "a publishable key",
    "we_": "the id of a webhook endpoint",
}


@dataclass(frozen=True, slots=True)
class EndpointSecret:
    """One signing secret.

    Attributes:
        id: names the endpoint in paths, record headers and logs; two secrets may share it while one is being rolled.
        secret: the HMAC key: the whole text including ``whsec_``, as Stripe uses it.
    """

    id: str
    secret: bytes = field(repr=False)


def parse_secrets(text: str) -> tuple[EndpointSecret, ...]:
    """Read a comma list of ``whsec_...`` or ``id=whsec_...``; white space around entries is trimmed.

    Raises:
        Misconfigured: ``settings_invalid`` with every fault found, each by the position of its entry.
    """
    faults: list[str] = []
    secrets: list[EndpointSecret] = []
    entries = [entry.strip() for entry in text.split(",")]
    if len(entries) > SECRETS_MAX:
        faults.append(f"there are {len(entries)} entries; at most {SECRETS_MAX} are allowed")
        entries = entries[:SECRETS_MAX]
    for position, entry in enumerate(entries, start=1):
        parsed = _parse_entry(entry)
        if isinstance(parsed, str):
            faults.append(f"entry {position} {parsed}")
        elif any(parsed.secret == known.secret for known in secrets):
            faults.append(f"entry {position} repeats the secret of an earlier entry")
        else:
            secrets.append(parsed)
    if faults:
        raise Misconfigured(
            "settings_invalid",
            "STRIPE_WEBHOOK_SECRET: " + "; ".join(faults),
            "Copy the signing secret (whsec_...) of the endpoint from Stripe's dashboard.",
            faults=tuple(f"STRIPE_WEBHOOK_SECRET: {fault}" for fault in faults),
        )
    return tuple(secrets)


def _parse_entry(entry: str) -> EndpointSecret | str:
    """Return the secret, or the fault as the end of a sentence that begins with the entry's position."""
    endpoint_id, secret = _split(entry)
    fault = _fault_of_id(endpoint_id) or _fault_of_secret(secret)
    if fault is not None:
        return fault
    key = secret.encode("ascii")
    return EndpointSecret(endpoint_id if endpoint_id is not None else _default_id(key), key)


def _split(entry: str) -> tuple[str | None, str]:
    if entry.startswith(_PREFIX) or "=" not in entry:
        return None, entry
    endpoint_id, _, secret = entry.partition("=")
    return endpoint_id.strip(), secret.strip()


def _fault_of_id(endpoint_id: str | None) -> str | None:
    if endpoint_id is None or _ENDPOINT_ID.fullmatch(endpoint_id):
        return None
    return "has an endpoint id that is not 1 to 64 letters, digits, dots, dashes and underscores"


def _fault_of_secret(secret: str) -> str | None:
    if not secret:
        return "is empty"
    for prefix, kind in _OTHER_KINDS.items():
        if secret.startswith(prefix):
            return f"begins with {prefix}, which is {kind} and not a signing secret"
    if not secret.startswith(_PREFIX):
        return "does not begin with whsec_"
    if secret == _PREFIX:
        return "has nothing after whsec_"
    if not _SECRET.fullmatch(secret):
        return "holds white space or other characters that no signing secret has"
    return None


def _default_id(secret: bytes) -> str:
    """Name an unnamed secret: stable when the list is reordered, and one-way, so that it may be logged."""
    return "ep_" + hmac.digest(secret, b"onceflow endpoint id", hashlib.sha256).hex()[:12]
