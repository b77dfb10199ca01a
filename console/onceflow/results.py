"""How commands write results, progress and failures.

Rule: results go to standard output, everything else to standard error.  With ``--json`` a result is one object, a
list is one object per line, and a failure is one object too, so that a script reads only one stream.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from onceflow_schemas.failure import Failure


def write_object(result: Mapping[str, Any]) -> None:
    """Write one JSON object as one line, at once: a service goes on for long after it."""
    sys.stdout.write(json.dumps(result, default=str, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def write_ready(state: Mapping[str, object]) -> None:
    """Write the result of a service, which is that it is ready; that nobody reads it stops nothing."""
    with suppress(OSError):
        write_object({"ready": True, **state})


def write_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Write aligned columns, a row a line; bold titles where standard output is a terminal."""
    from rich.console import Console  # noqa: PLC0415 - only a table pays for it
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(box=None, pad_edge=False, header_style="bold", show_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(" ".join(cell.splitlines())) for cell in row))
    console = Console(file=sys.stdout, highlight=False, soft_wrap=False)
    if console.is_terminal:
        console.print(table)
        return
    text = io.StringIO()
    Console(file=text, highlight=False, width=PIPE_COLUMNS).print(table)
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in text.getvalue().splitlines()))


PIPE_COLUMNS = 400
"""Into a pipe nothing is folded: a reader would have to put the pieces together again."""


def say(line: str) -> None:
    """Write one line of progress to standard error; that nobody reads it any more stops nothing."""
    with suppress(OSError):
        sys.stderr.write(line + "\n")
        sys.stderr.flush()


def write_failure(failure: Failure, *, as_json: bool) -> None:
    """Write code, message, every fault and the next step."""
    faults = failure.faults if len(failure.faults) > 1 else ()
    # Where the message is nothing but the faults in one line, the list says it better and once is enough.
    repeated = bool(faults) and failure.message.endswith("; ".join(faults))
    message = f"{len(faults)} faults" if repeated else failure.message
    if as_json:
        error = {"code": failure.code, "message": message, "hint": failure.hint}
        write_object({"error": error | ({"faults": list(faults)} if faults else {})})
        return
    lines = [
        f"error: {failure.code}: {message}",
        *(f"  - {fault}" for fault in faults),
        f"hint: {failure.hint}",
    ]
    sys.stderr.write("\n".join(lines) + "\n")
