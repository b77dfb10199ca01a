"""docker-compose.yml and .env.example as values, with the variables put in as `docker compose` does it.

Rule: nothing here knows what the file should say; the tests do.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

ROOT = Path(__file__).parents[2]
FILE = ROOT / "docker-compose.yml"
ENVIRONMENT_FILE = ROOT / ".env.example"

VARIABLE = re.compile(r"\$\{(?P<name>[A-Z0-9_]+)(?::(?P<kind>[-?])(?P<rest>[^}]*))?\}")
ASSIGNMENT = re.compile(r"([A-Z][A-Z0-9_]*)=(.*)")


@dataclass(frozen=True)
class Example:
    """One variable of .env.example."""

    value: str
    comment: str


@dataclass
class Compose:
    """The file with its variables put in.

    Args:
        document: the parsed file; merge keys are resolved.
        used: every variable in it, with its default; None where the file insists on a value.
    """

    document: dict[str, Any]
    used: dict[str, str | None] = field(default_factory=dict)

    @property
    def services(self) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = self.document["services"]
        return found

    def ours(self) -> dict[str, dict[str, Any]]:
        """The services that run our image."""
        return {name: one for name, one in self.services.items() if str(one["image"]).startswith("onceflow:")}

    def environment(self, service: str) -> dict[str, str]:
        """The variables of a service as its process sees them."""
        return {name: str(value) for name, value in self.services[service].get("environment", {}).items()}


def load(values: Mapping[str, str]) -> Compose:
    """Read the file, with these variables and its own defaults."""
    used: dict[str, str | None] = {}

    def put(match: re.Match[str]) -> str:
        name, default = match["name"], match["rest"] if match["kind"] == "-" else None
        assert match["kind"] is not None, f"{name} has neither a default nor a demand: write {name}:-... or {name}:?..."
        assert used.get(name, default) == default, f"{name} has two defaults"
        used[name] = default
        return values.get(name) or default or ""

    document = YAML(typ="safe").load(FILE.read_text("utf-8"))
    return Compose(_walk(document, put), used)


def examples() -> dict[str, Example]:
    """The variables of .env.example, each with the comment that stands over it or over its group."""
    found: dict[str, Example] = {}
    comment: list[str] = []
    for line in ENVIRONMENT_FILE.read_text("utf-8").splitlines():
        if not line:
            comment = []
        elif line.startswith("#"):
            comment.append(line[1:].strip())
        else:
            match = ASSIGNMENT.fullmatch(line)
            assert match is not None, line
            found[match[1]] = Example(match[2], " ".join(comment))
    return found


def _walk(value: Any, put: Any) -> Any:
    if isinstance(value, dict):
        return {key: _walk(one, put) for key, one in value.items()}
    if isinstance(value, list):
        return [_walk(one, put) for one in value]
    return VARIABLE.sub(put, value) if isinstance(value, str) else value
