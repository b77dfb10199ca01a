"""``attach``: a ``Tx`` inside a transaction of the user's own application.

Rule: what is asked for is written at once and committed or rolled back with the application's own rows, by the application.
Nothing here commits, ends the transaction by an error of its own, or touches a lane: such a transaction may be long.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg import Connection
from psycopg.pq import PipelineStatus, TransactionStatus
from typing_extensions import override

from onceflow_processor.arrays import Uuids
from onceflow_processor.effects import Effects, FactKey
from onceflow_processor.lent_connection import lend
from onceflow_processor.operations.asked import OperationConflict
from onceflow_processor.operations.columns import request_columns
from onceflow_processor.operations.request import Asked, RequestRules
from onceflow_processor.tx import Requests, Tx
from onceflow_schemas.failure import Misconfigured, Refused
from onceflow_schemas.outcome_record import HEADERS_BYTES_RESERVED, canonical_value
from onceflow_schemas.quoting import quoted
from onceflow_schemas.sql import queries

OUTCOME_BYTES_MAX = 1_048_588 - HEADERS_BYTES_RESERVED
"""For a topic with Kafka's own limit; an application does not ask Kafka."""

_CAUSE = re.compile(r"[!-~]{1,200}")
_SQL = queries("attach")
_REQUESTS = queries("operation_requests")


@dataclass(frozen=True, slots=True)
class _Application:
    """What an operation of an application is asked for by."""

    account: str
    mode: str
    created: datetime | None


def attach(
    connection: Connection[Any],
    *,
    cause: str,
    account: str | None = None,
    happened_at: datetime | None = None,
    outcome_bytes_max: int = OUTCOME_BYTES_MAX,
) -> Tx:
    """Return a ``Tx`` in the application's own transaction: what it asks for counts when the application commits.

    Args:
        connection: a psycopg connection; of SQLAlchemy: ``session.connection().connection.driver_connection``.
        cause: the piece of work that asks, such as ``order:1042:confirm``: printable ASCII without spaces, 1 to 200
            characters.  The same outcome asked for again under the same cause is a repeat, and published once.
        account: the account that operations act on; may be left out where the deployment has one.
        happened_at: when what is asked for was decided, where that was earlier than now.  The safe window of operations
            starts there; after the database was put back it tells a repeat from something new.
        outcome_bytes_max: limit of the outcome topic for one value, in bytes.

    The ``Tx`` ends with that transaction: used after it, it is refused (``tx_ended``).

    Raises:
        Refused: ``operation_refused``: no transaction would be open, or an argument is not usable.
        Misconfigured: ``database_other_deployment``: no deployment has been started on this database.
        psycopg.Error: the database did not answer.
    """
    _check_connection(connection)
    _check_cause(cause)
    _check_time(happened_at)
    # A connection object of its own, or the application's row factory and adapters would reach our statements.
    own = lend(connection)
    row = own.execute(_SQL["deployment"]).fetchone()
    if row is None:
        raise Misconfigured(
            "database_other_deployment",
            "no deployment has been started on this database",
            "Start `onceflow process` once: it writes which accounts and mode the database belongs to.",
        )
    deployment, accounts, mode, transaction = row
    if account is None and len(accounts) > 1:
        raise Refused("operation_refused", f"the deployment serves {len(accounts)} accounts: name one with account=")
    return _AttachedTx(
        own,
        cause=f"app:{cause}",
        origin=_Application(accounts[0] if account is None else account, mode, happened_at),
        rules=RequestRules(frozenset(accounts), None, deployment=deployment),
        outcome_bytes_max=outcome_bytes_max,
        transaction=transaction,
    )


def _check_cause(cause: object) -> None:
    if not isinstance(cause, str) or not _CAUSE.fullmatch(cause):
        rule = "1 to 200 printable ASCII characters without spaces"
        raise Refused("operation_refused", f"the cause {quoted(cause)} is not {rule}")


def _check_time(happened_at: object) -> None:
    if happened_at is None:
        return
    if not isinstance(happened_at, datetime):
        raise Refused("operation_refused", f"happened_at is {quoted(happened_at, 40)}, not a datetime")
    if happened_at.utcoffset() is None:
        raise Refused("operation_refused", "happened_at has no time zone")


def _check_connection(connection: object) -> None:
    if not isinstance(connection, Connection):
        raise Refused(
            "operation_refused",
            f"attach takes a psycopg connection, not {type(connection).__name__}",
            "With SQLAlchemy give session.connection().connection.driver_connection.",
        )
    status = connection.info.transaction_status
    if connection.pgconn.pipeline_status != PipelineStatus.OFF:
        raise Refused("operation_refused", "the connection is in pipeline mode")
    if status == TransactionStatus.IDLE and connection.autocommit:
        raise Refused("operation_refused", "the connection is in autocommit mode: use `with connection.transaction():`")
    if status not in (TransactionStatus.IDLE, TransactionStatus.INTRANS):
        raise Refused("operation_refused", f"the connection's transaction cannot be used ({status.name})")


class _AttachedTx(Tx):
    """Writes at once what the ``Tx`` of a handler leaves to the tail."""

    __slots__ = ("_transaction",)

    def __init__(
        self,
        connection: Connection[Any],
        *,
        cause: str,
        origin: _Application,
        rules: RequestRules,
        outcome_bytes_max: int,
        transaction: str,
    ) -> None:
        self._transaction = transaction
        super().__init__(
            connection,
            cause=cause,
            handler="",
            effects=Effects(),
            facts=_FactsAtOnce(connection),
            lane_count=1,  # Which lane it will be is found when it is moved into one.
            value_bytes_max=outcome_bytes_max,
            requests=Requests(_OperationsAtOnce(connection), rules),
            origin=origin,
        )

    @override
    def _refuse_after_end(self) -> None:
        """What is asked for after the transaction has ended would count with another one, or with none."""
        status = self._connection.info.transaction_status
        ended = status == TransactionStatus.IDLE
        if status == TransactionStatus.INTRANS:
            ended = self._connection.execute(_SQL["transaction"]).fetchone() != (self._transaction,)
        if ended:
            raise Refused("tx_ended", "the transaction that this tx was attached to has ended")

    @override
    def outcome(self, type: str, *, key: str, data: Mapping[str, Any]) -> UUID:
        """Ask for an outcome; return its id.  Arguments and errors as in a handler.

        The hash of the data stands for the handler's name in the id: one cause may be used by mistake for two pieces of
        work, and then nothing of the second may be taken for a repeat of the first.
        """
        self._handler = "sha256:" + hashlib.sha256(canonical_value(data)).hexdigest()
        made = super().outcome(type, key=key, data=data)
        staged = self._effects.outcomes[-1]
        self._connection.execute(
            _SQL["stage_outcome"],
            {
                "outcome_id": made, "type": staged.type, "key": staged.key, "value": staged.value, "cause": staged.cause,
            },
        )  # fmt: skip
        return made

    @override
    def book(self, namespace: str, *key: str, total: int) -> int:
        """Refused: a total is locked until COMMIT, and an application's transaction may be long."""
        raise Refused("effect_refused", "totals are booked by handlers, not in an application's transaction")


class _FactsAtOnce:
    def __init__(self, connection: Connection[Any]) -> None:
        self._connection = connection

    def claim(self, key: FactKey, cause: str) -> bool:
        """Claim a fact; False when somebody has it."""
        namespace, text = key
        parameters = {"namespace": namespace, "key": text, "cause": cause}
        return self._connection.execute(_SQL["take_fact"], parameters).rowcount == 1


class _OperationsAtOnce:
    def __init__(self, connection: Connection[Any]) -> None:
        self._connection = connection

    def ask(self, asked: Asked) -> bool:
        """Write an operation; False when it is there with the same arguments, an error when with others."""
        if self._connection.execute(_REQUESTS["request"], request_columns([asked])).rowcount == 1:
            return True
        rows = self._connection.execute(_REQUESTS["known_operations"], {"ids": Uuids([asked.id])}).fetchall()
        assert rows, "an id that cannot be inserted is there"
        if bytes(rows[0][1]) != asked.args_sha256:
            raise OperationConflict(asked)
        return False
