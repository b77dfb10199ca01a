"""Codes of replays: what is refused when a person asks for one.

Rule: as in ``onceflow_schemas.failure``, which takes this table in.
"""

from __future__ import annotations

from onceflow_schemas.failure_kind import kinds

_ASK_AGAIN = "Nothing was read or moved; mend what the message names and ask again."

REPLAY_FAILURES = kinds(
    "operator",
    ("replay_refused", "A replay was asked for with several faults.", _ASK_AGAIN),
    (
        "replay_topic_refused",
        "The topic to replay is not an input of the settings.",
        "Name topics.events or one of [[inputs]]; a replay of another topic could not be told from a forgery.",
    ),
    (
        "replay_partition_refused",
        "The topic to replay has no such partition.",
        "`onceflow progress show` lists those that there are.",
    ),
    (
        "replay_range_refused",
        "The range to replay is not in the log, or its end is before its start.",
        "`onceflow progress show` tells what the log holds; nothing is clamped.",
    ),
    (
        "replay_run_refused",
        "A replay that was begun cannot be taken up again.",
        "Look at its row in onceflow.replay_run; a new replay of what is left is always possible.",
    ),
    (
        "replay_held",
        "A replay cannot go on now: a lane is closed, or most recent events of a handler fail alike.",
        "Mend what the message names, then `onceflow replay --resume` goes on where it stopped.",
    ),
    (
        "previous_not_recorded",
        "A handler read event.previous of an event that runs again, and what had been applied before is not recorded.",
        'Leave the handler out of reruns with replay="never", or have it decide without event.previous.',
    ),
    ("replay_flags_refused", "The flags of a replay contradict each other.", _ASK_AGAIN),
)
