"""The groups of figures, in the order in which they run.

Rule: a group is a module with ``FIGURES`` and ``measure(stage)``; a new figure is added in its module and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from bench import (
    bridge,
    database,
    end_to_end,
    heal,
    large,
    memory,
    operations,
    poisoned_key,
    processor,
    relay,
    replay,
    two_processors,
    verify,
)
from bench.figures import Figure, Measured
from bench.stage import Stage


@dataclass(frozen=True, slots=True)
class Group:
    """Figures that are measured together."""

    name: str
    figures: tuple[Figure, ...]
    measure: Callable[[Stage], list[Measured]]
    has_peers: bool = True


_MODULES = {
    "bridge": bridge,
    "database": database,
    "processor": processor,
    "replay": replay,
    "relay": relay,
    "end_to_end": end_to_end,
    "poisoned_key": poisoned_key,
    "two_processors": two_processors,
    "operations": operations,
    "verify": verify,
    "heal": heal,
    "memory": memory,
}
GROUPS = tuple(Group(name, module.FIGURES, module.measure) for name, module in _MODULES.items())
LARGE_GROUPS = (Group("large", large.FIGURES, large.measure, has_peers=False),)
"""Those that take too much room or time for every run: only when they are named."""


def chosen(names: Iterable[str]) -> list[Group]:
    """Return the groups of these names; a figure's name stands for its group, no name for all groups.

    Raises:
        ValueError: a name is neither a group nor a figure.
    """
    wanted = list(names)
    known = {
        name for group in (*GROUPS, *LARGE_GROUPS) for name in (group.name, *(figure.name for figure in group.figures))
    }
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise ValueError(f"{unknown[0]} is no group and no figure; groups: {', '.join(_MODULES)}, large")
    if not wanted:
        return list(GROUPS)
    return [
        group
        for group in (*GROUPS, *LARGE_GROUPS)
        if {group.name, *(figure.name for figure in group.figures)} & set(wanted)
    ]
