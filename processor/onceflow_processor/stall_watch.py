"""Finds partitions that have records which the client does not fetch.

Rule: a client that stands still must not look like one that has nothing to do.  librdkafka keeps the newest leader epoch
that it has seen; a cluster that was put back has older ones, and then it knows no leader any more and fetches nothing,
without an error, for ever.  A new client reads, and the fingerprint of its take-over tells what happened.

A client stands still when the broker has more than the last fetch saw (which counts markers too), or when it knows no
leader, twice in a row, and nothing has moved in between.  Partitions whose log is still to be looked at are watched too:
without a leader that look would fail for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from onceflow_processor.records import Partition

LOOK_SECONDS = 10.0
"""Between two looks; a stall is found after two of them."""
ASK_SECONDS_MAX = 1.0
_STATE = KafkaError._STATE  # noqa: SLF001 - the library's names of its local errors begin so.
_NOTHING = -1
"""Stands for the end of a log of which nothing was fetched yet."""
_NO_LEADER = -2
"""Stands for the end of a log that the client cannot ask for."""


class StallWatch:
    """Looks now and then; belongs to the consume thread."""

    def __init__(self) -> None:
        self._look_at = 0.0
        self._behind: dict[Partition, int] = {}

    def forget(self) -> None:
        """Begin anew: what is paused is not fetched, and that is no stall."""
        self._behind.clear()

    def look(self, consumer: Consumer, watched: Callable[[], Mapping[Partition, bool]], *, now: float) -> None:
        """Look when it is time.

        Args:
            consumer: which has all these partitions now.
            watched: tells of each whether it is fetched; called only when it is time.
            now: monotonic seconds.

        Raises:
            KafkaException: one of them stands still; a new consumer is needed.
        """
        if now < self._look_at:
            return
        self._look_at = now + LOOK_SECONDS
        former, self._behind = self._behind, {}
        for partition, is_fetched in watched().items():
            try:
                end = _end_of_last_fetch(consumer, TopicPartition(partition.topic, partition.number))
            except KafkaException:
                # A broker that is away is told by others, and may cost one wait, not one per partition.
                return
            if end is not None and (is_fetched or end == _NO_LEADER):
                self._behind[partition] = end
                if former.get(partition) == end:
                    raise KafkaException(KafkaError(_STATE, f"{partition} has records that the client does not fetch"))


def _end_of_last_fetch(consumer: Consumer, place: TopicPartition) -> int | None:
    """Return where the client believes the log to end, when that is not so; None when it is.

    Raises:
        KafkaException: the broker did not answer.
    """
    # In spite of its type the client returns None when the time is over.
    fetched = cast("tuple[int, int] | None", consumer.get_watermark_offsets(place, cached=True))
    believed = _NOTHING if fetched is None else fetched[1]
    try:
        asked = consumer.get_watermark_offsets(place, timeout=ASK_SECONDS_MAX, cached=False)
    except KafkaException as error:
        if error.args[0].code() == KafkaError._UNKNOWN_PARTITION:  # noqa: SLF001 - the library's own names begin so.
            return _NO_LEADER
        raise
    there = cast("tuple[int, int] | None", asked)
    if there is None:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))  # noqa: SLF001 - as above
    return believed if there[1] > believed else None
