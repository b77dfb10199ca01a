"""The judges from outside: Stripe's own command line, and stripe-mock with Stripe's own description of its interface.

Both are pinned with their hashes (``package-lock.json``, ``stripe_mock/go.sum``) and kept in the cache folder.  They run
only when asked for by their marker (``make judge``), and then nothing is left out: a judge that is not here is a failure.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from onceflow_simulator.client import wait_until

HERE = Path(__file__).parent
INSTALL_SECONDS_MAX = 240.0
BUILD_SECONDS_MAX = 270.0
START_SECONDS_MAX = 30.0
PROGRAM = "node_modules/@stripe/cli-linux-x64/bin/stripe"
"""Stripe publishes a package per kind of machine; the judges sit on this kind."""
NO_PROGRAM = "the judges cannot be asked: {} is not here. Fix: install Node.js with npm, and Go 1.24 or newer"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Judges are asked by their marker only: they need the network and two more tool chains."""
    judges = [item for item in items if item.path.is_relative_to(HERE)]
    if "judge" in str(config.option.markexpr):
        for item in judges:
            item.add_marker(pytest.mark.timeout(2 * INSTALL_SECONDS_MAX))
        return
    items[:] = [item for item in items if not item.path.is_relative_to(HERE)]
    config.hook.pytest_deselected(items=judges)


def kept(*files: Path) -> Path:
    """The folder in the cache for what exactly these files pin."""
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "onceflow" / "judge"
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
    folder = root / digest[:16]
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def run(command: list[str], *, folder: Path, limit_seconds: float) -> None:
    if shutil.which(command[0]) is None:
        pytest.fail(NO_PROGRAM.format(command[0]))
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=limit_seconds, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="session")
def stripe_program() -> Path:
    """Stripe's command line."""
    files = (HERE / "package.json", HERE / "package-lock.json")
    folder = kept(*files)
    program = folder / PROGRAM
    if not program.exists():
        for file in files:
            shutil.copy(file, folder)
        run(
            ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"],
            folder=folder,
            limit_seconds=INSTALL_SECONDS_MAX,
        )
    return program


@pytest.fixture(scope="session")
def mock_program() -> Path:
    """stripe-mock, built from its source."""
    source = HERE / "stripe_mock"
    program = kept(source / "go.mod", source / "go.sum") / "stripe-mock"
    if not program.exists():
        unfinished = program.with_suffix(f".{os.getpid()}")
        run(
            ["go", "build", "-mod=readonly", "-o", str(unfinished), "github.com/stripe/stripe-mock"],
            folder=source,
            limit_seconds=BUILD_SECONDS_MAX,
        )
        unfinished.replace(program)
    return program


@pytest.fixture(scope="session")
def mock_url(mock_program: Path) -> Iterator[str]:
    """A running stripe-mock. It would open a second port to the whole network, were it not told otherwise."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [str(mock_program), "-http-addr", f"127.0.0.1:{port}", "-https-addr", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            wait_until(lambda: listens(port), "stripe-mock listens", timeout_seconds=START_SECONDS_MAX)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
