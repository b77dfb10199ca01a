"""The facts that an outcome's record carries: digests of what its cause claimed first.

Rule: a key of a fact may be personal, so only its digest travels; and it is the same digest wherever it is made, here and in the
function ``onceflow.fact_digest`` of the database.
"""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from typing import Final

FACTS_HEADER: Final = "onceflow_facts"
FACTS_TOLD_MAX: Final = 100
"""Facts of one record, 2,299 bytes; further ones of its cause stay untold."""

DIGEST_BYTES: Final = 16
NO_HEADERS: Final = "{}"
"""What ``outcome.headers`` holds where nothing is told."""

HEADERS_PREFIX: Final = f'{{"{FACTS_HEADER}":"'
HEADERS_SUFFIX: Final = '"}'
_TEXT_CHARACTERS: Final = 22


def fact_digest(namespace: str, key: str) -> bytes:
    """Return the digest of a fact: the first 16 bytes of the SHA-256 of namespace, NUL and key in UTF-8."""
    return hashlib.sha256(f"{namespace}\0{key}".encode()).digest()[:DIGEST_BYTES]


def facts_text(digests: list[bytes]) -> str:
    """Return the header's value: base64url without padding, separated by commas, at most ``FACTS_TOLD_MAX``."""
    return ",".join(urlsafe_b64encode(one)[:_TEXT_CHARACTERS].decode() for one in digests[:FACTS_TOLD_MAX])


def told_digests(text: str) -> list[bytes]:
    """Return the digests of a header's value.

    Raises:
        ValueError: it is not what ``facts_text`` writes.
    """
    digests = [urlsafe_b64decode(f"{one}==") for one in text.split(",", FACTS_TOLD_MAX)]
    if facts_text(digests) != text or any(len(one) != DIGEST_BYTES for one in digests):
        raise ValueError("it is no list of digests")
    return digests


def headers_by_cause(facts: Mapping[tuple[str, str], str]) -> dict[str, str]:
    """Return what ``outcome.headers`` holds for the outcomes of each cause that claimed facts.

    Args:
        facts: with their causes; in their order they are told.
    """
    digests: dict[str, list[bytes]] = {}
    for (namespace, key), cause in facts.items():
        told = digests.setdefault(cause, [])
        if len(told) < FACTS_TOLD_MAX:
            told.append(fact_digest(namespace, key))
    return {cause: f"{HEADERS_PREFIX}{facts_text(told)}{HEADERS_SUFFIX}" for cause, told in digests.items()}


def told_text(headers: str) -> str | None:
    """Return the header's value where ``outcome.headers`` holds it and nothing else, else None."""
    if headers.startswith(HEADERS_PREFIX) and headers.endswith(HEADERS_SUFFIX):
        text = headers[len(HEADERS_PREFIX) : -len(HEADERS_SUFFIX)]
        # No quote and no escape inside: it is one text, and as it stands.
        if '"' not in text and "\\" not in text:
            return text
    return None
