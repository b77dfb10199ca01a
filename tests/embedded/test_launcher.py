"""What runs behind the launcher is a direct child with the right user, and says plainly why it could not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from onceflow.embedded.child_process import LAUNCHER, Command, run_to_end


def test_the_command_gets_its_folder_a_private_mask_and_no_environment(tmp_path: Path) -> None:
    program = "import os; print(os.getcwd(), oct(os.umask(0)), sorted(os.environ))"
    command = Command([sys.executable, "-I", "-S", "-c", program], directory=tmp_path, environment={"A": "1"})
    finished = run_to_end(command, timeout_seconds=20)
    # The interpreter adds LC_CTYPE to the environment by itself.
    assert finished.output.replace(", 'LC_CTYPE'", "") == f"{tmp_path} 0o77 ['A']\n"
    assert finished.exit_code == 0


@pytest.mark.parametrize(
    ("directory", "program", "code", "text"),
    [
        ("missing", "/bin/true", 126, "cannot enter the folder"),
        (".", "/bin/no-such-program", 127, "cannot run /bin/no-such-program"),
    ],
)
def test_what_is_missing_is_said(tmp_path: Path, directory: str, program: str, code: int, text: str) -> None:
    finished = run_to_end(Command([program], directory=tmp_path / directory), timeout_seconds=20)
    assert finished.exit_code == code
    assert text in finished.output


def test_a_parent_that_is_gone_already_starts_nothing(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    argv = [sys.executable, "-I", "-S", str(LAUNCHER), "1", str(int(signal.SIGKILL)), "same", str(tmp_path)]
    finished = subprocess.run(
        [*argv, "/usr/bin/touch", str(marker)], capture_output=True, text=True, timeout=20, check=False
    )
    assert finished.returncode == 124
    assert "the parent ended before the command began" in finished.stderr
    assert not marker.exists()


def test_an_identity_that_the_system_forbids_is_said(tmp_path: Path) -> None:
    """Root may take any user, so it is shown with a user that it cannot be; a plain user may take none."""
    wanted = "user:4294967295:4294967295" if os.geteuid() == 0 else "user:0:0"
    finished = run_to_end(Command(["/bin/true"], directory=tmp_path, identity=wanted), timeout_seconds=20)
    assert finished.exit_code == 125
    assert f"cannot become {wanted}" in finished.output
