"""Stripe's API versions: which of them the shapes of this release are known for.

Rule: an unknown version stops nothing, since fields are read where they are; it is counted, and told once, so that a person
hears of it before a field is missed.
"""

from __future__ import annotations

import re

NEWEST_KNOWN = "2026-10-28"
"""The version that the pinned SDK speaks; ``shapes`` was written for all up to it."""

_VERSION = re.compile(r"(\d{4}-\d{2}-\d{2})(?:\.[a-z]{1,30})?")


def is_known(version: str | None) -> bool:
    """Return whether a version is one that this release knows; an event that names none is not counted as unknown."""
    if version is None:
        return True
    found = _VERSION.fullmatch(version)
    return found is not None and found[1] <= NEWEST_KNOWN
