"""What a fault is: an id of the catalogue, a sentence, the soak that it belongs to, and a function that makes it happen.

Rule: a fault's function returns its evidence, a text that says what was seen to happen, and raises when it did not
happen or when what must hold at once does not hold; everything else is judged by the checker at the soak's end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.chaos.world import World

Act = Callable[["World", Random], str]


class NotFired(AssertionError):
    """The fault did not happen, so the run proves nothing."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault.

    Attributes:
        id: ``<catalogue id>`` or ``<catalogue id>/<variant>``.
        what: one short sentence.
        soak: faults of one soak share a running world, one after another.
        act: makes it happen; see the module.
        points: failpoints that it uses.
        breaks: how the violations begin that the fault itself causes for good (a lost log stays lost), such as
            ``I1:``; the verdict leaves them out.
        last: nothing can follow it in its world.
        quiet: it runs without the steady load.
        every: it is in each ``every``-th run only, in turn with the other variants of its row.
    """

    id: str
    what: str
    soak: str
    act: Act
    points: tuple[str, ...] = ()
    breaks: frozenset[str] = frozenset()
    last: bool = False
    quiet: bool = False
    every: int = 1

    @property
    def row(self) -> str:
        """The id in the catalogue."""
        return self.id.partition("/")[0]


REGISTRY: dict[str, Fault] = {}


def add(found: Fault) -> None:
    """Take a fault into the catalogue."""
    assert found.id not in REGISTRY, f"{found.id} is there twice"
    REGISTRY[found.id] = found


def fault(
    identity: str,
    what: str,
    *,
    soak: str,
    points: tuple[str, ...] = (),
    breaks: frozenset[str] = frozenset(),
    last: bool = False,
    quiet: bool = False,
    every: int = 1,
) -> Callable[[Act], Act]:
    """Take the decorated function into the catalogue; see ``Fault``."""

    def take(act: Act) -> Act:
        add(Fault(identity, what, soak, act, points, breaks, last, quiet, every))
        return act

    return take


def fired(condition: object, evidence: str) -> str:
    """Return the evidence, or say that the fault did not happen."""
    if not condition:
        raise NotFired(evidence)
    return evidence
