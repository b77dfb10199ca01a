"""What the consume thread and the worker pass to each other.

Rule: a Kafka consumer belongs to one thread and a database connection to another; they share nothing but the queues
here, so neither ever waits inside the other's client library.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from onceflow_processor.admission import Item
from onceflow_processor.position import Begin, LogBounds, Stop
from onceflow_processor.records import Partition


@dataclass(frozen=True, slots=True)
class Assigned:
    """Kafka gave us a partition, and this is what its log looks like; ``start_offset`` is for a first start."""

    partition: Partition
    generation: int
    topic_id: str
    bounds: LogBounds
    start_offset: int


@dataclass(frozen=True, slots=True)
class Revoked:
    """Kafka took a partition away; ``lost`` means without asking."""

    partition: Partition
    lost: bool


@dataclass(frozen=True, slots=True)
class Stopped:
    """The log of a partition contradicts its position."""

    partition: Partition
    stop: Stop


Notice = Assigned | Revoked | Stopped


@dataclass(frozen=True, slots=True)
class Read:
    """Worker -> consumer: begin to read a partition, for the generation that was assigned."""

    partition: Partition
    generation: int
    begin: Begin


@dataclass(frozen=True, slots=True)
class Renew:
    """Worker -> consumer: look at the log of a partition again and announce it as assigned anew.

    ``prove`` asks for a synchronous commit of the group first, which fails when the group has given the partition to
    somebody else; ``next_offset`` is what it commits.
    """

    partition: Partition
    prove: bool = False
    next_offset: int = 0


@dataclass(frozen=True, slots=True)
class Done:
    """Worker -> consumer: partitions are done up to these offsets (shown to lag tools)."""

    next_offsets: dict[Partition, int]


Command = Read | Renew | Done


class Handoff:
    """The queues between the two threads, bounded in records and bytes."""

    def __init__(self, *, records_max: int, bytes_max: int) -> None:
        self._changed = threading.Condition()
        self._items: deque[Item] = deque()
        self._bytes = 0
        self._notices: deque[Notice] = deque()
        self._commands: deque[Command] = deque()
        self._records_max = records_max
        self._bytes_max = bytes_max
        self._busy = False

    def room(self) -> int:
        """Return how many records may be put now."""
        with self._changed:
            return 0 if self._bytes >= self._bytes_max else max(0, self._records_max - len(self._items))

    def wait_for_room(self, timeout_seconds: float) -> bool:
        """Wait until there is room or a command; False when neither came in time."""
        with self._changed:
            return self._changed.wait_for(
                lambda: (
                    bool(self._commands) or (self._bytes < self._bytes_max and len(self._items) < self._records_max)
                ),
                timeout_seconds,
            )

    def put_items(self, items: Iterable[Item]) -> None:
        """Consumer -> worker."""
        with self._changed:
            for item in items:
                self._items.append(item)
                self._bytes += item.record.size_bytes()
            self._changed.notify_all()

    def put_notice(self, notice: Notice) -> None:
        """Consumer -> worker."""
        with self._changed:
            self._notices.append(notice)
            self._changed.notify_all()

    def put_command(self, command: Command) -> None:
        """Worker -> consumer."""
        with self._changed:
            self._commands.append(command)
            self._changed.notify_all()

    def take_commands(self) -> list[Command]:
        """Take all commands."""
        with self._changed:
            taken = list(self._commands)
            self._commands.clear()
            return taken

    def take_notices(self) -> list[Notice]:
        """Take all notices."""
        with self._changed:
            taken = list(self._notices)
            self._notices.clear()
            return taken

    def take_batch(self, *, records_max: int, bytes_max: int, wait_seconds: float) -> list[Item]:
        """Take the items of a batch, waiting for the first; empty when a notice or nothing came.

        The taker counts as busy until ``finish_batch``.
        """
        with self._changed:
            self._changed.wait_for(lambda: bool(self._items or self._notices), wait_seconds)
            if self._notices:
                return []
            taken: list[Item] = []
            size = 0
            while self._items and len(taken) < records_max and (not taken or size < bytes_max):
                item = self._items.popleft()
                size += item.record.size_bytes()
                taken.append(item)
            self._bytes -= size
            self._busy = bool(taken)
            self._changed.notify_all()
            return taken

    def finish_batch(self) -> None:
        """The batch taken last is done or given up."""
        with self._changed:
            self._busy = False
            self._changed.notify_all()

    def wait_until_idle(self, timeout_seconds: float) -> bool:
        """Wait until no batch is in hand; False when it took longer."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._busy, timeout_seconds)

    def wake(self) -> None:
        """Wake both sides, as at the end of the process."""
        with self._changed:
            self._changed.notify_all()
