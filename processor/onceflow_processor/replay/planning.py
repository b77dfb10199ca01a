"""From what a person asks for to the offsets that are read, by asking the broker.

Rule: every fault is found before anything is read, and the end is fixed then: a replay beside live traffic ends.
"""

from __future__ import annotations

from collections.abc import Sequence

from onceflow_processor.log_reader import LogReader
from onceflow_processor.records import Partition
from onceflow_processor.replay.request import Fault, Request, Stretch, flag_faults, partition_faults, stretch_of
from onceflow_schemas.failure import Refused


def plan(reader: LogReader, request: Request, *, topics: Sequence[str], count: int | None) -> list[Stretch]:
    """Return the stretches to read, by partition.

    Args:
        reader: of the cluster.
        request: what was asked for.
        topics: the event topics of the settings.
        count: the partitions of the topic; None when it is none of them, so that nothing was asked about it.

    Raises:
        Refused: with every fault.
        Failure: the broker did not answer, or refused.
    """
    faults = flag_faults(request, topics=topics)
    stretches = []
    if count is not None:
        faults += partition_faults(request, count=count)
        for number in request.partitions or range(count):
            if 0 <= number < count:
                found = _stretch(reader, request, number)
                if isinstance(found, Stretch):
                    stretches.append(found)
                else:
                    faults += found
    refuse(faults)
    return stretches


def refuse(faults: Sequence[Fault]) -> None:
    """Refuse a request when it has faults.

    Raises:
        Refused: with every fault; under its own code when there is only one kind of them.
    """
    if not faults:
        return
    codes = {fault.code for fault in faults}
    lines = tuple(f"{fault.code}: {fault.detail}" for fault in faults)
    if len(faults) == 1:
        raise Refused(faults[0].code, faults[0].detail)
    raise Refused(codes.pop() if len(codes) == 1 else "replay_refused", "; ".join(lines), faults=lines)


def _stretch(reader: LogReader, request: Request, number: int) -> Stretch | list[Fault]:
    partition = Partition(request.topic, number)
    bounds = reader.bounds(partition)
    offsets = [
        None if moment is None else reader.offset_at(partition, moment=moment, bounds=bounds)
        for moment in (request.from_time, request.to_time)
    ]
    return stretch_of(request, partition=number, bounds=bounds, from_time_offset=offsets[0], to_time_offset=offsets[1])
