"""Fences the broker that was killed, before the same node starts again.

Rule: a broker with an unclean end starts only when the cluster's metadata calls it fenced.  A node that is broker and
controller at once otherwise takes itself for the leader while it cannot be reached yet; Kafka 4.4 then loads prepared
commits, finds no leader for their markers, takes the partitions for deleted and calls the transactions complete.  A
commit that was confirmed is lost that way, in 8 of 8 kills right after the confirmation (docs/decisions/0016).
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from onceflow.embedded.broker_properties import LOG_FOLDER

CLEAN_END: Final = ".kafka_cleanshutdown"
"""Written by the broker at the end of a clean stop and removed at its next start; a clean stop fences by itself."""
ACTIVE_SECONDS_MAX: Final = 45.0
FENCE_SECONDS_MAX: Final = 10.0
"""From the controller's activation on; it takes a fraction of a second."""
SETTLE_SECONDS: Final = 0.2
"""The controller says it when it hands the record to its log, which writes within 25 ms and says nothing; that the log's
file grows proves nothing, since the activation and a controller's idle records are written there too."""
POLL_SECONDS: Final = 0.05

_ACTIVE = re.compile(r"Becoming the active controller at epoch")
_REGISTRATION = re.compile(r"Replayed (?:RegisterBroker|BrokerRegistrationChange)Record.*?\bfenced=(-?\w+)")
_MEANING = {"true": True, "1": True, "false": False, "-1": False}
"""The first record says it as a truth value, the second as a change, where 0 is none."""


def ended_unclean(kafka: Path) -> bool:
    """Say whether the broker of this folder has run and has not ended in order.

    Formatting makes the folder of the metadata with a checkpoint in it; its log begins with the first run.
    """
    log = kafka / LOG_FOLDER
    return any(log.glob("__cluster_metadata-0/*.log")) and not (log / CLEAN_END).exists()


def is_fenced(said: str) -> bool | None:
    """Read the log of a controller: whether the broker is fenced; None while the controller is not active.  Pure."""
    if not _ACTIVE.search(said):
        return None
    known = [_MEANING[word] for word in _REGISTRATION.findall(said) if word in _MEANING]
    # A node that was never registered has nothing to fence.
    return known[-1] if known else True


def wait_fenced(read_log: Callable[[], str], *, ends_within: Callable[[float], bool]) -> bool:
    """Wait until the controller has fenced the broker; False when it ended first or it took too long.

    Args:
        read_log: returns what the controller has said.
        ends_within: waits for the controller's end for so many seconds; True when it has ended.
    """
    started = time.monotonic()
    active_at: float | None = None
    while not ends_within(POLL_SECONDS):
        now = time.monotonic()
        fenced = is_fenced(read_log())
        if fenced:
            return not ends_within(SETTLE_SECONDS)
        if fenced is not None and active_at is None:
            active_at = now
        limit = started + ACTIVE_SECONDS_MAX if active_at is None else active_at + FENCE_SECONDS_MAX
        if now >= limit:
            return False
    return False
