"""Takes secrets out of texts that people will see.

Rule: whatever reaches a log, a fault or a table has gone through here or was never a secret.  The forms are those
that betray themselves: Stripe's prefixes, passwords in addresses, ``password=`` and its like.
"""

from __future__ import annotations

import re

MASK = "***"

_FORMS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"whsec_[A-Za-z0-9_+/=-]+"), f"whsec_{MASK}"),
    (re.compile(r"\b((?:sk|rk)_(?:live|test))_[A-Za-z0-9]+"), rf"\1_{MASK}"),
    # The user part may hold an @ when it was not encoded, so the last one before the path decides.
    (re.compile(r"(\b[a-z][a-z0-9+]*://[^:/?#\s]*):[^/\s]*@"), rf"\1:{MASK}@"),
    (
        re.compile(
            r"(?i)((?:password|passwd|secret|token)['\"]?\s*[=:]\s*)('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|[^\s,;&'\"]+)"
        ),
        rf"\1{MASK}",
    ),
)


def redacted(text: str) -> str:
    """Return the text with every recognised secret replaced by ``***``."""
    for form, replacement in _FORMS:
        text = form.sub(replacement, text)
    return text
