"""The command line: runs the command that was asked for, and says how it ended.

Rule: a command that fails says a code, what happened and the next step, and its exit status is that of
``exit_codes``.  Ctrl-C ends every command in one way, from its first import on, so this module imports next to nothing.
"""

from __future__ import annotations

import sys
from contextlib import suppress


def main() -> None:
    """Run the command that the arguments of this process name, and exit with its status."""
    try:
        _run()
    except KeyboardInterrupt:
        _end_interrupted()
    except SystemExit as end:
        from onceflow.exit_codes import INTERRUPTED  # noqa: PLC0415

        if end.code == INTERRUPTED:
            _end_interrupted()
        raise


def _run() -> None:
    # What takes time to import is imported here, where Ctrl-C is answered already.
    from onceflow.command_app import app  # noqa: PLC0415
    from onceflow.exit_codes import exit_code  # noqa: PLC0415
    from onceflow.results import write_failure  # noqa: PLC0415
    from onceflow_schemas.failure import Failure  # noqa: PLC0415

    try:
        app()
    except Failure as failure:
        write_failure(failure, as_json="--json" in sys.argv)
        sys.exit(exit_code(failure))


def _end_interrupted() -> None:
    from onceflow.exit_codes import INTERRUPTED  # noqa: PLC0415

    with suppress(OSError):
        sys.stderr.write("interrupted before it was done\n")
    sys.exit(INTERRUPTED)
