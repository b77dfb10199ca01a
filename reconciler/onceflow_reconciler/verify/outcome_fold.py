"""Folds the outcome topic into blocks: in this process, or in another one while this one reads the events.

Rule: another process only saves time: whatever happens to it, this one can do the same itself, and then tells what is wrong.
"""

from __future__ import annotations

import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, cast

from onceflow_reconciler.verify.folding import OutcomeBlocks, outcome_words
from onceflow_reconciler.verify.page_lines import outcome_row_of
from onceflow_reconciler.verify.topic_scan import Bounds, opened
from onceflow_schemas.failure import Failure

BESIDE_RECORDS_MIN: Final = 100_000
"""With fewer records the start of another process costs more than it saves."""
# ``-P``: whatever lies in the working folder is no module of ours.
_COMMAND: Final = (sys.executable, "-P", "-c", f"from {__name__} import answer_beside; answer_beside()")

Blocks = Mapping[int, OutcomeBlocks]
"""By lane."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is folded.

    Args:
        kafka: librdkafka properties.
        group: a name at the broker; it is not joined.
        topic: of the outcomes.
        source: what ours say in ``ce_source``.
        first: where reading begins, by lane.
        bounds: what the logs hold.
    """

    kafka: Mapping[str, object] = field(repr=False)
    group: str
    topic: str
    source: str
    first: Mapping[int, int]
    bounds: Mapping[int, Bounds]

    @property
    def records_max(self) -> int:
        """At most so many records lie there."""
        return sum(max(0, one.high - self.first[lane]) for lane, one in self.bounds.items())


def fold_outcomes(asked: Asked, tell: Callable[[int], object]) -> Blocks:
    """Read the topic and fold it; ``tell`` is called with how many records a page had.

    Raises:
        Failure: the topic cannot be read.
    """
    blocks = {lane: OutcomeBlocks() for lane in asked.bounds}
    with opened(asked.kafka, topic=asked.topic, group=asked.group) as scan:
        for page in scan.messages(asked.first, asked.bounds):
            _fold(page, blocks, asked.source)
            tell(len(page))
    return blocks


class FoldBeside:
    """Another process that folds.

    Raises:
        OSError: it cannot be started.
    """

    def __init__(self, asked: Asked) -> None:
        # Asked on its standard input: properties of Kafka hold passwords, and everybody sees arguments.
        self._process = subprocess.Popen(_COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # noqa: S603 - our own interpreter
        assert self._process.stdin is not None, "it is a pipe"
        try:
            with self._process.stdin as asking:
                pickle.dump(asked, asking)
        except BaseException:
            self.close()
            raise

    def blocks(self) -> Blocks | None:
        """Wait for its answer; None where it has none."""
        assert self._process.stdout is not None, "it is a pipe"
        try:
            return cast("Blocks", pickle.load(self._process.stdout))  # noqa: S301 - what our own child says
        except (EOFError, OSError, pickle.UnpicklingError):
            return None

    def close(self) -> None:
        """End it, whatever it does."""
        self._process.kill()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._process.wait()


def answer_beside() -> None:
    """Fold what is asked on the standard input, and say it; of a failure nothing, since who asked finds it out too."""
    # Whoever interrupts the command means the process that started this one, and that ends it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    asked = pickle.load(sys.stdin.buffer)  # noqa: S301 - what our own parent asks
    with suppress(Failure, BrokenPipeError):
        pickle.dump(fold_outcomes(asked, lambda _: None), sys.stdout.buffer)


def _fold(page: Iterable[Any], blocks: Blocks, source: str) -> None:
    said_source = source.encode()
    names = {lane: b"%d" % lane for lane in blocks}
    for message in page:
        # The scan leaves out what has no place.
        lane, offset, headers = message.partition(), message.offset(), message.headers()
        key, value = message.key(), message.value()
        words = None
        if headers and key and value is not None:
            words = outcome_words(names[lane], key=key, value=value, headers=headers, source=said_source)
        if words is not None:
            blocks[lane].add(offset, *words)
            continue
        row = outcome_row_of(message, source)
        if row.seq is None:
            blocks[lane].add_foreign(offset)
        elif row.refill:
            blocks[lane].add_refill(offset, row.seq)
        else:
            blocks[lane].add(offset, row.seq, None)
