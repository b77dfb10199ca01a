"""When a part of the system is started again, and when there is no point in it: values in, values out.

Rule: the first restart comes at once, since a killed process must not be missed; repeated ones come slower and slower
with jitter, so that a broken part does not eat the machine.  A part that has worked once is never given up.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from onceflow.exit_codes import SCHEMA, SETTINGS, USAGE

FIRST_DELAY_SECONDS = 0.05
DELAY_FACTOR = 2.0
DELAY_SECONDS_MAX = 10.0
JITTER_SHARE = 0.5
STABLE_SECONDS = 20.0
"""A part that has run so long starts with the first delay again."""

FAILURES_BEFORE_READY_MAX = 6
NOT_WORTH_REPEATING = frozenset({USAGE, SETTINGS, SCHEMA})
"""Exit statuses that another try cannot change."""

Phase = Literal["down", "starting", "ready"]


@dataclass(frozen=True, slots=True)
class Track:
    """What is known about one part; times are those of a monotonic clock, in seconds.

    Attributes:
        phase: ``down`` until it is started, ``starting`` until it says that it is ready.
        since: when the phase began.
        failures: ends in a row without a stable time in between.
        restart_at: when a part that is down is started.
        ever_ready: it has worked once.
    """

    phase: Phase = "down"
    since: float = 0.0
    failures: int = 0
    restart_at: float = 0.0
    ever_ready: bool = False


def restart_delay(failures: int, *, jitter: float) -> float:
    """Return the seconds to wait before the next start.

    Args:
        failures: ends in a row, this one included; at least 1.
        jitter: from 0 to 1, random.
    """
    if failures <= 1:
        return FIRST_DELAY_SECONDS
    longest = min(DELAY_SECONDS_MAX, FIRST_DELAY_SECONDS * DELAY_FACTOR**failures)
    return longest * (1 - JITTER_SHARE * jitter)


def due(track: Track, now: float) -> bool:
    """Say whether a part is to be started now."""
    return track.phase == "down" and now >= track.restart_at


def started(track: Track, now: float) -> Track:
    """Return the track of a part that was just started."""
    return replace(track, phase="starting", since=now)


def became_ready(track: Track, now: float) -> Track:
    """Return the track of a part that says that it is ready."""
    return replace(track, phase="ready", since=now, ever_ready=True)


def ended(track: Track, now: float, *, jitter: float) -> Track:
    """Return the track of a part that has ended, with the time of its next start."""
    stable = track.phase == "ready" and now - track.since >= STABLE_SECONDS
    failures = 1 if stable else track.failures + 1
    return replace(
        track, phase="down", since=now, failures=failures, restart_at=now + restart_delay(failures, jitter=jitter)
    )


def hopeless(track: Track, exit_code: int) -> bool:
    """Say whether a part that has just ended is given up, which also ends the start of the whole."""
    if track.ever_ready:
        return False
    return exit_code in NOT_WORTH_REPEATING or track.failures >= FAILURES_BEFORE_READY_MAX
