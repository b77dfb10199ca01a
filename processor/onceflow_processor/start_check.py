"""What a database must be before the processor trusts it with a promise.

Rule: all faults at once, each with the fix.  A database that may lose an acknowledged commit, that is a standby, or
that belongs to another deployment is refused, because every promise would be false on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import structlog
from psycopg import Connection
from psycopg.rows import dict_row

from onceflow_processor.schema_check import check_schema
from onceflow_schemas.failure import Misconfigured, Unavailable
from onceflow_schemas.sql import queries

TRANSACTION_TIMEOUT_SINCE = 170_000
VERSION_MIN = 150_000
_SQL = queries("start")
_DURABLE = frozenset({"on", "local", "remote_write", "remote_apply"})

log = structlog.get_logger("onceflow.processor")


def count_lanes(connection: Connection[Any], *, outcome_topic: str, partitions: int) -> int:
    """Return the number of lanes, which is that of the outcome topic's partitions; the connection is left idle.

    Raises:
        Misconfigured: ``topic_mismatch``.
    """
    lanes = connection.execute(_SQL["lanes"]).fetchall()
    connection.rollback()
    if partitions != len(lanes):
        message = f"{outcome_topic} has {partitions} partitions, but the database has {len(lanes)} lanes"
        raise Misconfigured("topic_mismatch", message)
    return len(lanes)


def safety_faults(row: dict[str, Any]) -> list[str]:
    """Return what is unsafe about a database, as sentences with the fix.

    Args:
        row: version, fsync, synchronous_commit, standby, as the query ``safety`` gives them.
    """
    faults = []
    if row["version"] < VERSION_MIN:
        faults.append(f"PostgreSQL {row['version'] // 10_000} is too old: use 15 or newer")
    if row["fsync"] != "on":
        faults.append("fsync is off, a crash may lose or tear what was committed: set fsync=on")
    if row["synchronous_commit"] not in _DURABLE:
        faults.append(f"synchronous_commit is {row['synchronous_commit']}, a crash may lose commits: set it to on")
    if row["standby"]:
        faults.append("this is a standby: connect to the primary")
    return faults


def read_only_fault(row: dict[str, Any]) -> str | None:
    """Return why nothing can be written, when it is no standby: operators and full disks make a database read-only.

    It passes without a restart of ours, so it is no reason to end a process that runs.

    Args:
        row: as for ``safety_faults``, with read_only.
    """
    if not row["read_only"] or row["standby"]:
        return None
    return "the database is read-only: look at its disk, and at default_transaction_read_only of database and role"


def check_safety(connection: Connection[Any]) -> int:
    """Refuse a server that cannot keep a promise; returns its version number, such as 180004.

    Args:
        connection: not inside a transaction; left so.

    Raises:
        Misconfigured: ``database_unsafe`` with every fault.
        Unavailable: ``database_unavailable``: it is read-only now.
        psycopg.Error: the database did not answer.
    """
    with connection.transaction(), connection.cursor(row_factory=dict_row) as cursor:
        safety = _one(cursor.execute(_SQL["safety"]).fetchone())
    faults = safety_faults(safety)
    if faults:
        raise Misconfigured("database_unsafe", "; ".join(faults), faults=tuple(faults))
    read_only = read_only_fault(safety)
    if read_only is not None:
        raise Unavailable("database_unavailable", read_only)
    return int(safety["version"])


def check_database(
    connection: Connection[Any], *, deployment: str, accounts: Sequence[str], mode: str, dry_run: bool = False
) -> tuple[int, frozenset[str]]:
    """Check schema, safety and the frozen deployment row; freeze it at the first start.

    Args:
        connection: idle; left idle.
        deployment: the deployment's id.
        accounts: the accounts of the settings; new ones are added to the frozen ones.
        mode: ``live`` or ``test``.
        dry_run: write nothing, neither at the first start nor of new accounts.

    Returns:
        The server's version number (such as 180004), and the accounts that this deployment serves.

    Raises:
        Misconfigured: schema_missing, schema_behind, schema_ahead, schema_changed, database_unsafe, lanes_missing or
            database_other_deployment.
        Unavailable: ``database_unavailable``: the database is read-only now.
        psycopg.Error: the database did not answer.
    """
    check_schema(connection)
    connection.rollback()
    version = check_safety(connection)
    with connection.transaction(force_rollback=dry_run), connection.cursor(row_factory=dict_row) as cursor:
        if not cursor.execute(_SQL["lanes"]).fetchall():
            raise Misconfigured("lanes_missing", "the database has no lanes yet")
        served = _check_deployment(
            cursor, deployment=deployment, accounts=sorted(set(accounts)), mode=mode, dry_run=dry_run
        )
    return version, served


def refuse_other(found: tuple[str, str], *, asked: tuple[str, str]) -> None:
    """Hold the deployment and mode that a database belongs to against those of the settings.

    Raises:
        Misconfigured: database_other_deployment.
    """
    if found != asked:
        message = "the database belongs to deployment {} ({}), not {} ({})".format(*found, *asked)
        raise Misconfigured("database_other_deployment", message)


def _check_deployment(cursor: Any, *, deployment: str, accounts: list[str], mode: str, dry_run: bool) -> frozenset[str]:
    system = _one(cursor.execute(_SQL["system"]).fetchone())
    cursor.execute(_SQL["deployment_freeze"], {"id": deployment, "accounts": accounts, "mode": mode, **system})
    row = _one(cursor.execute(_SQL["deployment"]).fetchone())
    refuse_other((row["id"], row["mode"]), asked=(deployment, mode))
    if dry_run:
        return frozenset(accounts) | frozenset(row["accounts"])
    if (row["system_id"], row["timeline"]) != (system["system_id"], system["timeline"]):
        cursor.execute(_SQL["deployment_restored"], system)
        log.warning("database_restored", system_id=system["system_id"], timeline=system["timeline"])
    if not set(accounts) <= set(row["accounts"]):
        cursor.execute(_SQL["deployment_accounts"], {"accounts": accounts})
        log.info("accounts_added", accounts=sorted(set(accounts) - set(row["accounts"])))
    return frozenset(accounts) | frozenset(row["accounts"])


def _one(row: dict[str, Any] | None) -> dict[str, Any]:
    if row is None:
        message = "the query always has one row"
        raise AssertionError(message)
    return row
