"""The connection that a handler is lent: the batch's own session and transaction behind a separate object.

Rule: nothing that a handler changes on the object (row factory, cursor class, adapters) reaches the statements of the
batch.  With one shared object a handler's ``row_factory = dict_row`` would change how the claims are read, and events
would be marked without being handled.
"""

from __future__ import annotations

from typing import Any

from psycopg import Connection

from onceflow_schemas.failure import Refused


class LentConnection(Connection[Any]):
    """A psycopg connection over somebody else's libpq connection; it cannot close what it does not own."""

    def close(self) -> None:
        """Refuse.

        Raises:
            Refused: ``handler_broke_transaction``, always.
        """
        raise Refused("handler_broke_transaction", "the connection belongs to the batch: a handler may not close it")

    def __del__(self, _warn: Any = None) -> None:
        """Say nothing: psycopg would warn of a connection that was never closed, but the owner closes it."""


def lend(connection: Connection[Any]) -> LentConnection:
    """Return a fresh object over the same session and transaction.

    Statements are not prepared over it, because two objects would give their prepared statements the same names.
    """
    lent = LentConnection(connection.pgconn)
    lent.lock = connection.lock
    lent.prepare_threshold = None
    return lent
