"""How the handlers of an event fail, and what is counted of it.

Rule: these are raised inside one attempt and end in its batch runner; none of them leaves the processor.
"""

from __future__ import annotations

import structlog

from onceflow_processor.admission import Fault, Item
from onceflow_processor.breaker import Breaker
from onceflow_schemas.failure_course import Course

TRIES_MAX = 3
SAID_CODES = frozenset({"retry_asked", "quarantine_asked", "reading", "read_failed"})
"""What handlers ask for themselves, or what was found before they ran: it takes no further tries, and is no sign of a broken
handler."""

ERROR_NAME_CHARACTERS_MAX = 100

log = structlog.get_logger("onceflow.processor")


class HandlerFailed(Exception):
    """A handler failed: the batch is rolled back and run again with savepoints, or to the savepoint where there is one."""

    def __init__(self, item: Item, fault: Fault, *, final: bool = False, touched: bool = True) -> None:
        """``touched`` says that the event's handlers may have done something in the database."""
        super().__init__(fault.code)
        self.item = item
        self.fault = fault
        self.final = final
        self.touched = touched

    @property
    def spoils(self) -> bool:
        """Whether the connection is of no use any more: a query may have been stopped in its middle."""
        return self.fault.code == "handler_timeout"


class HandlerWaits(Exception):
    """Most recent events of a handler fail alike: ``item`` is neither done nor quarantined, its partition waits."""

    def __init__(self, item: Item, fault: Fault) -> None:
        super().__init__(fault.code)
        self.item = item
        self.fault = fault


class ConnectionLost(Exception):
    """The connection went away while the handlers of ``item`` ran: its doing, or the database's."""

    def __init__(self, item: Item) -> None:
        super().__init__("the connection was lost while a handler ran")
        self.item = item


class CutBefore(Exception):
    """The batch is cut before ``item``: it takes too long, or what came before must be committed first."""

    def __init__(self, item: Item) -> None:
        super().__init__("the batch is cut")
        self.item = item


def log_failure(failure: HandlerFailed) -> None:
    """Say which event failed and how, without what it holds: the message is with the traceback in quarantine."""
    item, fault = failure.item, failure.fault
    say = log.debug if fault.read is not None else log.warning
    say(
        "event_waits" if fault.read is not None else "handler_failed",
        handler=fault.handler,
        code=fault.code,
        error=fault.detail.partition(":")[0][:ERROR_NAME_CHARACTERS_MAX],
        event_id=None if item.event is None else item.event.identity.event_id,
        partition=str(item.record.partition),
        offset=item.record.offset,
        tries=item.tries,
    )


def count_try(failure: HandlerFailed, breaker: Breaker) -> None:
    """Count one failed try of an event; after the last one its fault is final.  One that will be parked is tried once.

    Raises:
        HandlerWaits: too many events of this handler have failed alike; the event is to be tried again later.
    """
    item, fault = failure.item, failure.fault
    item.tries += 1
    waits_anyway = fault.course is Course.PARK
    said = fault.code in SAID_CODES
    if not failure.final and not waits_anyway and not said and item.tries < TRIES_MAX:
        return
    if fault.handler is not None and not said and breaker.failed(fault.handler, kind_of(fault)):
        item.tries = 0
        raise HandlerWaits(item, fault)
    item.fault = fault


def kind_of(fault: Fault) -> str:
    """Return what makes two faults alike."""
    return f"{fault.code} {fault.detail.partition(':')[0]}"


def failure_group(event_type: str, fault: Fault) -> str:
    """Return the group of a failure as people count them: type, handler, and error class or code."""
    cause = fault.code if fault.traceback is None else fault.detail.partition(":")[0][:ERROR_NAME_CHARACTERS_MAX]
    return f"{event_type} {fault.handler or '-'} {cause}"
