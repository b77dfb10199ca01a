"""Finds the project's own text files: what a commit would hold, without asking git (a source archive has none)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.tidy.offence import Source

ROOT = Path(__file__).parents[2]

HIDDEN_BUT_OURS = frozenset({".ci", ".gitignore"})
MADE_BY_TOOLS = frozenset({"__pycache__", "build", "dist", "node_modules"})
TEXT_SUFFIXES = frozenset(
    {".cfg", ".html", ".ini", ".json", ".md", ".properties", ".py", ".sh", ".sql", ".toml", ".txt", ".yaml", ".yml"}
)
TEXT_NAMES = frozenset({".gitignore", "Makefile", "run"})


@cache
def sources() -> tuple[Source, ...]:
    """Every text file of the project, in the order of their paths."""
    return tuple(
        Source(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))
        for path in sorted(_files(ROOT))
        if path.suffix in TEXT_SUFFIXES or path.name in TEXT_NAMES
    )


def top_folders() -> list[str]:
    """The folders of the root that hold something of ours."""
    return sorted({source.path.split("/")[0] for source in sources() if "/" in source.path} - HIDDEN_BUT_OURS)


@cache
def _left_by_the_tour() -> frozenset[Path]:
    """What the README has its reader write into this folder: .gitignore names it from the root on."""
    lines = (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    return frozenset(ROOT / line.strip("/") for line in lines if line.startswith("/"))


def _files(folder: Path) -> Iterator[Path]:
    for path in folder.iterdir():
        if path in _left_by_the_tour():
            continue
        hidden = path.name.startswith(".") and path.name not in HIDDEN_BUT_OURS
        if hidden or path.name in MADE_BY_TOOLS or path.name.endswith(".egg-info") or (path / "pyvenv.cfg").exists():
            continue
        if path.is_dir() and not path.is_symlink():
            yield from _files(path)
        elif path.is_file():
            yield path
