"""Addresses and what answers them.

Rule: a route is data; the checks of its parameters and the permission that it needs stand beside its handler.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from onceflow_simulator.books import Books
from onceflow_simulator.params import Params
from onceflow_simulator.validation import PLAIN, Spec, known_parameters


@dataclass(frozen=True)
class Call:
    """One request that is about to execute.

    Args:
        ids: what stands in the places of the template, in order.
        params: nested, all texts.
    """

    books: Books
    ids: tuple[str, ...]
    params: Params
    path: str


Handler = Callable[[Call], Any]


@dataclass(frozen=True)
class Route:
    """One address.

    Args:
        permission: what a restricted key needs, such as ``charge_write``.
        known: the parameters that Stripe takes; None checks no names.
    """

    method: str
    template: str
    handler: Handler
    spec: Spec
    permission: str
    known: frozenset[str] | None


@dataclass
class _Node:
    fixed: dict[str, _Node] = field(default_factory=dict)
    place: _Node | None = None
    routes: dict[str, Route] = field(default_factory=dict)


class Routes:
    """All addresses, as a tree of path segments."""

    def __init__(self) -> None:
        self._root = _Node()
        self.all: list[Route] = []

    def get(self, template: str, handler: Handler, *, spec: Spec = PLAIN, of: str = "") -> None:
        """An address that is read."""
        self._add("GET", template, handler, spec=spec, of=of)

    def post(self, template: str, handler: Handler, *, spec: Spec = PLAIN, of: str = "") -> None:
        """An address that makes or changes something."""
        self._add("POST", template, handler, spec=spec, of=of)

    def delete(self, template: str, handler: Handler, *, spec: Spec = PLAIN, of: str = "") -> None:
        """An address that removes something."""
        self._add("DELETE", template, handler, spec=spec, of=of)

    def _add(self, method: str, template: str, handler: Handler, *, spec: Spec, of: str) -> None:
        """One more address.

        Args:
            of: the resource that a permission is about; by default the first word of the path.
        """
        resource = of or template.split("/")[2].removesuffix("s")
        permission = f"rak_{resource}_{'read' if method == 'GET' else 'write'}"
        known = known_parameters(method, template)
        route = Route(method, template, handler, spec, permission, known)
        node = self._root
        for segment in template.strip("/").split("/"):
            if segment.startswith("{"):
                node.place = node.place or _Node()
                node = node.place
            else:
                node = node.fixed.setdefault(segment, _Node())
        node.routes[method] = route
        self.all.append(route)

    def find(self, method: str, path: str) -> tuple[Route, tuple[str, ...]] | None:
        """The route of a path and the ids in it."""
        node, ids = self._root, []
        for segment in path.strip("/").split("/"):
            following = node.fixed.get(segment)
            if following is None:
                following = node.place
                ids.append(segment)
            if following is None:
                return None
            node = following
        route = node.routes.get(method)
        return None if route is None else (route, tuple(ids))
