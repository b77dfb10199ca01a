"""Events in whose handlers the connection is lost again and again: a handler may be what ends it.

Rule: an event is given up only when nothing of it, and in its turn nothing behind it, was done between the losses.  Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

from onceflow_processor.admission import Fault, Item
from onceflow_processor.position import Position
from onceflow_processor.records import Partition

LOST_CONNECTIONS_MAX = 3
"""An event in whose handlers the connection was lost so often, with nothing done in between, is quarantined."""


class LostConnections:
    """How often the connection was lost in the handlers of one record, by partition and offset."""

    def __init__(self) -> None:
        self._times: dict[tuple[Partition, int], int] = {}

    def note(self, item: Item) -> int:
        """Count one loss in the handlers of an item; return how many there were."""
        key = (item.record.partition, item.record.offset)
        self._times[key] = self._times.get(key, 0) + 1
        return self._times[key]

    def forget_done(self, positions: Mapping[Partition, Position]) -> None:
        """Forget the records before these positions."""
        for partition, offset in list(self._times):
            position = positions.get(partition)
            if position is not None and offset < position.next_offset:
                del self._times[partition, offset]

    def forget(self, item: Item) -> None:
        """Forget an item that is done."""
        self._times.pop((item.record.partition, item.record.offset), None)

    def judge(self, item: Item) -> None:
        """Give an item its fault when its handlers have cost too many connections."""
        times = self._times.get((item.record.partition, item.record.offset), 0)
        if times >= LOST_CONNECTIONS_MAX and item.fault is None:
            detail = f"the connection was lost {times} times while this event was handled"
            item.fault = Fault("handler_broke_transaction", detail, blocks=True)
