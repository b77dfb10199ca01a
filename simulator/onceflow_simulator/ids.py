"""New ids, as Stripe writes them: a prefix and 24 characters, from one seeded source.

Rule: with a seed the ids of a run repeat; without one they never do, so that a simulator that is started again does
not hand out ids which a database already knows.
"""

from __future__ import annotations

import random
from base64 import b64encode

LENGTH = 24
_LETTERS = b"aZ"
"""Stand for the two signs of base64 that are neither letter nor digit."""


class Ids:
    """A source of ids.

    Args:
        seed: any integer.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def new(self, prefix: str) -> str:
        """A new id, such as ``pi_`` and 24 characters."""
        return f"{prefix}_{self.text(LENGTH)}"

    def text(self, length: int) -> str:
        """Random letters and digits."""
        return b64encode(self._random.randbytes(length), altchars=_LETTERS)[:length].decode()
