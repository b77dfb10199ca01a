"""Times as they are written in headers: RFC 3339, UTC, microseconds, always the same width.

Rule: one text form per instant.  The attestation covers the text, so a second legal spelling of the
same instant would be a second legal record.
"""

from __future__ import annotations

from datetime import UTC, datetime

_FORMAT = "%Y-%m-%dT%H:%M:%S.%fZ"
_TEXT_LENGTH = len("2026-01-01T00:00:00.000000Z")


def format_time(moment: datetime) -> str:
    """Return ``moment`` (aware) as ``2026-01-01T00:00:00.000000Z``."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def parse_time(text: str) -> datetime:
    """Read exactly the form that ``format_time`` writes.

    Raises:
        ValueError: for every other spelling, also for other legal RFC 3339 ones.
    """
    if len(text) != _TEXT_LENGTH or text[-1] != "Z" or text[10] != "T" or not text.isascii():
        message = "the time is not in the form 2026-01-01T00:00:00.000000Z"
        raise ValueError(message)
    moment = datetime.fromisoformat(text)
    if format_time(moment) != text:
        message = "the time is not in its canonical form"
        raise ValueError(message)
    return moment
