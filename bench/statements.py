"""The SQL of the bench and of its peers, from ``sql/*.sql``; the peers run without onceflow and read the same files."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

_QUERY_NAME = re.compile(r"^-- name: ([a-z][a-z0-9_]*)$", re.MULTILINE)
_FOLDER = Path(__file__).with_name("sql")


@cache
def statements(file_name: str) -> dict[str, bytes]:
    """Return the statements of ``sql/<file_name>.sql`` by name."""
    parts = _QUERY_NAME.split((_FOLDER / f"{file_name}.sql").read_text("utf-8"))
    return {name: text.strip().encode() for name, text in zip(parts[1::2], parts[2::2], strict=True)}
