"""Reads the next rows of a lane and makes them into records; the next batch while the last one is on its way.

Rule: a batch is dense, beginning right after the sequence that it was asked for; what cannot be published ends it and
is named.  What was read ahead is used only where it begins at that sequence and is not longer than what is wanted.
"""

from __future__ import annotations

from dataclasses import dataclass

from onceflow_processor.relay.cursor import Disagrees
from onceflow_processor.relay.encoding import Encoder, Prepared, Unencodable
from onceflow_processor.relay.lane_store import LaneStore


@dataclass(frozen=True, slots=True)
class Batch:
    """Records in sequence order, and what stands right behind them where that cannot be published."""

    records: list[Prepared]
    fault: Disagrees | None


@dataclass(frozen=True, slots=True)
class Question:
    """Which rows are wanted: after a sequence, at most so many, values of about so many bytes together."""

    lane: int
    after_seq: int
    rows_max: int
    bytes_max: int


def unpublishable(seq: int, reason: str) -> Disagrees:
    """Return what is said of a lane that stands in front of an outcome which cannot be published."""
    return Disagrees("unpublishable", f"sequence {seq}: {reason}")


class BatchReader:
    """Batches of one deployment's lanes; holds at most one batch per lane that was read ahead."""

    def __init__(self, store: LaneStore, *, deployment: str) -> None:
        self._store = store
        self._encoder = Encoder(deployment=deployment)
        self._ahead: dict[int, tuple[int, Batch]] = {}

    def take(self, question: Question) -> Batch:
        """Return the batch; from memory when it was read ahead."""
        after_seq, batch = self._ahead.pop(question.lane, (None, None))
        if batch is not None and after_seq == question.after_seq and len(batch.records) <= question.rows_max:
            return batch
        return self._read(question)

    def read_ahead(self, question: Question) -> None:
        """Read a batch that will probably be asked for next."""
        self._ahead[question.lane] = (question.after_seq, self._read(question))

    def forget(self, lane: int) -> None:
        """Drop what was read ahead: the lane's rows may have been changed."""
        self._ahead.pop(lane, None)

    def _read(self, question: Question) -> Batch:
        page = self._store.page(
            question.lane, after_seq=question.after_seq, rows_max=question.rows_max, bytes_max=question.bytes_max
        )
        records: list[Prepared] = []
        encode, expected = self._encoder.encode, question.after_seq
        for row in page:
            expected += 1
            if row.seq != expected:
                return Batch(records, _missing(expected))
            prepared = encode(row)
            if isinstance(prepared, Unencodable):
                return Batch(records, unpublishable(expected, prepared.reason))
            records.append(prepared)
        return Batch(records, None if records else _missing(expected + 1))


def _missing(seq: int) -> Disagrees:
    return Disagrees("diverged", f"the database has no outcome with sequence {seq}")
