"""Times as they are written in headers: RFC 3339, UTC, microseconds, always the same width.

Rule: one text form per instant.  The attestation covers the text, so a second legal spelling of the
same instant would be a second legal record.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

_FORM = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T(?:[01][0-9]|2[0-3]):[0-9]{2}:[0-9]{2}\.[0-9]{6}Z")
"""One text per instant: later versions of Python also read 24:00, which is 00:00 of the next day."""

_OFFSET_CHARACTERS = len("+00:00")


def format_time(moment: datetime) -> str:
    """Return ``moment`` (aware) as ``2026-01-01T00:00:00.000000Z``."""
    if moment.tzinfo is not UTC:
        assert moment.utcoffset() is not None, "a time without a zone is no instant"
        moment = moment.astimezone(UTC)
    return moment.isoformat(timespec="microseconds")[:-_OFFSET_CHARACTERS] + "Z"


def parse_time(text: str) -> datetime:
    """Read exactly the form that ``format_time`` writes.

    Raises:
        ValueError: for every other spelling, also for other legal RFC 3339 ones.
    """
    if not _FORM.fullmatch(text):
        message = "the time is not in the form 2026-01-01T00:00:00.000000Z"
        raise ValueError(message)
    return datetime.fromisoformat(text)
