"""Keeps the Kafka client's own log lines few and at the level that they have for us.

Rule: a broker that is away makes librdkafka say the same thing dozens of times a second; one line per client and kind
in ten seconds says it too, with the number of those that were left out.  A connection that failed is a warning: the
client tries again by itself, and whether anything was hurt by it is said by our own lines.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable

from onceflow_producer.repeat_limit import RepeatLimit

CLIENT_FORMAT = "%s [%s] %s"
"""How confluent_kafka hands a line of librdkafka over: kind, client, text."""

SUPPRESSED = "suppressed"
"""The attribute of a record, and the field of its line: how many like it were left out before."""

_FAILED_CONNECTION = "FAIL"
_CLIENT_NUMBER = re.compile(r"-\d+$")
_NUMBER = re.compile(r"(?<![^\s(])\d+")
_REPEATED = re.compile(r", \d+ identical error\(s\) suppressed")


class KafkaClientFilter(logging.Filter):
    """A filter for the handler that all libraries' records reach; those of other libraries pass as they are.

    Args:
        level: the least level that is written, looked at again after a record's level was changed.
        clock: monotonic, in seconds.
    """

    def __init__(self, level: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._level = level
        self._clock = clock
        self._lock = threading.Lock()
        self._limit = RepeatLimit()

    def filter(self, record: logging.LogRecord) -> bool:
        """Say whether the record is written; may change its level and tells how many were left out."""
        if (
            record.msg != CLIENT_FORMAT
            or not isinstance(record.args, tuple)
            or len(record.args) != CLIENT_FORMAT.count("%s")
        ):
            return True
        facility, client, text = map(str, record.args)
        if facility == _FAILED_CONNECTION and record.levelno > logging.WARNING:
            record.levelno, record.levelname = logging.WARNING, logging.getLevelName(logging.WARNING)
        if record.levelno < self._level:
            return False
        with self._lock:
            left_out = self._limit.admit(_kind(record.name, facility, client=client, text=text), now=self._clock())
        if left_out:
            setattr(record, SUPPRESSED, left_out)
        return left_out is not None


def _kind(logger: str, facility: str, *, client: str, text: str) -> tuple[str, ...]:
    """Return what makes two lines alike: clients that follow one another count as one, and times do not matter."""
    plain = _NUMBER.sub("#", _REPEATED.sub("", text))
    return (logger, facility, _CLIENT_NUMBER.sub("", client), plain)
