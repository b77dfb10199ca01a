"""Run handlers in your own unit tests, without a broker or a database.

    from onceflow.testing import event, run

    result = run(handlers, event("invoice.paid", {"id": "in_1", "amount_paid": 1200}))
    assert result.outcomes[0].data == {...}

Rule: what a handler asks for is checked by the same code as in production; only the SQL is not run: it is recorded, and
answered with the rows that the test gives.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast
from uuid import UUID

from psycopg import Connection

from onceflow_processor.effects import Effects, FactKey, fact_key
from onceflow_processor.event import Event
from onceflow_processor.facts import Facts
from onceflow_processor.handler_run import call
from onceflow_processor.handlers import Handlers
from onceflow_processor.tx import Parameters, Query, Tx
from onceflow_schemas.envelope import read_envelope
from onceflow_schemas.failure import Refused
from onceflow_schemas.identity import Identity

CREATED = 1_767_225_600
"""The creation time of test events: 2026-01-01T00:00:00Z."""

LANE_COUNT = 6
VALUE_BYTES_MAX = 1_000_000


@dataclass(frozen=True, slots=True)
class OutcomeAsked:
    """An outcome that a handler asked for."""

    id: UUID
    type: str
    key: str
    data: Any


@dataclass(slots=True)
class Result:
    """What the handlers of an event asked for; ``ignored`` when no handler has its type."""

    ignored: bool = False
    outcomes: list[OutcomeAsked] = field(default_factory=list)
    facts: list[FactKey] = field(default_factory=list)
    statements: list[tuple[str, Parameters]] = field(default_factory=list)


def event(
    event_type: str,
    subject: Mapping[str, Any],
    *,
    event_id: str = "evt_test_1",
    account: str = "acct_test",
    created: int = CREATED,
    previous_attributes: Mapping[str, Any] | None = None,
) -> Event:
    """Make an event about an object, read as strictly as a real one.

    Args:
        event_type: such as ``invoice.paid``.
        subject: the object (``data.object``).
        event_id: ``evt_...``.
        account: ``acct_...``.
        created: unix seconds.
        previous_attributes: for ``*.updated`` events.

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
    )


def run(
    handlers: Handlers,
    event: Event,
    *,
    taken: Iterable[tuple[str, ...]] = (),
    answers: Sequence[Sequence[Mapping[str, Any]]] = (),
) -> Result:
    """Run the handlers of an event.

    Args:
        handlers: the registry; it is checked first.
        event: from ``event``.
        taken: facts (namespace, key parts ...) that other events have claimed before.
        answers: the rows that the handlers' queries get, one list per query in their order.

    Raises:
        Whatever a handler raises; AssertionError when it asks more queries than there are answers.
    """
    handlers.check()
    facts = Facts()
    facts.remember(fact_key(namespace, tuple(parts)) for namespace, *parts in taken)
    result = Result()
    found = handlers.for_type(event.type)
    result.ignored = not found
    effects = Effects()
    left = list(answers)
    for handler in found:
        recording = _RecordingTx(event, handler=handler.name, effects=effects, facts=facts, result=result, answers=left)
        call(handler, event, transaction=recording)
    result.facts = effects.facts
    result.outcomes = [
        OutcomeAsked(outcome.outcome_id, outcome.type, outcome.key, json.loads(outcome.value))
        for outcome in effects.outcomes
    ]
    return result


class _RecordingTx(Tx):
    """A ``Tx`` whose SQL is recorded instead of run."""

    __slots__ = ("_answers", "_result")

    def __init__(
        self,
        event: Event,
        *,
        handler: str,
        effects: Effects,
        facts: Facts,
        result: Result,
        answers: list[Sequence[Mapping[str, Any]]],
    ) -> None:
        super().__init__(
            cast("Connection[Any]", None),
            cause=event.cause,
            handler=handler,
            effects=effects,
            facts=facts,
            lane_count=LANE_COUNT,
            value_bytes_max=VALUE_BYTES_MAX,
        )
        self._result = result
        self._answers = answers

    @property
    def connection(self) -> Connection[Any]:
        """There is none here."""
        message = "onceflow.testing has no database: test what uses tx.connection against a real one"
        raise AssertionError(message)

    def execute(self, query: Query, parameters: Parameters = None) -> int:
        """Record a statement; it touches one row."""
        self._result.statements.append((_text(query), parameters))
        return 1

    def fetch_one(self, query: Query, parameters: Parameters = None) -> dict[str, Any] | None:
        """Record a query and give the first row of its answer."""
        rows = self.fetch_all(query, parameters)
        return rows[0] if rows else None

    def fetch_all(self, query: Query, parameters: Parameters = None) -> list[dict[str, Any]]:
        """Record a query and give its answer."""
        self._result.statements.append((_text(query), parameters))
        if not self._answers:
            message = f"the handler asked a query that the test has no answer for: {_text(query)[:200]}"
            raise AssertionError(message)
        return [dict(row) for row in self._answers.pop(0)]


def _text(query: Query) -> str:
    if isinstance(query, bytes):
        return query.decode()
    return query if isinstance(query, str) else query.as_string(None)
