"""Opens the database for commands.

Rule: what goes wrong is told by code and hint, and never with the address, which may hold a password.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from onceflow.redaction import redacted
from onceflow_schemas.failure import Misconfigured, Unavailable

CONNECT_TIMEOUT_SECONDS = 10


def connect(url: str, *, role: str) -> psycopg.Connection[Any]:
    """Connect for one command; prepared statements are off, so that every pooler will do.

    Args:
        url: given to libpq as it is.
        role: becomes ``onceflow-<role>`` in ``pg_stat_activity`` unless the address has its own name.

    Raises:
        Unavailable: ``database_unavailable``, with what libpq said.
        Misconfigured: ``settings_invalid`` when libpq cannot read the address.
    """
    try:
        return psycopg.connect(
            url,
            fallback_application_name=f"onceflow-{role}",
            connect_timeout=CONNECT_TIMEOUT_SECONDS,
            prepare_threshold=None,
        )
    except psycopg.OperationalError as error:
        raise unavailable(error) from None
    except psycopg.ProgrammingError:
        raise Misconfigured(
            "settings_invalid",
            "database.url is not an address that libpq can read (not shown, it may hold a password)",
            "A good value is postgresql://onceflow@127.0.0.1:5432/payments.",
        ) from None


@contextmanager
def session(url: str, *, role: str) -> Iterator[psycopg.Connection[Any]]:
    """Connect as ``connect`` does, and tell what the server refuses meanwhile as a failure instead of a traceback.

    Raises:
        Unavailable: ``database_unavailable``: the server went away, or the role lacks a right.
    """
    with connect(url, role=role) as connection:
        try:
            yield connection
        except psycopg.Error as error:
            raise unavailable(error) from error


def unavailable(error: psycopg.Error) -> Unavailable:
    """Return the failure for a database that does not answer or refuses, with the first line that it said."""
    # Below the first line an SQL error shows its place in the statement, and a refused connection gives advice.
    said = redacted(str(error)).strip().partition("\n")[0] or type(error).__name__
    return Unavailable(
        "database_unavailable",
        f"PostgreSQL does not answer or refuses: {said}",
        "Check DATABASE_URL, the server and the rights of the role.",
    )
