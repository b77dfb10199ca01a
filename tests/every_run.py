"""Which cases of a test are in every run; the others, which show the same once more, are marked ``long``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def mostly_long(cases: Iterable[Any], *, every_run: Iterable[Any]) -> list[Any]:
    """Return cases for ``parametrize``; a case with several values is a tuple.

    Raises:
        ValueError: one that is to be in every run is none of the cases.
    """
    given, kept = list(cases), list(every_run)
    unknown = [case for case in kept if case not in given]
    if unknown:
        message = f"no such cases: {unknown}"
        raise ValueError(message)
    return [case if case in kept else _long(case) for case in given]


def _long(case: Any) -> Any:
    values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=pytest.mark.long)
