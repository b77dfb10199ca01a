"""Stripe's form encoding: ``a[b]=1&c[]=2&d[0][e]=3`` as nested dicts and lists.

Rule: what cannot be nested (a value under a value, a list under a dict) is refused and never guessed.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote_plus

from onceflow_simulator.errors import StripeError, invalid

Params = dict[str, Any]

DEPTH_MAX = 10
PAIRS_MAX = 2000
_BRACKET = re.compile(r"\[([^\[\]]*)\]")
_NAME = re.compile(r"^[^\[\]]+(?:\[[^\[\]]*\])*$")


def decode(text: str) -> Params:
    """The nested parameters of a query or a body.

    Raises:
        StripeError: 400, for a name that is no name.
    """
    params: Params = {}
    if not text:
        return params
    pairs = text.split("&")
    if len(pairs) > PAIRS_MAX:
        raise invalid(f"More than {PAIRS_MAX} parameters.")
    for pair in pairs:
        if not pair:
            continue
        name, _, value = pair.partition("=")
        _put(params, unquote_plus(name), unquote_plus(value))
    return _listed(params)


def _put(params: Params, name: str, value: str) -> None:
    if "[" not in name and "]" not in name:
        params[name] = value
        return
    if not _NAME.match(name):
        raise invalid(f"Invalid parameter name: {name}", param=name)
    head, *rest = [name.partition("[")[0], *_BRACKET.findall(name)]
    if len(rest) > DEPTH_MAX:
        raise invalid(f"Parameters are nested too deeply: {name}", param=name)
    at: Params = params
    for part, following in zip([head, *rest], rest, strict=False):
        at = _descend(at, part, name=name)
        if following == "":
            at[f"#{len(at)}"] = value
            return
    at[rest[-1]] = value


def _descend(at: Params, part: str, *, name: str) -> Params:
    inner = at.setdefault(part, {})
    if not isinstance(inner, dict):
        raise _clash(name)
    return inner


def _listed(value: Params) -> Params:
    """Dicts whose names are all numbers (or came as ``[]``) become lists."""
    return {name: _inner(one) for name, one in value.items()}


def _inner(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if value and all(name.lstrip("#").isdigit() for name in value):
        order = value if next(iter(value)).startswith("#") else sorted(value, key=int)
        return [_inner(value[name]) for name in order]
    return {name: _inner(one) for name, one in value.items()}


def _clash(name: str) -> StripeError:
    return invalid(f"Invalid parameter: {name} is a value and holds values.", param=name)
