"""make finds a usable Python by itself, and says the fix in words when there is none."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tidy.project import ROOT

SCRIPT = ROOT / "requirements" / "venv.sh"
LIMIT_SECONDS = 60


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder that is the whole PATH: the shell's own needs, no Python, no uv."""
    folder = tmp_path / "bin with space"
    folder.mkdir()
    for name in ("sh", "rm"):
        (folder / name).symlink_to(shutil.which(name) or name)
    return folder


def plant(folder: Path, *, name: str, script: str) -> None:
    """A program that is this shell script."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def run(programs: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the script beside an empty home; nothing of this process's environment is passed on."""
    home = programs.parent / "home"
    home.mkdir(exist_ok=True)
    return subprocess.run(
        ["sh", str(SCRIPT), "env"],
        cwd=programs.parent,
        env={"PATH": str(programs), "HOME": str(home), **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_SECONDS,
    )


def test_no_python_says_so_with_the_fix(programs: Path) -> None:
    ended = run(programs)
    assert ended.returncode == 1
    assert "needs Python 3.11 or newer" in ended.stderr
    assert "apt install python3 python3-venv" in ended.stderr


def test_old_python_and_a_shim_that_refuses_count_as_none(programs: Path) -> None:
    plant(programs, name="python3", script="exit 1")
    plant(programs, name="python3.13", script="echo 'pyenv: command not found' >&2; exit 127")
    ended = run(programs)
    assert ended.returncode == 1
    assert "needs Python 3.11 or newer" in ended.stderr
    assert "pyenv" not in ended.stderr


def test_missing_venv_module_is_said_with_the_fix(programs: Path) -> None:
    """Debian without python3-venv: Python runs, `import ensurepip` fails."""
    script = f'case "$2" in *ensurepip*) exit 1;; esac\nexec "{sys.executable}" "$@"'
    plant(programs, name="python3", script=script)
    ended = run(programs)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}-venv"
    assert ended.returncode == 1
    assert "its venv module is missing" in ended.stderr
    assert f"apt install python3-venv (or {version}" in ended.stderr


def test_named_python_that_does_not_run_is_refused_by_name(programs: Path) -> None:
    ended = run(programs, PYTHON="/nowhere/python3")
    assert ended.returncode == 1
    assert "PYTHON=/nowhere/python3 does not run" in ended.stderr


def test_folder_that_is_no_environment_is_never_removed(programs: Path) -> None:
    plant(programs, name="python3", script=f'exec "{sys.executable}" "$@"')
    precious = programs.parent / "env" / "precious"
    precious.parent.mkdir()
    precious.write_text("kept")
    ended = run(programs)
    assert ended.returncode == 1
    assert "is not a virtual environment" in ended.stderr
    assert precious.read_text() == "kept"


def test_help_is_the_default_and_names_every_public_target() -> None:
    ended = subprocess.run(
        ["make", "--no-print-directory"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=LIMIT_SECONDS,
    )
    named = [line.split()[1] for line in ended.stdout.splitlines()]
    assert named == [
        "help",
        "venv",
        "test",
        "lint",
        "format",
        "demo",
        "up",
        "chaos",
        "judge",
        "bench",
        "bench-large",
        "bench-verify",
        "replay-large",
        "bench-requirements",
        "requirements",
        "clean",
    ]
