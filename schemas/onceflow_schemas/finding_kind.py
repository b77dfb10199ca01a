"""The form of a kind of finding.  Pure."""

from __future__ import annotations

from typing import Literal, NamedTuple

Risk = Literal["yes", "possible", "no"]


class FindingKind(NamedTuple):
    """One kind of drift.

    Attributes:
        name: the stable name.
        title: what it is, in a few words.
        meaning: what has happened, and what onceflow does about it by itself.
        money: whether money is at risk while it is open.
        first: the first command that a person types.
        person: what a person can do then, in whole sentences.
    """

    name: str
    title: str
    meaning: str
    money: Risk
    first: str
    person: str
