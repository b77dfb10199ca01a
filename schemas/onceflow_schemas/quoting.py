"""What somebody gave us, as it stands in a message: quoted, and of a bounded length.

Rule: a value that is cut says so, and its quotes are closed all the same.
"""

from __future__ import annotations

CHARACTERS_MAX = 80


def quoted(value: object, characters_max: int = CHARACTERS_MAX) -> str:
    """Return the value as Python writes it; of a longer text its beginning and three dots, between its quotes."""
    try:
        text = repr(value)
    except ValueError:  # An integer of thousands of digits, which Python does not write.
        return f"<{type(value).__name__}>"
    if len(text) <= characters_max:
        return text
    return f"{text[:characters_max]}...{text[-1] if text[-1] in _CLOSING else ''}"


_CLOSING = "'\")]}>"
