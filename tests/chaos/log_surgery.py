"""Takes records out of the middle of a topic: what a torn or lost transaction leaves behind.

Rule: the broker is dead meanwhile; whole batches of records go, as they stand in Kafka's log (https://kafka.apache.org/documentation/#recordbatch),
and what the broker derives from the log is deleted with them, so that it is derived anew.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

HEAD = struct.Struct(">qi")
"""Base offset and length; the length counts what follows it."""
ATTRIBUTES_AT = 21
CONTROL = 0x20
DERIVED = ("*.index", "*.timeindex", "*.txnindex", "*.snapshot")


def batches(log: bytes) -> Iterator[tuple[int, int, bool]]:
    """Yield (start, end, whether it is a marker of a transaction) of each batch."""
    at = 0
    while at + HEAD.size <= len(log):
        _, length = HEAD.unpack_from(log, at)
        end = at + HEAD.size + length
        if length <= 0 or end > len(log):
            return
        [attributes] = struct.unpack_from(">h", log, at + ATTRIBUTES_AT)
        yield at, end, bool(attributes & CONTROL)
        at = end


def take_out_of_the_middle(folder: Path) -> int:
    """Take one batch of records out of a partition's log, none of the first or last; return how many bytes went, 0 when it has too few."""
    [segment] = sorted(folder.glob("*.log"))
    log = segment.read_bytes()
    records = [(start, end) for start, end, is_marker in batches(log) if not is_marker]
    if len(records) < 3:
        return 0
    start, end = records[len(records) // 2]
    segment.write_bytes(log[:start] + log[end:])
    for pattern in DERIVED:
        for derived in folder.glob(pattern):
            derived.unlink()
    return end - start
