"""What a tidy rule looks at and what it answers.

A rule is a function from one `Source` to a list of `Offence`s. It reads no file, so that each rule can be shown a planted
offence: a rule that cannot fail is a defect.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

PRODUCT_FOLDERS = ("schemas/", "producer/", "processor/", "simulator/", "console/")


@dataclass(frozen=True)
class Offence:
    """One place that breaks a rule: where, and in words what to do about it."""

    path: str
    line: int
    fix: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.fix}"


@dataclass(frozen=True)
class Source:
    """One file: its path from the project's root with forward slashes, and its text."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        """The syntax tree of a Python file."""
        return ast.parse(self.text, self.path)

    @property
    def is_python(self) -> bool:
        """Python by its name."""
        return self.path.endswith(".py")

    @property
    def is_product(self) -> bool:
        """Python that is shipped, not a test."""
        return self.is_python and self.path.startswith(PRODUCT_FOLDERS)

    @property
    def is_test(self) -> bool:
        """Python that lives under tests/."""
        return self.is_python and self.path.startswith("tests/")

    def offence(self, line: int, fix: str) -> Offence:
        """An offence in this file."""
        return Offence(self.path, line, fix)


@dataclass(frozen=True)
class Rule:
    """A named rule, the files that it applies to, and the check itself."""

    name: str
    applies: Callable[[Source], bool]
    check: Callable[[Source], list[Offence]]


AnyFunction = ast.FunctionDef | ast.AsyncFunctionDef


def functions(tree: ast.AST) -> Iterator[AnyFunction]:
    """Every function and method, nested ones too."""
    for node in ast.walk(tree):
        if isinstance(node, AnyFunction):
            yield node


def docstrings(tree: ast.AST) -> list[ast.Constant]:
    """The strings that are docstrings: of modules, classes and functions, and bare strings that explain a constant."""
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    ]
