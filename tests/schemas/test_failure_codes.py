"""The codes in the sources against ``FAILURES``: none is unknown, none is there for nothing.

Codes are found where they are given away: as the first argument of what carries one, under ``code=`` or ``problem=``, and
in the tables of refusals and lane codes.
"""

from __future__ import annotations

import ast
import typing
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from onceflow_processor.relay.cursor import Code
from onceflow_producer.refusal import STATUS_OF
from onceflow_schemas.failure import FAILURES, REQUEST_FAILURES

ROOT = Path(__file__).parents[2]
FOLDERS = ("schemas", "producer", "processor", "console")
SCHEMAS = ROOT / "schemas" / "onceflow_schemas"
REGISTERS = (SCHEMAS / "failure.py", SCHEMAS / "operations" / "failures.py")

CARRIERS = frozenset(
    {
        "Failure",
        "Fault",
        "LeaseLost",
        "Misconfigured",
        "Refusal",
        "Refused",
        "Review",
        "Stop",
        "Unavailable",
        "Uncertain",
        "Untrusted",
        "NotPublished",
        "Disagrees",
        "note",
        "_note",
    }
)
CARRYING_NAMES = frozenset({"code", "problem"})


@cache
def sources() -> dict[str, ast.Module]:
    found = {
        str(path.relative_to(ROOT)): ast.parse(path.read_text("utf-8"))
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
        if path not in REGISTERS
    }
    assert len(found) > 50
    return found


def texts(node: ast.AST) -> Iterator[str]:
    for inner in ast.walk(node):
        if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
            yield inner.value


def given_codes(node: ast.Call) -> Iterator[str]:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if name in CARRIERS and node.args:
        yield from texts(node.args[0])
    for keyword in node.keywords:
        if name in CARRIERS | {"Document"} and keyword.arg in CARRYING_NAMES:
            yield from texts(keyword.value)


def test_every_code_that_is_given_is_registered() -> None:
    unknown = {
        f"{path}:{node.lineno} {code}"
        for path, tree in sources().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        for code in given_codes(node)
        if code not in FAILURES
    }
    assert unknown == set()


def test_the_search_finds_codes() -> None:
    """A search that finds nothing, because a class was renamed, would pass for ever."""
    found = {
        code
        for tree in sources().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        for code in given_codes(node)
    }
    assert {
        "not_utf8",
        "bad_type",
        "wrong_signature",
        "tail_lost",
        "fenced",
        "lanes_missing",
        "outcome_refused",
    } <= found
    assert len(found) > 60


def test_no_code_is_registered_for_nothing() -> None:
    used = {text for tree in sources().values() for text in texts(tree)}
    assert sorted(set(FAILURES) - used) == []


def test_every_refusal_of_the_bridge_is_registered() -> None:
    assert set(STATUS_OF) <= set(FAILURES)
    assert set(REQUEST_FAILURES) <= set(STATUS_OF)


@pytest.mark.parametrize("code", typing.get_args(Code))
def test_every_code_of_a_lane_is_registered(code: str) -> None:
    assert FAILURES[code].actor == "operator"
