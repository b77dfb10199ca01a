"""Who is at fault for a failed statement, by SQLSTATE: the moment, the database, or the event."""

from __future__ import annotations

import psycopg
import pytest
from psycopg import errors

from onceflow_processor.sqlstates import Meaning, meaning_of, pooler_fault

RERUN, AWAY, DATA = Meaning.RERUN, Meaning.AWAY, Meaning.DATA


def error_of(state: str) -> psycopg.Error:
    try:
        return errors.lookup(state)()
    except KeyError:
        made = psycopg.DatabaseError()
        made.sqlstate = state
        return made


@pytest.mark.parametrize(
    ("state", "meaning"),
    [
        ("OF001", Meaning.FENCED),
        ("OF002", Meaning.GUARD),
        ("OF003", Meaning.FACT),
        ("OF004", Meaning.LANE),
        ("OF006", Meaning.CONFLICT),
        ("40001", RERUN),
        ("40P01", RERUN),
        ("55P03", RERUN),
        ("40003", RERUN),
        ("57014", RERUN),
        ("25P03", RERUN),
        ("25P04", RERUN),
        ("57P01", AWAY),
        ("57P02", AWAY),
        ("57P03", AWAY),
        ("53300", AWAY),
        ("42P05", AWAY),
        ("26000", AWAY),
        ("53100", AWAY),
        ("25006", AWAY),
        ("08006", AWAY),
        ("08003", AWAY),
        ("58030", AWAY),
        ("XX000", AWAY),
        ("XX001", AWAY),
        ("22P05", DATA),
        ("22P02", DATA),
        ("22003", DATA),
        ("54001", DATA),
        ("23505", DATA),
        ("23503", DATA),
        ("23514", DATA),
        ("42601", DATA),
        ("42501", DATA),
        ("25P02", DATA),
        ("P0001", DATA),
    ],
)
def test_each_state_has_its_meaning(state: str, meaning: Meaning) -> None:
    assert meaning_of(error_of(state)) is meaning


@pytest.mark.parametrize("state", ["42501", "42P01", "42703", "3F000", "3D000", "28P01", "0A000"])
def test_a_lost_grant_or_table_is_a_handlers_bug_and_otherwise_nobodys(state: str) -> None:
    assert meaning_of(error_of(state)) is DATA or state == "28P01"
    assert meaning_of(error_of(state), ours=True) is AWAY


@pytest.mark.parametrize(("state", "meaning"), [("22P02", DATA), ("40001", RERUN), ("OF001", Meaning.FENCED)])
def test_whose_statement_it_was_changes_nothing_else(state: str, meaning: Meaning) -> None:
    assert meaning_of(error_of(state), ours=True) is meaning


@pytest.mark.parametrize(
    ("error", "meaning"),
    [
        (psycopg.OperationalError("server closed the connection unexpectedly"), AWAY),
        (psycopg.InterfaceError("the connection is closed"), AWAY),
        (psycopg.DataError("PostgreSQL text fields cannot contain NUL (0x00) bytes"), DATA),
        (psycopg.ProgrammingError("cannot adapt type 'object'"), DATA),
        (psycopg.NotSupportedError(), DATA),
    ],
)
def test_errors_that_the_client_library_made_itself(error: psycopg.Error, meaning: Meaning) -> None:
    assert meaning_of(error) is meaning
    assert meaning_of(error, ours=True) is meaning


def wrapped(handler_error: Exception, inner: Exception, *, explicit: bool) -> Exception:
    """As ``raise handler_error from inner`` leaves it, or a plain ``raise`` where ``inner`` was caught."""
    if explicit:
        handler_error.__cause__ = inner
    handler_error.__context__ = inner
    return handler_error


@pytest.mark.parametrize("explicit", [True, False])
def test_an_error_that_a_handler_wrapped_is_found(explicit: bool) -> None:  # noqa: FBT001
    """A handler that wraps a deadlock in an error of its own is not at fault."""
    once = wrapped(KeyError("row"), error_of("40P01"), explicit=explicit)
    assert meaning_of(wrapped(ValueError("mine"), once, explicit=explicit)) is RERUN


def test_errors_that_have_nothing_to_do_with_the_database() -> None:
    assert meaning_of(ValueError("mine")) is None
    assert meaning_of(wrapped(ValueError("mine"), KeyError("row"), explicit=True)) is None


def test_a_chain_that_ends_in_itself() -> None:
    one, other = ValueError("one"), ValueError("other")
    one.__cause__, other.__cause__ = other, one
    assert meaning_of(one) is None


def test_a_pooler_is_named_however_deep_its_error_lies() -> None:
    wrapped = RuntimeError("a handler's own")
    wrapped.__cause__ = error_of("42P05")
    fault = pooler_fault(wrapped)
    assert fault is not None
    assert (fault.code, "database.prepared" in fault.message) == ("settings_invalid", True)
    assert pooler_fault(error_of("57P01")) is None
    assert pooler_fault(RuntimeError()) is None


def test_a_chain_that_is_a_circle_has_an_end() -> None:
    error = psycopg.errors.DeadlockDetected("deadlock")
    error.__cause__ = error
    assert pooler_fault(error) is None
    assert meaning_of(error) is Meaning.RERUN
