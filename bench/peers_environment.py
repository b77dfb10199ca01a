"""The environment of the peers: ``bench/.venv``, pinned and hashed by ``bench/peers/requirements.txt``.

Rule: what we are compared with never enters the product's own environment.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
ENVIRONMENT = FOLDER / ".venv"
REQUIREMENTS = FOLDER / "peers" / "requirements.txt"
PYTHON = ENVIRONMENT / "bin" / "python"
INSTALL_SECONDS_MAX = 600


def make_environment(say: Callable[[str], None]) -> Path:
    """Return the interpreter of the peers, after installing what is missing."""
    wanted = hashlib.sha256(REQUIREMENTS.read_bytes() + sys.version.encode()).hexdigest()
    stamp = ENVIRONMENT / "installed.stamp"
    if stamp.is_file() and stamp.read_text("ascii") == wanted:
        return PYTHON
    say("installing the peers into bench/.venv (SQLAlchemy, FastStream, DBOS, Stripe's SDK)")
    uv = shutil.which("uv")
    if uv is not None:
        _run([uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(ENVIRONMENT)])
        install = [uv, "pip", "install", "--quiet", "--python", str(PYTHON)]
    else:
        venv.create(ENVIRONMENT, clear=True, with_pip=True)
        install = [str(PYTHON), "-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check"]
    _run([*install, "--require-hashes", "-r", str(REQUIREMENTS)])
    stamp.write_text(wanted, "ascii")
    return PYTHON


def _run(argv: list[str]) -> None:
    subprocess.run(argv, check=True, timeout=INSTALL_SECONDS_MAX, stdin=subprocess.DEVNULL)
