"""``Tx``: what a handler may do inside the transaction that marks its event.

Rule: SQL runs at once in the batch's transaction; outcomes, facts and operations are collected and written by the tail.  A
handler neither commits nor rolls back: the guard row makes the one fail, the tail finds the other.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import UUID

from psycopg import Connection
from psycopg.rows import dict_row
from psycopg.sql import SQL, Composed

from onceflow_processor.effects import (
    FACTS_PER_EVENT_MAX,
    OPERATIONS_PER_EVENT_MAX,
    Effects,
    FactKey,
    fact_key,
    make_outcome,
)
from onceflow_processor.ignoring import note_reason
from onceflow_processor.lent_connection import LentConnection, lend
from onceflow_processor.operations.effect import Effect
from onceflow_processor.operations.request import Asked, Origin, RequestRules, make_request
from onceflow_schemas.failure import Refused
from onceflow_schemas.quoting import quoted
from onceflow_schemas.sql import queries

TOTAL_MAX = 2**63 - 1
_SQL = queries("booking")
_SETTING = re.compile(rb"^(?:[\s(]|--[^\r\n]*[\r\n])*+(?:SET|RESET|DISCARD|DO)\b|/\*|set_config|;\s*+\S", re.IGNORECASE)
"""Statements that may change settings: by their first word after line comments, set_config, or several in one text.
Comments of the other form nest, so what stands behind one is not looked for."""

Query = str | bytes | SQL | Composed
Parameters = Sequence[Any] | Mapping[str, Any] | None


class FactsKnown(Protocol):
    """What ``tx.once`` asks: whether a fact is taken, as far as this batch and process know."""

    def claim(self, key: FactKey, cause: str) -> bool:
        """Claim a fact; False when somebody has it."""


class OperationsKnown(Protocol):
    """What ``tx.request`` asks: whether an operation is known already, as far as this batch and process know."""

    def ask(self, asked: Asked) -> bool:
        """Note an operation; False when it is known with the same arguments, an error when with others."""


@dataclass(frozen=True, slots=True)
class Requests:
    """Where a ``Tx`` asks for operations, and by which rules."""

    known: OperationsKnown
    rules: RequestRules


class Tx:
    """The transaction as a handler sees it."""

    __slots__ = (
        "_cause",
        "_connection",
        "_effects",
        "_ended",
        "_facts",
        "_handler",
        "_lane_count",
        "_lent",
        "_origin",
        "_requests",
        "_value_bytes_max",
        "may_have_set",
    )

    def __init__(
        self,
        connection: Connection[Any],
        *,
        cause: str,
        handler: str,
        effects: Effects,
        facts: FactsKnown,
        lane_count: int,
        value_bytes_max: int,
        requests: Requests | None = None,
        origin: Origin | None = None,
    ) -> None:
        """``requests`` and ``origin`` (what asks) are for operations; without them none can be asked for."""
        self._connection = connection
        self._cause = cause
        self._handler = handler
        self._effects = effects
        self._facts = facts
        self._lane_count = lane_count
        self._value_bytes_max = value_bytes_max
        self._requests = requests
        self._origin = origin
        self._lent: LentConnection | None = None
        self._ended = False
        # Whether the handler may have changed settings of the session, which its neighbours must not inherit.
        self.may_have_set = False

    @property
    def connection(self) -> Connection[Any]:
        """A psycopg connection in the batch's transaction, for query builders.  Never commit or roll back on it."""
        self._refuse_after_end()
        self.may_have_set = self._effects.touched = True
        if self._lent is None:
            self._lent = lend(self._connection)
        return self._lent

    def execute(self, query: Query, parameters: Parameters = None) -> int:
        """Run a statement with ``%s`` or ``%(name)s`` parameters; return the number of rows it touched."""
        self._watch(query)
        return self._connection.execute(_plain(query), parameters).rowcount

    def fetch_one(self, query: Query, parameters: Parameters = None) -> dict[str, Any] | None:
        """Run a query; return its first row as a dict, None when there is none."""
        self._watch(query)
        with self._connection.cursor(row_factory=dict_row) as cursor:
            return cursor.execute(_plain(query), parameters).fetchone()

    def fetch_all(self, query: Query, parameters: Parameters = None) -> list[dict[str, Any]]:
        """Run a query; return all rows as dicts."""
        self._watch(query)
        with self._connection.cursor(row_factory=dict_row) as cursor:
            return cursor.execute(_plain(query), parameters).fetchall()

    def end(self) -> None:
        """The handler has ended: whoever kept this object (a thread, a cache) can do nothing more with it."""
        self._ended = True
        if self._lent is not None:
            # Without it every use of the kept connection fails, instead of writing into another event's transaction.
            del self._lent.pgconn

    def _refuse_after_end(self) -> None:
        if self._ended:
            raise Refused("effect_refused", "this tx belongs to a handler that has ended; ask for everything inside it")

    def _watch(self, query: Query) -> None:
        """Notice a statement that may change settings; one hidden in a function of the database is not seen."""
        self._refuse_after_end()
        self._effects.touched = True
        text = query.encode() if isinstance(query, str) else query
        if not isinstance(text, bytes) or _SETTING.search(text) is not None:
            self.may_have_set = True

    def outcome(self, type: str, *, key: str, data: Mapping[str, Any]) -> UUID:
        """Ask for an outcome; return its id.

        Args:
            type: the outcome's type, the record's ``ce_type``.
            key: what its order belongs to; outcomes of one key are published in the order of their commits.
            data: plain JSON data; its canonical bytes are the record's value.

        Raises:
            Refused: ``outcome_refused``: the type, key, data or size is not allowed.
        """
        self._refuse_after_end()
        made = make_outcome(
            self._effects,
            cause=self._cause,
            handler=self._handler,
            type=type,
            key=key,
            data=data,
            lane_count=self._lane_count,
            value_bytes_max=self._value_bytes_max,
        )
        return made.outcome_id

    def once(self, namespace: str, *key: str) -> bool:
        """Claim a business fact: True the first time ever, False when any event has claimed it before.

        Facts are permanent.  Where a thing may rightly happen again, the key contains the occurrence.

        Args:
            namespace: what kind of fact, such as ``"fee-back"``.
            key: what it is about, one or more texts.

        Raises:
            Refused: ``effect_refused``: the namespace or key is empty, no text, or too long.
        """
        self._refuse_after_end()
        if len(self._effects.facts) >= FACTS_PER_EVENT_MAX:
            raise Refused("effect_refused", f"one event may claim at most {FACTS_PER_EVENT_MAX} facts")
        wanted = fact_key(namespace, key)
        if not self._facts.claim(wanted, self._cause):
            self._effects.again.append((wanted, self._cause))
            return False
        self._effects.facts.append(wanted)
        return True

    def ignore(self, reason: str) -> None:
        """Say that the event is not this application's; then return.  The reason is kept in ``inbox.ignored_because``.

        The event counts as processed: nothing tries it again, and no key waits for it.

        Args:
            reason: for people, such as ``"metadata of another app"``; without personal data.

        Raises:
            Refused: ``effect_refused``: the reason is empty, no text, or too long.
        """
        self._refuse_after_end()
        note_reason(self._effects, handler=self._handler, reason=reason)

    def book(self, namespace: str, *key: str, total: int) -> int:
        """Raise a running total; return the difference that is to be booked now, 0 when it was told before.

        For amounts of which Stripe tells the sum so far (``amount_refunded``, quantities): however the events come, repeated
        or with some missing, the differences add up to the highest total.  It is locked until COMMIT.

        Args:
            namespace: what is summed up, such as ``"refunded"``.
            key: of what, one or more texts.
            total: the sum so far, from 0, in minor units or pieces.

        Raises:
            Refused: ``effect_refused``: the key is not usable, or the total is no whole number from 0 to 2**63 - 1.
        """
        self._refuse_after_end()
        wanted = fact_key(namespace, key)
        if type(total) is not int or not 0 <= total <= TOTAL_MAX:
            raise Refused("effect_refused", f"the total {quoted(total)} is no whole number from 0 to 2**63 - 1")
        return self._book(wanted, total)

    def _book(self, key: FactKey, total: int) -> int:
        self._effects.touched = True
        given = {"namespace": key[0], "key": key[1], "total": total, "cause": self._cause}
        [difference] = self._connection.execute(_SQL["book"], given).fetchone() or [0]
        return int(difference)

    def request(
        self,
        effect: Effect,
        /,
        *,
        subject: str,
        occurrence: int = 1,
        order_key: str | None = None,
        account: str | None = None,
        **args: Any,
    ) -> str:
        """Ask for an operation; return its id, which is the same whenever the same thing is asked for.

        It is carried out after COMMIT, at most once.  Asking again with the same arguments changes nothing.

        Args:
            effect: what ``handlers.effect`` gave back.
            subject: why it is done: the credit note, the order, the billing period; not the object that it acts on.
            occurrence: which one for that subject, from 1, where it may rightly happen again.
            order_key: operations with the same key run one at a time, in the order of asking; frozen as the arguments are.
            account: the account that it acts on; the event's own when left out.
            args: what the effect's function gets, plain JSON.

        Raises:
            OperationConflict: it was asked for before with other arguments or another order key (a ``Refused``,
                ``operation_conflict``).
            Refused: ``operation_refused`` or a more special code (``amount_refused``, ``arguments_refused`` ...): it can never
                be done as it was asked for.
        """
        self._refuse_after_end()
        if self._requests is None or self._origin is None:
            raise Refused("operation_refused", "operations cannot be asked for here")
        if len(self._effects.operations) >= OPERATIONS_PER_EVENT_MAX:
            raise Refused("operation_refused", f"one event may ask for at most {OPERATIONS_PER_EVENT_MAX} operations")
        asked = make_request(
            effect,
            subject=subject,
            occurrence=occurrence,
            order_key=order_key,
            account=account,
            args=args,
            cause=self._cause,
            origin=self._origin,
            rules=self._requests.rules,
        )
        if self._requests.known.ask(asked):
            self._effects.operations.append(asked)
        return str(asked.id)


def _plain(query: Query) -> bytes | SQL | Composed:
    """psycopg's types want literal strings, to keep values out of queries; handlers may build theirs as they like."""
    return query.encode() if isinstance(query, str) else query
