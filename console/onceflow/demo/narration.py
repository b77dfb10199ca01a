"""What the reader sees while the demo runs: a link, numbers that move, and each death as it happens.

Rule: all of it goes to standard error, so that standard output holds the result alone.  On a terminal the numbers move in
place; into a file or a pipe they are plain lines.
"""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

LINE_SECONDS = 2.0
"""Into a pipe one line of numbers every two seconds is enough."""


class Narrator:
    """Tells the story; a context manager around the time in which numbers move."""

    def __init__(self) -> None:
        self._console = Console(file=sys.stderr, highlight=False, soft_wrap=True)
        self._progress: Progress | None = None
        self._task: TaskID | None = None
        self._began = time.monotonic()
        self._last_line = 0.0

    def act(self, title: str) -> None:
        """Begin an act."""
        self._console.print(f"\n{title}", style="bold", markup=False)

    def say(self, line: str) -> None:
        """Say one line, with the seconds since the beginning before it."""
        seconds = time.monotonic() - self._began
        self._console.print(f"  {seconds:5.1f} s  {line}", markup=False)

    def numbers(self, sent: int, *, total: int, text: str) -> None:
        """Show how far it is; cheap enough for every request."""
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, completed=sent, total=total, what=text)
        elif time.monotonic() - self._last_line >= LINE_SECONDS:
            self._last_line = time.monotonic()
            self.say(f"{sent:,} of {total:,} requests, {text}")

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._progress = Progress(
                TextColumn("  "),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[what]}"),
                TimeElapsedColumn(),
                console=self._console,
                transient=True,
            )
            self._task = self._progress.add_task("requests", total=None, what="")
            self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._progress is not None:
            self._progress.stop()
            self._progress = None
