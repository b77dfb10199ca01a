"""What ``onceflow replay`` writes: the table, the JSON, and how far it is.

Rule: results go to standard output, the progress to standard error: a bar on a terminal, else a line now and then.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from onceflow.results import say

if TYPE_CHECKING:
    from onceflow_processor.replay.looking import Passed, Told
    from onceflow_processor.replay.tally import Tally

LINE_SECONDS: Final = 5.0
"""So often a line is written where there is no terminal."""
BAR_SECONDS: Final = 0.2
BAR_CHARACTERS: Final = 30


class ProgressLine:
    """Tells how far a replay is: share, records, rate, and how long it will take."""

    def __init__(self, *, terminal: bool) -> None:
        self._terminal = terminal
        self._begun = time.monotonic()
        self._due = self._begun + (BAR_SECONDS if terminal else LINE_SECONDS)
        self._shown = False

    def told(self, passed: Passed) -> None:
        """Take a report; most of them are not shown."""
        now = time.monotonic()
        if now < self._due:
            return
        self._due = now + (BAR_SECONDS if self._terminal else LINE_SECONDS)
        records = passed.tally.records
        line = progress_text(passed.offsets, passed.total, records=records, seconds=now - self._begun)
        if self._terminal:
            sys.stderr.write(f"\r\x1b[K{line}")
            sys.stderr.flush()
            self._shown = True
        else:
            say(line)

    def end(self) -> None:
        """Leave the bar's line."""
        if self._shown:
            sys.stderr.write("\n")


def progress_text(passed: int, total: int, *, records: int, seconds: float) -> str:
    """Return one line: bar, share, records, rate and time left.

    Args:
        passed: offsets that are behind.
        total: offsets in all.
        records: records that were read.
        seconds: since it began.
    """
    share = passed / total if total else 1.0
    filled = int(share * BAR_CHARACTERS)
    left = "?" if not passed else _duration(seconds * (total - passed) / passed)
    rate = records / seconds if seconds > 0 else 0.0
    bar = "#" * filled + "." * (BAR_CHARACTERS - filled)
    return f"[{bar}] {share:4.0%}  {records:,} records  {rate:,.0f}/s  {left} left"


def _duration(seconds: float) -> str:
    whole = round(seconds)
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}:{minutes:02}:{whole % 60:02}"


@contextmanager
def progress_shown() -> Iterator[Told]:
    """Show the progress meanwhile."""
    line = ProgressLine(terminal=sys.stderr.isatty())
    try:
        yield line.told
    finally:
        line.end()


def tally_rows(tally: Tally) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the table by type: the columns of fates that occur, and a row for each type."""
    fates = [fate for fate in _order() if tally.fates.get(fate)]
    rows = [
        (event_type, *(str(counts.get(fate, 0)) for fate in fates))
        for event_type, counts in sorted(tally.types.items())
    ]
    return ("type", *fates), rows


def _order() -> list[str]:
    from onceflow_processor.replay.fates import Fate  # noqa: PLC0415 - help must not load the processor

    return [fate.value for fate in Fate]


def stretch_objects(stretches: Sequence[Any]) -> list[dict[str, int]]:
    """Return stretches as what becomes JSON."""
    return [{"partition": one.partition, "from_offset": one.first, "to_offset": one.end} for one in stretches]
