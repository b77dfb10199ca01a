"""``expand[]=latest_charge``: an id in an answer becomes the object.

Rule: the stored objects are never touched; an unknown path is left as it is.
"""

from __future__ import annotations

from typing import Any

import orjson

from onceflow_simulator.books import Books
from onceflow_simulator.errors import invalid

DEPTH_MAX = 4


def expanded(books: Books, body: Any, *, paths: Any) -> Any:
    """The body with the objects in the places of their ids.

    Raises:
        StripeError: 400, more than four levels.
    """
    if not paths:
        return body
    copy = orjson.loads(orjson.dumps(body))
    for path in paths if isinstance(paths, list) else [paths]:
        names = path.split(".")
        if len(names) > DEPTH_MAX:
            raise invalid(f"You cannot expand more than {DEPTH_MAX} levels of a property.", param="expand")
        _expand(books, copy, names)
    return copy


def _expand(books: Books, at: Any, names: list[str]) -> None:
    if isinstance(at, list):
        for item in at:
            _expand(books, item, names)
        return
    if not isinstance(at, dict) or names[0] not in at:
        return
    name, *rest = names
    if isinstance(at[name], str) and at[name] in books.account.index:
        at[name] = orjson.loads(orjson.dumps(books.account.index[at[name]]))
    if rest:
        _expand(books, at[name], rest)
