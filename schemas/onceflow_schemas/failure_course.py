"""What is done about a failure, as one pure table over error classes and SQLSTATEs; and how long a retry waits.

Rule: whoever is at fault pays.  A fault of the moment reruns the batch, a dependency of the handler costs its event a wait,
a fault of the event or the handler costs that event, a database that is away costs nobody anything but time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Course(StrEnum):
    """What is done."""

    RERUN = "rerun"  # The same batch again, with jitter; an event that meets it again and again is parked.
    PARK = "park"  # The event waits and is tried again; the events of its key wait behind it.
    QUARANTINE = "quarantine"  # After its tries the event waits for a person, and its key with it.
    PAUSE = "pause"  # All wait until the dependency is there again; nobody is at fault.
    TAKE_OVER = "take over"  # Somebody else has the partition or the key now: drop it, and look again.
    STOP = "stop"  # Only a person can change it, and is told what: processor and workers end, the relay goes on trying.


@dataclass(frozen=True, slots=True)
class Row:
    """One row: a SQLSTATE or the beginning of one, or a class as ``package.Class``; ``why`` is for people."""

    match: str
    course: Course
    why: str


SQLSTATES = (
    Row("OF001", Course.TAKE_OVER, "another epoch holds the partition"),
    Row("OF002", Course.QUARANTINE, "the handler ended the transaction of the batch"),
    Row("OF003", Course.RERUN, "a fact was taken meanwhile"),
    Row("OF004", Course.PAUSE, "a lane hands out no sequence"),
    Row("OF006", Course.RERUN, "an operation is known with other arguments"),
    Row("OF007", Course.TAKE_OVER, "somebody else redrives the key, or has decided about it"),
    Row("40001", Course.RERUN, "serialisation failure"),
    Row("40P01", Course.RERUN, "deadlock"),
    Row("40003", Course.RERUN, "statement completion unknown"),
    Row("55P03", Course.RERUN, "lock not available in time"),
    Row("57014", Course.RERUN, "query canceled"),
    Row("25P03", Course.RERUN, "idle in transaction for too long"),
    Row("25P04", Course.RERUN, "transaction took too long"),
    Row("42P05", Course.STOP, "a pooler shares prepared statements: set database.prepared to false"),
    Row("26000", Course.STOP, "a pooler lost a prepared statement: set database.prepared to false"),
    Row("25006", Course.PAUSE, "the database is read-only"),
    Row("53", Course.PAUSE, "disk full, out of memory, too many connections"),
    Row("57P", Course.PAUSE, "shutdown, crash, cannot connect now"),
    Row("08", Course.PAUSE, "the connection to the database failed"),
    Row("58", Course.PAUSE, "an error of the database's machine"),
    Row("XX", Course.PAUSE, "an internal error of the database"),
)
"""The longest match counts; any other state is the event's or the handler's doing: quarantine."""

CLASSES = (
    Row("onceflow_processor.RetryIn", Course.PARK, "the handler asks for it"),
    Row("onceflow_processor.Quarantine", Course.QUARANTINE, "the handler asks for it, at once"),
    Row("builtins.ConnectionError", Course.PARK, "a connection of the handler failed"),
    Row("builtins.TimeoutError", Course.PARK, "a call of the handler took too long"),
    Row("psycopg.OperationalError", Course.PARK, "a connection of the handler to another database failed"),
    Row("socket.gaierror", Course.PARK, "a name could not be resolved"),
    Row("requests.ConnectionError", Course.PARK, "a connection of the handler failed"),
    Row("requests.Timeout", Course.PARK, "a call of the handler took too long"),
    Row("urllib3.TimeoutError", Course.PARK, "a call of the handler took too long"),
    Row("urllib3.ProtocolError", Course.PARK, "a connection of the handler broke"),
    Row("urllib3.MaxRetryError", Course.PARK, "a connection of the handler failed"),
    Row("httpx.TransportError", Course.PARK, "a connection of the handler failed, or took too long"),
    Row("aiohttp.ClientConnectionError", Course.PARK, "a connection of the handler failed"),
    Row("stripe.APIConnectionError", Course.PARK, "Stripe could not be reached"),
    Row("stripe.RateLimitError", Course.PARK, "Stripe asks to slow down"),
)
"""By class or base class and the package that it comes from; any other class: quarantine."""


def course_of_sqlstate(sqlstate: str) -> Course:
    """Return what is done about a SQLSTATE that a statement ended with."""
    rows = [row for row in SQLSTATES if sqlstate.startswith(row.match)]
    return max(rows, key=lambda row: len(row.match)).course if rows else Course.QUARANTINE


def course_of_class(names: Sequence[str]) -> Course:
    """Return what is done about an error without a SQLSTATE.

    Args:
        names: the qualified names of its class and the bases, in the order of method resolution; of a module's name
            only the package counts, because libraries move their classes.
    """
    short = {f"{name.partition('.')[0]}.{name.rpartition('.')[2]}" for name in names}
    return next((row.course for row in CLASSES if row.match in short), Course.QUARANTINE)


_DOUBLINGS_MAX = 60


@dataclass(frozen=True, slots=True)
class RetryRules:
    """How parked events are tried again; ``attempts_max`` tries from parking, then a person must look."""

    wait_seconds_min: float = 1.0
    wait_seconds_max: float = 3_600.0
    attempts_max: int = 30

    def wait_seconds(self, attempts: int, *, share: float, asked_seconds: float | None = None) -> float:
        """Return how long an event waits before it is tried (again): full jitter over a doubling span, above a minimum.

        Args:
            attempts: how often it was tried from parking.
            share: a random number from 0 to 1, which spreads the retries.
            asked_seconds: what the handler asked for; it is followed.
        """
        if asked_seconds is not None:
            return asked_seconds
        doublings = min(attempts, _DOUBLINGS_MAX)
        span = min(self.wait_seconds_max, self.wait_seconds_min * 2.0 ** (doublings + 1)) - self.wait_seconds_min
        return self.wait_seconds_min + share * max(0.0, span)
