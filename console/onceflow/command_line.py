"""The command line: runs the command that was asked for, and says how it ended.

Rule: a command that fails says a code, what happened and the next step, and its exit status is that of
``exit_codes``.  Ctrl-C ends every command in one way, from its first import on, so this module imports next to nothing.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Any, cast


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
    from typer import BadParameter  # noqa: PLC0415

    from onceflow.command_app import app  # noqa: PLC0415
    from onceflow.exit_codes import USAGE, exit_code  # noqa: PLC0415
    from onceflow.results import write_failure  # noqa: PLC0415
    from onceflow_schemas.failure import Failure, Refused  # noqa: PLC0415

    as_json = "--json" in sys.argv[1:]
    # Every mistake in a command line is of this class, which typer does not show under its own name.
    wrong_command_line = cast("type[BadParameter]", BadParameter.__base__)
    try:
        # By itself typer tells of a mistake in text only; otherwise it raises it, and returns the status of an Exit.
        status = app(standalone_mode=not as_json, prog_name=_program())
        if isinstance(status, int):
            sys.exit(status)
    except Failure as failure:
        write_failure(failure, as_json=as_json)
        sys.exit(exit_code(failure))
    except wrong_command_line as mistake:
        write_failure(Refused("command_line_wrong", mistake.format_message(), _help_of(mistake)), as_json=True)
        sys.exit(USAGE)


def _program() -> str:
    """Return what was called, for texts that name the next command; typer guesses by how the interpreter was started."""
    return "python -m onceflow" if sys.argv[0].endswith("__main__.py") else "onceflow"


def _help_of(mistake: Any) -> str:
    path = "onceflow" if mistake.ctx is None else mistake.ctx.command_path
    return f"`{path} --help` tells what it takes."


def _end_interrupted() -> None:
    from onceflow.exit_codes import INTERRUPTED  # noqa: PLC0415

    with suppress(OSError):
        sys.stderr.write("interrupted before it was done\n")
    sys.exit(INTERRUPTED)
