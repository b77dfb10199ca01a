"""What the exit status of every command means.

Rule: a script can tell who must act from the number alone; the code of the failure says the rest.  The table is
held against ``docs/operating/exit-codes.md`` by a test.
"""

from __future__ import annotations

from onceflow_schemas.failure import Failure, Misconfigured, Refused, Unavailable

OK = 0
CHECK_FAILED = 1
USAGE = 2
SETTINGS = 3
SCHEMA = 4
DEPENDENCY = 5
INTERRUPTED = 130
"""As shells say it: 128 and the number of SIGINT; typer ends with the same."""

MEANINGS = {
    OK: "done, or stopped as asked",
    CHECK_FAILED: "the check failed, or what was asked for was refused",
    USAGE: "the command line is wrong",
    SETTINGS: "a setting, the handlers or the data folder cannot be used",
    SCHEMA: "the database schema is not that of this release",
    DEPENDENCY: "Kafka, PostgreSQL or another dependency refused or is away",
    INTERRUPTED: "interrupted by Ctrl-C before it was done, or before a service was ready",
}


class PartFailed(Unavailable):
    """A part of ``onceflow up`` could not be started; ``exit_status`` is how its process ended, 0 when it did not."""

    def __init__(self, message: str, *, exit_status: int) -> None:
        super().__init__("service_failed", message)
        self.exit_status = exit_status


_USAGE_CODES = frozenset({"command_line_wrong", "replay_flags_refused"})
_SCHEMA_CODES = frozenset(
    {"schema_missing", "schema_behind", "schema_ahead", "schema_changed", "migration_failed", "lanes_missing"}
)
_DEPENDENCY_CODES = frozenset(
    {
        "broker_refused",
        "database_unsafe",
        "download_failed",
        "service_failed",
        "topic_changed",
        "topic_mismatch",
        "topic_missing",
    }
)


def exit_code(failure: Failure) -> int:
    """Return the exit status of a command that ended with this failure."""
    if isinstance(failure, PartFailed) and failure.exit_status in (SETTINGS, SCHEMA):
        return failure.exit_status
    if failure.code in _USAGE_CODES:
        return USAGE
    if isinstance(failure, Refused):
        return CHECK_FAILED
    if failure.code in _SCHEMA_CODES:
        return SCHEMA
    if isinstance(failure, Misconfigured) and failure.code not in _DEPENDENCY_CODES:
        return SETTINGS
    return DEPENDENCY
