"""``onceflow ...`` as an operator calls it, on the database of a test."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from tests.processor.processor_process import Road


def onceflow(road: Road, *arguments: str) -> dict[str, Any]:
    """Run it to its end with status 0; return what it said."""
    command = [sys.executable, "-m", "onceflow", *arguments, "--json"]
    done = subprocess.run(command, env=road._environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, (done.stdout, done.stderr)
    found: dict[str, Any] = json.loads(done.stdout)
    return found
