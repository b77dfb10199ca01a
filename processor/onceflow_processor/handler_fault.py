"""What a handler raised, as the fault of its event.

Rule: the table of ``onceflow_schemas.failure_course`` decides; an error that a handler wrapped is looked for in what it named as
its cause.
"""

from __future__ import annotations

import traceback as traceback_module
from collections.abc import Iterator

from onceflow_processor.admission import Fault
from onceflow_processor.handler_words import Quarantine, RetryIn
from onceflow_processor.sqlstates import sqlstate_of
from onceflow_schemas.failure import Refused
from onceflow_schemas.failure_course import Course, course_of_class, course_of_sqlstate

TRACEBACK_CHARACTERS_MAX = 8_000
_CAUSES_MAX = 20

_PASSES = frozenset({Course.RERUN, Course.PAUSE, Course.PARK})
"""What passes by itself; an event that meets it again and again in its own handler waits alone."""


def fault_of(error: BaseException, *, handler: str) -> Fault:
    """Return the fault of the event whose handler raised an error.

    Args:
        error: what was raised.
        handler: the handler's name.
    """
    text = "".join(traceback_module.format_exception(error))[-TRACEBACK_CHARACTERS_MAX:]
    word = word_of(error)
    detail = f"{type(word or error).__name__}: {word or error}"
    if isinstance(word, RetryIn):
        return Fault("retry_asked", detail, handler, text, course=Course.PARK, blocks=True, wait_seconds=word.seconds)
    if isinstance(word, Quarantine):
        return Fault("quarantine_asked", detail, handler, text, blocks=True)
    if _passes(error):
        return Fault("dependency_failed", detail, handler, text, course=Course.PARK, blocks=True)
    code = error.code if isinstance(error, Refused) else "handler_failed"
    return Fault(code, detail, handler, text, blocks=True)


def word_of(error: BaseException) -> RetryIn | Quarantine | None:
    """Return what a handler asked for itself, also where it is what the error was raised from."""
    return next((one for one in _named_causes(error) if isinstance(one, RetryIn | Quarantine)), None)


def _passes(error: BaseException) -> bool:
    sqlstate = sqlstate_of(error)
    if sqlstate is not None:
        return course_of_sqlstate(sqlstate) in _PASSES
    return any(course_of_class(_names(one)) is Course.PARK for one in _named_causes(error))


def _names(error: BaseException) -> list[str]:
    return [f"{each.__module__}.{each.__qualname__}" for each in type(error).__mro__]


def _named_causes(error: BaseException) -> Iterator[BaseException]:
    """The error and what it names as its cause (``raise ... from``), not what it only met on its way."""
    cause: BaseException | None = error
    for _ in range(_CAUSES_MAX):
        if cause is None:
            return
        yield cause
        cause = cause.__cause__
