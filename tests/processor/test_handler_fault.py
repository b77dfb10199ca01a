"""What a handler raised, as a fault: parked when it passes, else for a person."""

from __future__ import annotations

import socket

import psycopg
import pytest
import stripe
import urllib3

from onceflow import Quarantine, RetryIn
from onceflow_processor.handler_fault import fault_of, word_of
from onceflow_processor.handler_words import RETRY_SECONDS_MAX
from onceflow_schemas.failure import Refused
from onceflow_schemas.failure_course import Course


def from_cause(error: Exception, cause: BaseException) -> Exception:
    error.__cause__ = cause
    return error


def while_handling(error: Exception, other: BaseException) -> Exception:
    error.__context__ = other
    return error


def circle() -> Exception:
    one, other = ValueError("one"), ValueError("other")
    one.__cause__, other.__cause__ = other, one
    return one


@pytest.mark.parametrize(
    ("error", "code", "course"),
    [
        (ConnectionRefusedError("x"), "dependency_failed", Course.PARK),
        (TimeoutError("x"), "dependency_failed", Course.PARK),
        (socket.gaierror(-2, "Name or service not known"), "dependency_failed", Course.PARK),
        (urllib3.exceptions.ProtocolError("x"), "dependency_failed", Course.PARK),
        (stripe.APIConnectionError("x"), "dependency_failed", Course.PARK),  # type: ignore[no-untyped-call]
        (stripe.RateLimitError("x"), "dependency_failed", Course.PARK),
        (psycopg.errors.QueryCanceled("x"), "dependency_failed", Course.PARK),
        (psycopg.errors.LockNotAvailable("x"), "dependency_failed", Course.PARK),
        (psycopg.OperationalError("connection failed"), "dependency_failed", Course.PARK),
        (from_cause(RuntimeError("mine"), TimeoutError("x")), "dependency_failed", Course.PARK),
        (while_handling(KeyError("mine"), TimeoutError("x")), "handler_failed", Course.QUARANTINE),
        (circle(), "handler_failed", Course.QUARANTINE),
        (stripe.CardError("x", "p", "c"), "handler_failed", Course.QUARANTINE),  # type: ignore[no-untyped-call]
        (psycopg.errors.UniqueViolation("x"), "handler_failed", Course.QUARANTINE),
        (psycopg.InterfaceError("the cursor is closed"), "handler_failed", Course.QUARANTINE),
        (OSError("x"), "handler_failed", Course.QUARANTINE),
        (SystemExit(1), "handler_failed", Course.QUARANTINE),
        (Refused("outcome_refused", "x"), "outcome_refused", Course.QUARANTINE),
        (RetryIn(5), "retry_asked", Course.PARK),
        (Quarantine("look"), "quarantine_asked", Course.QUARANTINE),
        (from_cause(ValueError("mine"), RetryIn(600)), "retry_asked", Course.PARK),
        (from_cause(ConnectionError("mine"), Quarantine("look")), "quarantine_asked", Course.QUARANTINE),
        (while_handling(ValueError("mine"), RetryIn(600)), "handler_failed", Course.QUARANTINE),
    ],
)
def test_what_was_raised_has_its_fault(error: BaseException, code: str, course: Course) -> None:
    fault = fault_of(error, handler="h")
    assert (fault.code, fault.course, fault.handler, fault.blocks) == (code, course, "h", True)
    told = word_of(error) or error
    assert fault.detail.startswith(f"{type(told).__name__}: ")
    assert fault.traceback is not None
    assert fault.wait_seconds == (told.seconds if isinstance(told, RetryIn) else None)


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), RETRY_SECONDS_MAX + 1, True])
def test_a_wait_that_cannot_be_is_the_handlers_bug(seconds: float) -> None:
    with pytest.raises(ValueError, match="RetryIn takes 0 to 2592000 seconds"):
        RetryIn(seconds)


def test_a_wait_says_its_reason_or_its_length() -> None:
    assert (str(RetryIn(1.5)), str(RetryIn(1.5, "soon"))) == ("the handler asks for a retry in 1.5 s", "soon")
