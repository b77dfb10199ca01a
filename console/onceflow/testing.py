"""Run handlers in your own unit tests, without a broker or a database.

    from onceflow.testing import event, run

    result = run(handlers, event("invoice.paid", {"id": "in_1", "amount_paid": 1200}))
    assert result.outcomes[0].data == {...}
    assert result.operations[0].call == StripeCall.post("/v1/refunds", charge="ch_1", amount=500)

Rule: what a handler asks for is checked by the same code as in production; only the SQL is not run: it is recorded, and
answered with the rows that the test gives.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Any, cast
from uuid import UUID

from psycopg import Connection

from onceflow_processor.effects import Effects, FactKey, fact_key
from onceflow_processor.event import Event, Previous
from onceflow_processor.handler_run import call
from onceflow_processor.handler_words import Quarantine, RetryIn
from onceflow_processor.handlers import Handlers
from onceflow_processor.known import Known
from onceflow_processor.operations.effect import Settled
from onceflow_processor.operations.request import Origin, RequestRules
from onceflow_processor.tx import Parameters, Query, Requests, Tx
from onceflow_schemas.envelope import read_envelope
from onceflow_schemas.failure import Refused
from onceflow_schemas.identity import Identity
from onceflow_schemas.operations.calls import Call

CREATED = 1_767_225_600
"""The creation time of test events: 2026-01-01T00:00:00Z."""

LANE_COUNT = 6
VALUE_BYTES_MAX = 1_000_000
NOTHING_BOOKED: Mapping[tuple[str, ...], int] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class OutcomeAsked:
    """An outcome that a handler asked for."""

    id: UUID
    type: str
    key: str
    data: Any


@dataclass(frozen=True, slots=True)
class OperationAsked:
    """An operation that a handler asked for, with the call that would be frozen."""

    id: str
    effect: str
    subject: str
    occurrence: int
    order_key: str | None
    account: str
    mode: str
    args: Mapping[str, Any]
    call: Call


@dataclass(slots=True)
class Result:
    """What the handlers of an event asked for; ``ignored`` when no handler has its type.

    ``booked`` are the running totals that were raised, with what they are now.  ``ignored_because`` are the reasons
    given to ``tx.ignore``, by handler.  ``said`` is the ``RetryIn`` or ``Quarantine``
    that a handler raised: everything else is empty then, as it is rolled back.
    """

    ignored: bool = False
    outcomes: list[OutcomeAsked] = field(default_factory=list)
    facts: list[FactKey] = field(default_factory=list)
    operations: list[OperationAsked] = field(default_factory=list)
    statements: list[tuple[str, Parameters]] = field(default_factory=list)
    booked: dict[FactKey, int] = field(default_factory=dict)
    said: RetryIn | Quarantine | None = None
    ignored_because: dict[str, str] = field(default_factory=dict)


def event(
    event_type: str,
    subject: Mapping[str, Any],
    *,
    event_id: str = "evt_test_1",
    account: str = "acct_test",
    created: int = CREATED,
    previous_attributes: Mapping[str, Any] | None = None,
    is_stale: bool = False,
    previous: Previous | None = None,
) -> Event:
    """Make an event about an object, read as strictly as a real one.

    Args:
        event_type: such as ``invoice.paid``.
        subject: the object (``data.object``).
        event_id: ``evt_...``.
        account: ``acct_...``.
        created: unix seconds.
        previous_attributes: for ``*.updated`` events.
        is_stale, previous: what the guard of the object says, for handlers with an ``order``.

    Raises:
        Refused: the event would be quarantined; the code says why.
    """
    data: dict[str, Any] = {"object": dict(subject)}
    if previous_attributes is not None:
        data["previous_attributes"] = dict(previous_attributes)
    body = {
        "id": event_id, "object": "event", "api_version": "2026-10-28.endive", "created": created, "livemode": False,
        "pending_webhooks": 1, "request": {"id": None, "idempotency_key": None}, "type": event_type, "data": data,
    }  # fmt: skip
    raw = json.dumps(body).encode()
    envelope = read_envelope(raw)
    if envelope.problem is not None or envelope.created is None or envelope.body is None:
        raise Refused(envelope.problem or "not_an_event", envelope.detail)
    return Event(
        identity=Identity(account, "test", event_id),
        type=event_type,
        created=envelope.created,
        received_at=envelope.created,
        api_version=envelope.api_version,
        body=envelope.body,
        raw=raw,
        text_replaced=envelope.replaced,
        is_stale=is_stale,
        applied_before=previous,
    )


def run(
    handlers: Handlers,
    event: Event,
    *,
    taken: Iterable[tuple[str, ...]] = (),
    answers: Sequence[Sequence[Mapping[str, Any]]] = (),
    accounts: Iterable[str] = (),
    booked: Mapping[tuple[str, ...], int] = NOTHING_BOOKED,
) -> Result:
    """Run the handlers of an event: those with ``order="latest"`` only for one that is not stale, as in production.

    Nothing is read at Stripe: a handler with ``lines="all"`` meets the lines that the test gives, and ``event.lines_truncated``
    is True where they say ``has_more``.

    Args:
        handlers: the registry; it is checked first.
        event: from ``event``.
        taken: facts (namespace, key parts ...) that other events have claimed before.
        answers: the rows that the handlers' queries get, one list per query in their order.
        accounts: those that operations may act on beside the event's own.
        booked: running totals (namespace, key parts ...) that were booked before.

    Raises:
        Whatever else a handler raises; AssertionError when it asks more queries than there are answers.
    """
    bench = _Bench(handlers, origin=event, taken=taken, answers=answers, accounts=accounts, booked=booked)
    found = handlers.for_type(event.type)
    try:
        for handler in found:
            if handler.order == "latest" and event.is_stale:
                continue
            call(handler, event, transaction=bench.transaction(cause=event.cause, handler=handler.name))
    except (RetryIn, Quarantine) as said:
        return Result(said=said)
    result = bench.result()
    result.ignored = not found
    return result


def settled(
    asked: OperationAsked,
    state: str = "succeeded",
    *,
    external_id: str | None = None,
    result: Mapping[str, Any] | None = None,
) -> Settled:
    """Make what the settled function of an operation's effect gets.

    Args:
        asked: from ``Result.operations``.
        state: ``succeeded``, ``failed`` or ``canceled``.
        external_id: the object at the other side.
        result: what is known of it.
    """
    return Settled(
        id=asked.id, effect=asked.effect, subject=asked.subject, occurrence=asked.occurrence, account=asked.account,
        mode=asked.mode, state=state, order_key=asked.order_key, args=asked.args, external_id=external_id,
        result=dict(result or {}),
    )  # fmt: skip


def run_settled(
    handlers: Handlers,
    operation: Settled,
    *,
    taken: Iterable[tuple[str, ...]] = (),
    answers: Sequence[Sequence[Mapping[str, Any]]] = (),
    accounts: Iterable[str] = (),
    booked: Mapping[tuple[str, ...], int] = NOTHING_BOOKED,
) -> Result:
    """Run the settled function of an operation's effect; arguments and errors as those of ``run``."""
    bench = _Bench(
        handlers, origin=_SettledOrigin(operation), taken=taken, answers=answers, accounts=accounts, booked=booked
    )
    function = handlers.effects[operation.effect].callback
    if function is not None:
        function(operation, bench.transaction(cause=operation.cause, handler=operation.effect))
    result = bench.result()
    result.ignored = function is None
    return result


@dataclass(frozen=True, slots=True)
class _SettledOrigin:
    operation: Settled
    created: datetime | None = None

    @property
    def account(self) -> str:
        return self.operation.account

    @property
    def mode(self) -> str:
        return self.operation.mode


class _Bench:
    """One transaction that is recorded instead of run."""

    def __init__(
        self,
        handlers: Handlers,
        *,
        origin: Origin,
        taken: Iterable[tuple[str, ...]],
        answers: Sequence[Sequence[Mapping[str, Any]]],
        accounts: Iterable[str],
        booked: Mapping[tuple[str, ...], int],
    ) -> None:
        handlers.check()
        self.booked_before = {fact_key(namespace, tuple(parts)): total for (namespace, *parts), total in booked.items()}
        self.booked = dict(self.booked_before)
        self.origin = origin
        self.effects = Effects()
        self.known = Known()
        self.known.facts.remember(fact_key(namespace, tuple(parts)) for namespace, *parts in taken)
        rules = RequestRules(frozenset({origin.account, *accounts}), handlers.effects)
        self.requests = Requests(self.known.operations, rules)
        self.answers = list(answers)
        self.statements: list[tuple[str, Parameters]] = []

    def transaction(self, *, cause: str, handler: str) -> Tx:
        return _RecordingTx(self, cause=cause, handler=handler)

    def result(self) -> Result:
        return Result(
            outcomes=[
                OutcomeAsked(outcome.outcome_id, outcome.type, outcome.key, json.loads(outcome.value))
                for outcome in self.effects.outcomes
            ],
            facts=self.effects.facts,
            operations=[
                OperationAsked(
                    id=str(one.id), effect=one.effect, subject=one.subject, occurrence=one.occurrence,
                    order_key=one.order_key, account=one.account, mode=one.mode, args=json.loads(one.args), call=one.call,
                )
                for one in self.effects.operations
            ],
            statements=self.statements, ignored_because=self.effects.ignored,
            booked={key: total for key, total in self.booked.items() if self.booked_before.get(key) != total},
        )  # fmt: skip


class _RecordingTx(Tx):
    """A ``Tx`` whose SQL is recorded instead of run."""

    __slots__ = ("_bench",)

    def __init__(self, bench: _Bench, *, cause: str, handler: str) -> None:
        super().__init__(
            cast("Connection[Any]", None),
            cause=cause,
            handler=handler,
            effects=bench.effects,
            facts=bench.known.facts,
            lane_count=LANE_COUNT,
            value_bytes_max=VALUE_BYTES_MAX,
            requests=bench.requests,
            origin=bench.origin,
        )
        self._bench = bench

    @property
    def connection(self) -> Connection[Any]:
        """There is none here."""
        message = "onceflow.testing has no database: test what uses tx.connection against a real one"
        raise AssertionError(message)

    def execute(self, query: Query, parameters: Parameters = None) -> int:
        """Record a statement; it touches one row."""
        self._bench.statements.append((_text(query), parameters))
        return 1

    def _book(self, key: FactKey, total: int) -> int:
        before = self._bench.booked.get(key, 0)
        self._bench.booked[key] = max(before, total)
        return max(total - before, 0)

    def fetch_one(self, query: Query, parameters: Parameters = None) -> dict[str, Any] | None:
        """Record a query and give the first row of its answer."""
        rows = self.fetch_all(query, parameters)
        return rows[0] if rows else None

    def fetch_all(self, query: Query, parameters: Parameters = None) -> list[dict[str, Any]]:
        """Record a query and give its answer."""
        self._bench.statements.append((_text(query), parameters))
        if not self._bench.answers:
            message = f"the handler asked a query that the test has no answer for: {_text(query)[:200]}"
            raise AssertionError(message)
        return [dict(row) for row in self._bench.answers.pop(0)]


def _text(query: Query) -> str:
    if isinstance(query, bytes):
        return query.decode()
    return query if isinstance(query, str) else query.as_string(None)
