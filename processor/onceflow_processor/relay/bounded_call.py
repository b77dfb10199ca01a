"""A call of the Kafka client that may never come back, with an end to the waiting.

Rule: no wait is without a limit, also where a library breaks its word.  ``send_offsets_to_transaction`` of librdkafka
2.16 does not look at its timeout while the group's coordinator is away (librdkafka #5456; seen here after a
broker's kill -9: it hung for minutes beside a broker that was long back, and no signal handler ran meanwhile).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from onceflow_schemas.failure import Unavailable

ABANDONED_MAX: Final = 16
"""Each abandoned call holds a producer with its threads; beyond this only a new process can free them."""
_NAME: Final = "kafka-call"


def call_within(call: Callable[[], object], *, seconds: float) -> None:
    """Run a call in a thread of its own and wait for it.

    Args:
        call: must not be used again when it did not come back in time: it goes on, and its end is not looked at.
        seconds: how long to wait.

    Raises:
        Unavailable: the call did not come back.
        RuntimeError: too many calls never came back; the process must end.
        BaseException: what the call raised.
    """
    raised: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:  # noqa: BLE001 - it is raised again, in the caller's thread
            raised.append(error)

    thread = threading.Thread(target=run, name=_NAME, daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        if abandoned() > ABANDONED_MAX:
            raise RuntimeError("too many calls of the Kafka client never came back")
        raise Unavailable("broker_unavailable", "a call of the Kafka client did not come back in time")
    if raised:
        raise raised[0]


def abandoned() -> int:
    """Return how many calls are still out."""
    return sum(thread.name == _NAME for thread in threading.enumerate())
