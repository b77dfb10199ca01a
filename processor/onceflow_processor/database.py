"""Connections to PostgreSQL, with every timeout stated.

Rule: the operator's DSN goes to libpq untouched; only what it leaves open is set here.  No session state is relied on,
so a pooler in transaction mode may stand between (then ``prepared`` is off).
"""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import Connection

from onceflow_schemas.failure import Unavailable

CONNECT_SECONDS_MAX = 5
_KEEPALIVE = {
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}
REASON_CHARACTERS_MAX = 300


def connect(database_url: str, *, application_name: str, prepared: bool, autocommit: bool = False) -> Connection[Any]:
    """Open a connection.

    Args:
        database_url: a libpq connection string or URL.
        application_name: shown in pg_stat_activity, when the DSN does not set one.
        prepared: False when a pooler in transaction mode stands between.
        autocommit: True for single statements outside a transaction.

    Raises:
        Unavailable: ``database_unavailable``; the message never holds the DSN.
    """
    given = psycopg.conninfo.conninfo_to_dict(database_url)
    defaults: dict[str, Any] = {
        "connect_timeout": CONNECT_SECONDS_MAX,
        "application_name": application_name,
        **_KEEPALIVE,
    }
    missing = {name: value for name, value in defaults.items() if name not in given}
    try:
        connection: Connection[Any] = psycopg.connect(database_url, autocommit=autocommit, **missing)
    except psycopg.OperationalError as error:
        raise database_away(error) from error
    if not prepared:
        connection.prepare_threshold = None
    return connection


def database_away(error: psycopg.OperationalError) -> Unavailable:
    """Return the failure that a lost or refused connection is."""
    return Unavailable("database_unavailable", first_line(error))


def first_line(error: BaseException, characters_max: int = REASON_CHARACTERS_MAX) -> str:
    """Return the first line of an error, or its kind when it says nothing: the further lines may quote data."""
    return (str(error).splitlines() or [type(error).__name__])[0][:characters_max]
