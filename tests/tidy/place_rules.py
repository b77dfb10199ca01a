"""Rules on what may be done where: SQL, the environment, sleeping, leaving a test out, what the checker may know."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.tidy.offence import AnyFunction, Offence, Rule, Source, docstrings, functions

SETTINGS_FILE = "console/onceflow/settings.py"

ENVIRONMENT_NAMES = frozenset({"environ", "environb", "getenv", "getenvb", "putenv", "unsetenv"})
SKIPPING_NAMES = frozenset({"SkipTest", "importorskip", "skip", "skipIf", "skipTest", "skipUnless", "skipif", "xfail"})
TEST_LIBRARIES = frozenset({"pytest", "mark", "unittest", "self"})

SQL = re.compile(
    r"""
    (?:SELECT|TRUNCATE|EXPLAIN|VACUUM|SAVEPOINT|RELEASE|LISTEN|UNLISTEN|NOTIFY|DISCARD|RESET|SHOW|REINDEX)\s
    | INSERT\s+INTO\s | DELETE\s+FROM\s | MERGE\s+INTO\s | UPDATE\s+.*\sSET\s | COPY\s+[\w.\"{(] | LOCK\s+(?:TABLE\s|[\w.]+\sIN\s)
    | (?:CREATE|ALTER|DROP)\s+(?:[A-Z]+\s+){0,3}
      (?:DATABASE|DOMAIN|EXTENSION|FUNCTION|INDEX|PROCEDURE|PUBLICATION|ROLE|SCHEMA|SEQUENCE|SYSTEM|TABLE|TRIGGER|TYPE|USER|VIEW)\s
    | WITH\s+(?:RECURSIVE\s+)?[\w\"]+\s*(?:\([^)]*\)\s*)?AS\s
    | SET\s+(?:LOCAL|SESSION|CONSTRAINTS|TRANSACTION)\s | SET\s+[\w.]+\s*(?:=|TO)
    | (?:GRANT|REVOKE)\s+.*\s(?:ON|TO|FROM)\s | ROLLBACK\s+TO\s | BEGIN\s+(?:ISOLATION|READ|TRANSACTION|WORK)
    | DECLARE\s+[\w\"]+\s.*CURSOR\s | FETCH\s+(?:ALL|FORWARD|NEXT|FROM|\d) | VALUES\s*\( | CALL\s+[\w.]+\( | DO\s+\$
    """,
    re.VERBOSE | re.DOTALL,
)
"""SQL in capitals: the first word and as much grammar as tells it from a sentence. `BEGIN`, `COMMIT`, `ROLLBACK` alone pass."""

SMALL_SQL = re.compile(
    r"""
    select\s+(?:.+\sfrom\s+[\w.\"{]|[\w.]+\(|\d+\s*$|\*) | insert\s+into\s+[\w.\"{]+\s*(?:\(|values|select)
    | update\s+[\w.\"{}]+\s+(?:as\s+\w+\s+)?set\s+[\w\"]+\s*= | delete\s+from\s+[\w.\"{}]+\s*(?:where\s|;|$)
    | (?:create|alter|drop)\s+(?:table|index|schema|database|role|user)\s+(?:if\s|[\w.\"{}]+\s*(?:\(|;|$|add\s|owner\s))
    | with\s+(?:recursive\s+)?\w+\s*(?:\([^)]*\)\s*)?as\s+(?:not\s+)?(?:materialized\s+)?\( | set\s+local\s+\w+\s*(?:=|to)
    """,
    re.VERBOSE | re.DOTALL,
)
"""SQL in small letters needs more grammar. A capital first letter is a sentence: "Select a topic from the list"."""

SQL_COMMENT = re.compile(r"\A(?:\s+|--[^\n]*(?:\n|\Z)|/\*.*?\*/)*", re.DOTALL)


def sql_in_python(source: Source) -> list[Offence]:
    """SQL lives in named queries in .sql files, where it can be read, planned and reviewed as SQL."""
    found = []
    for line, text in _strings(source.tree):
        if is_sql(text):
            fix = f"SQL in Python ({' '.join(text.split())[:40]!r}): make it a named query in a .sql file, load it by name"
            found.append(source.offence(line, fix))
    return found


def is_sql(text: str) -> bool:
    """Any statement of the text begins as SQL does."""
    statements = [SQL_COMMENT.sub("", part) for part in text.split(";")]
    return any(SQL.match(part) or SMALL_SQL.match(part.rstrip()) for part in statements)


def environment_read(source: Source) -> list[Offence]:
    """Only the settings module reads the environment; everything else is given its values."""
    fix = f"the environment is read only in {SETTINGS_FILE}: add a setting there and take the value as an argument"
    return [source.offence(line, fix) for line in _environment_lines(source.tree)]


def blind_sleep(source: Source) -> list[Offence]:
    """A test waits for a condition, with a limit; a sleep is too short on a slow machine and too long on a fast one.

    The pause between two looks at the condition is right where the waiting is written: in a `wait...` function that takes
    its limit as a `..._seconds` argument.
    """
    fix = "time.sleep in a test: wait for the condition that you mean, in a wait_... function that takes a limit in ..._seconds"
    names = _imported(source.tree, module="time", names=frozenset({"sleep"}))
    waiting = {id(node) for function in functions(source.tree) if _waits(function) for node in ast.walk(function)}
    return [
        source.offence(node.lineno, fix)
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Call)
        and id(node) not in waiting
        and (
            (isinstance(node.func, ast.Attribute) and node.func.attr == "sleep" and _base(node.func) == "time")
            or (isinstance(node.func, ast.Name) and node.func.id in names)
        )
    ]


def left_out_test(source: Source) -> list[Offence]:
    """No test is left out or allowed to fail: it would look like a promise that is kept."""
    fix = "a test is left out or may fail: make it pass, or remove it together with the promise"
    imported = {
        alias.lineno
        for node in ast.walk(source.tree)
        if isinstance(node, ast.ImportFrom) and node.module in {"pytest", "unittest"}
        for alias in node.names
        if alias.name in SKIPPING_NAMES
    }
    used = {
        node.lineno
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Attribute) and node.attr in SKIPPING_NAMES and _base(node) in TEST_LIBRARIES
    }
    return [source.offence(line, fix) for line in sorted(imported | used)]


def unfinished(source: Source) -> list[Offence]:
    """Nothing is left for later in the middle of the code."""
    fix = "NotImplementedError: write it, or leave out what promises it (an abstract method needs a Protocol or @abstractmethod)"
    return [
        source.offence(node.lineno, fix)
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Name) and node.id == "NotImplementedError"
    ]


def checker_knows_product(source: Source) -> list[Offence]:
    """The checker counts for itself: with product code in it, one bug could hide itself in both."""
    fix = "tests/checker imports no product code: read the raw topic or table and write the expectation by hand"
    found = []
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
        if any(name.split(".")[0].startswith("onceflow") for name in names):
            found.append(source.offence(node.lineno, fix))
    return found


def _strings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and text of each string that is no docstring; the values of an f-string stand as `{}`."""
    passed = {id(node) for node in docstrings(tree)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            passed |= {id(part) for part in node.values}
            parts = [str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values]
            yield node.lineno, "".join(parts)
        elif isinstance(node, ast.Constant) and id(node) not in passed:
            if isinstance(node.value, str):
                yield node.lineno, node.value
            elif isinstance(node.value, bytes):
                yield node.lineno, node.value.decode("latin-1")


def _environment_lines(tree: ast.Module) -> list[int]:
    lines = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in ENVIRONMENT_NAMES and _base(node) != "self":
            lines.add(node.lineno)
        elif isinstance(node, ast.ImportFrom):
            forbidden = {"os": ENVIRONMENT_NAMES, "pydantic_settings": {"BaseSettings"}}.get(node.module or "", set())
            lines |= {node.lineno for alias in node.names if alias.name in forbidden}
        elif isinstance(node, ast.keyword) and node.arg == "envvar":
            lines.add(node.value.lineno)
    return sorted(lines)


def _imported(tree: ast.Module, *, module: str, names: frozenset[str]) -> set[str]:
    """The local names under which `from module import name` made the given names known."""
    return {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == module
        for alias in node.names
        if alias.name in names
    }


def _waits(function: AnyFunction) -> bool:
    """A function that waits for a condition, and not forever."""
    arguments = (*function.args.args, *function.args.kwonlyargs)
    return function.name.startswith("wait") and any(argument.arg.endswith("_seconds") for argument in arguments)


def _base(node: ast.Attribute) -> str:
    """The name before the last dot: `mark` of `pytest.mark.skip`, `time` of `time.sleep`."""
    if isinstance(node.value, ast.Name):
        return node.value.id
    return node.value.attr if isinstance(node.value, ast.Attribute) else ""


RULES = (
    Rule("sql_in_python", lambda source: source.is_product, sql_in_python),
    Rule("environment_read", lambda source: source.is_product and source.path != SETTINGS_FILE, environment_read),
    Rule("blind_sleep", lambda source: source.is_test, blind_sleep),
    Rule("left_out_test", lambda source: source.is_test, left_out_test),
    Rule("unfinished", lambda source: source.is_python, unfinished),
    Rule("checker_knows_product", lambda source: source.path.startswith("tests/checker/"), checker_knows_product),
)
