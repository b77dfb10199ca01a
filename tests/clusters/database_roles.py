"""The roles of ``deploy/``: made on a test's server, with passwords, and the addresses under which each logs in."""

from __future__ import annotations

from pathlib import Path

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

DEPLOY = Path(__file__).parents[2] / "deploy"
ROLES = tuple(
    f"onceflow_{name}"
    for name in (
        "migrator",
        "processor",
        "relay",
        "worker",
        "application",
        "operator",
        "reader",
        "replayer",
        "reconciler",
    )
)


def run_file(address: str, name: str) -> None:
    """Run a file of ``deploy/`` as psql would."""
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute((DEPLOY / name).read_bytes())


def make_roles(address: str) -> None:
    """Make the roles and give them passwords.

    Args:
        address: of a superuser.
    """
    run_file(address, "roles.sql")
    with psycopg.connect(address, autocommit=True) as connection:
        for role in ROLES:
            given = sql.SQL("ALTER ROLE {} PASSWORD {}").format(
                sql.Identifier(role), sql.Literal(f"password-of-{role}")
            )
            connection.execute(given)


def address_of(role: str, address: str) -> str:
    """The same database as another role."""
    return make_conninfo(address, user=role, password=f"password-of-{role}")
