"""Has the user's handlers checked by another process, before anything is started for them.

Rule: ``up`` never imports the user's modules itself: what they do while they are imported (threads, signals, output)
would stay in it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from onceflow.embedded.child_process import Command, run_to_end
from onceflow.settings import environment_for_child, process_environment
from onceflow_schemas.failure import Misconfigured

CHECK_SECONDS_MAX = 60.0
SHOWN_LINES_MAX = 8
DATABASE_NOT_YET = "postgresql://127.0.0.1:1/not_started_yet"
"""An address in the form that the processor will find; a module may read it, and must not use it while it is imported."""


def check_handlers(name: str, *, folder: Path) -> None:
    """Run ``onceflow process --check`` on the handlers.

    Args:
        name: ``module:attribute``.
        folder: where the processor will run.

    Raises:
        Misconfigured: ``handlers_not_found`` or ``handlers_invalid``, as the processor would say it.
    """
    overrides = {"processor.handlers": name, "database.url": DATABASE_NOT_YET}
    command = Command(
        [sys.executable, "-P", "-m", "onceflow", "process", "--check", "--json"],
        folder,
        environment=environment_for_child(process_environment(), {}, overrides=overrides),
    )
    done = run_to_end(command, timeout_seconds=CHECK_SECONDS_MAX)
    if done.exit_code == 0:
        return
    error = _error(done.output)
    if error is None:
        lines = done.output.splitlines()[-SHOWN_LINES_MAX:]
        said = "".join(f"\n  | {line}" for line in lines)
        how = f"loading it ended with status {done.exit_code}" if done.exit_code > 0 else "loading it did not end"
        raise Misconfigured(
            "handlers_not_found", f"{name} cannot be loaded: {how}" + (f"; it said last:{said}" if said else "")
        )
    code, message, hint = (str(error[name]) for name in ("code", "message", "hint"))
    raise Misconfigured(code, message, hint, faults=tuple(error.get("faults", ())))


def _error(output: str) -> Mapping[str, Any] | None:
    """Return the failure among what the check, and the user's module, have written."""
    for line in reversed(output.splitlines()):
        try:
            answer = json.loads(line)
        except ValueError:
            continue
        if isinstance(answer, dict) and isinstance(answer.get("error"), dict):
            error: dict[str, Any] = answer["error"]
            return error
    return None
