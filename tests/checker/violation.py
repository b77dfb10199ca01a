"""One broken invariant, told in a sentence that names the place."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Violation:
    """``code`` is the invariant (I1 ... I9), ``sentence`` what is wrong and where."""

    code: str
    sentence: str

    def __str__(self) -> str:
        return f"{self.code}: {self.sentence}"
