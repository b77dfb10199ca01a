"""Which sequences of a lane its partition lacks.  Pure.

Rule: outcomes stand in the order of their sequence; a refill repeats an old one and fills its hole.  What lies before the first
record of a log whose start has moved is retention's, and no hole.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from onceflow_processor.relay.cursor import OutcomeRecord, TailRecord

HOLES_MAX: Final = 10_000
RECORDS_MAX: Final = 5_000_000


@dataclass(frozen=True, slots=True)
class Scan:
    """What was found: the sequences that are missing, how many records were read, and why the rest is not known (or empty)."""

    missing: list[int]
    records: int
    fault: str


def find_holes(records: Iterable[TailRecord], *, from_start: bool, published: int) -> Scan:
    """Walk through a lane's records.

    Args:
        records: in the order of their offsets.
        from_start: True when the log still has its first record, so that sequence 1 must be there.
        published: the last sequence that must be there; what comes later is the relay's.
    """
    expected = 1 if from_start else None
    missing: set[int] = set()
    number = 0
    for number, record in enumerate(records, start=1):
        if number > RECORDS_MAX:
            return Scan(sorted(missing), number, f"more than {RECORDS_MAX} records")
        if not isinstance(record, OutcomeRecord):
            return Scan(sorted(missing), number, f"the record at offset {record.offset} is no outcome of this lane")
        if record.refill:
            missing.discard(record.seq)
            continue
        expected = record.seq if expected is None else expected
        if record.seq < expected:
            return Scan(sorted(missing), number, f"offset {record.offset} has sequence {record.seq} again")
        if record.seq - expected + len(missing) > HOLES_MAX:
            return Scan(sorted(missing), number, f"more than {HOLES_MAX} outcomes are missing")
        missing.update(range(expected, record.seq))
        expected = record.seq + 1
    return Scan(sorted(seq for seq in missing if seq <= published), number, "")
