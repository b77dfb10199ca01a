"""How far a long command is: a bar on a terminal, else a line now and then, always on standard error."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from onceflow.results import say

LINE_SECONDS = 5.0


@contextmanager
def progress_bar(what: str, *, total: int) -> Iterator[Callable[[int], None]]:
    """Show how far it is while the block runs; yields what is called with the number that is done.

    Args:
        what: one word.
        total: how many there are, as far as is known.
    """
    if not sys.stderr.isatty():
        yield _lines(what, total)
        return
    from rich.console import Console  # noqa: PLC0415 - only a terminal pays for it
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415

    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.update(task, completed=done, total=max(total, done))


def _lines(what: str, total: int) -> Callable[[int], None]:
    told_at = time.monotonic()

    def tell(done: int) -> None:
        nonlocal told_at
        if time.monotonic() - told_at >= LINE_SECONDS:
            told_at = time.monotonic()
            say(f"{what}: {done:,} of {max(total, done):,}")

    return tell
