"""Rules on the form of Python: sizes, signatures, docstrings, names of modules.

The numbers: 400 lines is what one sitting reads, 70 lines what one screen shows.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import PurePosixPath

from tests.tidy.offence import AnyFunction, Offence, Rule, Source, functions

FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 70
POSITIONAL_MAX = 2
CODE_SUFFIXES = (".py", ".sql", ".sh")
CODE_FILES = ("Makefile", ".ci/run")

VAGUE_NAMES = frozenset({"common", "helper", "helpers", "manager", "managers", "misc", "util", "utils"})

OUTSIDE_SIGNATURES = frozenset(
    {
        ("scope", "receive", "send"),  # an ASGI application
        ("logger", "name", "event_dict"),  # a structlog processor
        ("logger", "method_name", "event_dict"),  # the same, as its documentation also writes it
    }
)
"""Signatures that a library calls with positional arguments, so that we cannot choose."""


def long_file(source: Source) -> list[Offence]:
    """A file of code has at most 400 lines, docstrings and comments included."""
    count = len(source.text.splitlines())
    if count <= FILE_LINES_MAX:
        return []
    fix = f"{count} lines, at most {FILE_LINES_MAX} are allowed: split the file by what its parts are about"
    return [source.offence(FILE_LINES_MAX + 1, fix)]


def long_function(source: Source) -> list[Offence]:
    """A function has at most 70 lines from `def` to its last line."""
    found = []
    for node in functions(source.tree):
        count = (node.end_lineno or node.lineno) - node.lineno + 1
        if count > FUNCTION_LINES_MAX:
            fix = f"{node.name} has {count} lines, at most {FUNCTION_LINES_MAX} are allowed: give its steps names of their own"
            found.append(source.offence(node.lineno, fix))
    return found


def many_positional(source: Source) -> list[Offence]:
    """Beyond two (self and cls not counted), arguments are keyword-only: a call with three bare values cannot be read.

    A private function is called only beside its definition, and a magic method by the language: both may choose.
    """
    found = []
    for node in functions(source.tree):
        names = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)]
        if names and names[0] in {"self", "cls"}:
            names = names[1:]
        outside = tuple(name.lstrip("_") for name in names) in OUTSIDE_SIGNATURES
        if len(names) <= POSITIONAL_MAX or outside or node.name.startswith("_") or "override" in _decorators(node):
            continue
        fix = f"{node.name} takes {len(names)} positional arguments: put `*` behind the second at the latest"
        found.append(source.offence(node.lineno, fix))
    return found


def module_docstring(source: Source) -> list[Offence]:
    """Every module opens with a docstring that says the rule it guards (an empty __init__.py of the tests may stay empty)."""
    if ast.get_docstring(source.tree) or (source.is_test and not source.text.strip()):
        return []
    return [source.offence(1, "no module docstring: open the file with what it is for and the rule that it guards")]


def public_docstring(source: Source) -> list[Offence]:
    """Every public class and function of the product says its meaning, units and failures."""
    return [
        source.offence(node.lineno, f"{node.name} is public and has no docstring: say what it means, units, and errors")
        for node in _public(source.tree.body)
        if not ast.get_docstring(node)
    ]


def vague_name(source: Source) -> list[Offence]:
    """No module or package is named after nothing."""
    for part in (*PurePosixPath(source.path).parts[:-1], PurePosixPath(source.path).stem):
        words = set(part.lower().split("_"))
        if words & VAGUE_NAMES:
            return [source.offence(1, f"the name {part!r} says nothing: name the module after the thing it is about")]
    return []


def _public(body: list[ast.stmt]) -> Iterator[AnyFunction | ast.ClassDef]:
    for node in body:
        if isinstance(node, ast.If | ast.Try):
            yield from _public(node.body)
        if not isinstance(node, AnyFunction | ast.ClassDef) or node.name.startswith("_"):
            continue
        if not {"overload", "setter", "override"} & _decorators(node):
            yield node
        if isinstance(node, ast.ClassDef):
            yield from _public(node.body)


def _decorators(node: AnyFunction | ast.ClassDef) -> set[str]:
    """The last names of the decorators: `overload` of `@typing.overload`, `setter` of `@size.setter`."""
    names = set()
    for decorator in node.decorator_list:
        plain = decorator.func if isinstance(decorator, ast.Call) else decorator
        if isinstance(plain, ast.Attribute):
            names.add(plain.attr)
        elif isinstance(plain, ast.Name):
            names.add(plain.id)
    return names


def _is_code(source: Source) -> bool:
    return source.path.endswith(CODE_SUFFIXES) or source.path in CODE_FILES


RULES = (
    Rule("long_file", _is_code, long_file),
    Rule("long_function", lambda source: source.is_python, long_function),
    Rule("many_positional", lambda source: source.is_product, many_positional),
    Rule("module_docstring", lambda source: source.is_product or source.is_test, module_docstring),
    Rule("public_docstring", lambda source: source.is_product, public_docstring),
    Rule("vague_name", lambda source: source.is_python or source.path.endswith(".sql"), vague_name),
)
