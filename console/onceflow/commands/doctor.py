"""``onceflow doctor``.

Rule: it changes nothing.
"""

from __future__ import annotations


def doctor() -> None:
    """Look at everything that onceflow depends on."""
