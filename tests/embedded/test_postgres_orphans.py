"""Only what a dead postmaster left in this very folder is ended."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from onceflow.embedded.postgres_orphans import end_orphans
from tests.embedded.process_state import is_alive, wait_gone

# The processes stand in for backends: any program that runs in the folder.
PROGRAM = Path("/bin/sleep")


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    ours.mkdir()
    theirs.mkdir()
    return ours, theirs


@contextlib.contextmanager
def sleeping_in(*folders: Path) -> Iterator[list[int]]:
    with contextlib.ExitStack() as stack:
        children = [stack.enter_context(subprocess.Popen([PROGRAM, "300"], cwd=folder)) for folder in folders]
        for child in children:
            stack.callback(child.kill)
        yield [child.pid for child in children]


def test_left_over_processes_of_the_folder_are_ended(folders: tuple[Path, Path]) -> None:
    ours, theirs = folders
    with sleeping_in(ours, ours, theirs) as (first, second, other):
        assert sorted(end_orphans(PROGRAM, ours)) == sorted([first, second])
        wait_gone(first, second)
        assert is_alive(other)


def test_other_programs_in_the_folder_are_let_alone(folders: tuple[Path, Path]) -> None:
    ours, _ = folders
    with sleeping_in(ours) as (first,):
        assert end_orphans(Path("/bin/cat"), ours) == []
        assert is_alive(first)


def test_a_postmaster_that_runs_keeps_its_processes(folders: tuple[Path, Path]) -> None:
    ours, _ = folders
    with sleeping_in(ours, ours) as (postmaster, backend):
        (ours / "postmaster.pid").write_text(f"{postmaster}\n{ours}\n")
        assert end_orphans(PROGRAM, ours) == []
        (ours / "postmaster.pid").write_text(f"{os.getpid()}\n{ours}\n")
        assert sorted(end_orphans(PROGRAM, ours)) == sorted([postmaster, backend])
