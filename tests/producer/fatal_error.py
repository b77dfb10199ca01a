"""Makes a client fail for good, by librdkafka's own test hook."""

from __future__ import annotations

import ctypes
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Producer

_OBJECT_HEAD_BYTES = 16
"""A Python object's reference count and type; the client's handle comes first behind them."""


def make_fatal(client: Producer | Consumer) -> bool:
    """Set the fatal error that a broken sequence of an idempotent producer sets; False for a client that is closed."""
    maps = Path("/proc/self/maps").read_text()
    library = ctypes.CDLL(next(line.split()[-1] for line in maps.splitlines() if "librdkafka" in line))
    library.rd_kafka_test_fatal_error.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p]
    handle = ctypes.c_void_p.from_address(id(client) + _OBJECT_HEAD_BYTES).value
    if handle is None:
        return False
    assert library.rd_kafka_test_fatal_error(handle, KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, b"planted") == 0
    return True
