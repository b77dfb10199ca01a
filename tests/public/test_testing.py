"""The test bench for handlers: the same checks as in production, SQL recorded, answers from the test."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from psycopg.sql import SQL, Identifier

from onceflow import Event, Handlers, OperationConflict, Previous, Quarantine, RetryIn, Settled, StripeCall, Tx
from onceflow.testing import CREATED, OperationAsked, OutcomeAsked, event, run, run_settled, settled
from onceflow_processor.operations.effect import Effect
from onceflow_schemas.failure import Misconfigured, Refused
from onceflow_schemas.identity import operation_id, outcome_id

INVOICE = {"id": "in_1", "object": "invoice", "amount_paid": 1200, "currency": "usd"}


def registry(function: Any, *types: str) -> Handlers:
    handlers = Handlers()
    handlers.on(*(types or ("invoice.paid",)), name="h")(function)
    return handlers


def test_an_event_is_read_as_strictly_as_a_real_one() -> None:
    made = event("invoice.paid", INVOICE, event_id="evt_9", account="acct_9", previous_attributes={"paid": False})
    assert (made.id, made.account, made.type, made.livemode) == ("evt_9", "acct_9", "invoice.paid", False)
    assert made.object == INVOICE
    assert made.previous_attributes == {"paid": False}
    assert made.created.timestamp() == CREATED
    assert made.cause == "event:acct_9/test/evt_9"
    assert b'"id": "evt_9"' in made.raw


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"subject": {"id": "in_1", "amount": 1.5}}, "bad_amount"),
        ({"subject": {}}, "not_an_event"),
        ({"event_type": "a b"}, "bad_type"),
        ({"event_id": "in_1"}, "bad_event_id"),
        ({"created": -1}, "bad_created"),
        ({"subject": {"id": "in_1", "metadata": {"a": float("nan")}}}, "bad_number"),
    ],
)
def test_an_event_that_would_be_quarantined_is_refused(arguments: dict[str, Any], code: str) -> None:
    with pytest.raises(Refused) as refused:
        event(**{"event_type": "invoice.paid", "subject": INVOICE, **arguments})
    assert refused.value.code == code


def test_texts_that_postgresql_cannot_hold_are_replaced_as_in_production() -> None:
    made = event("invoice.paid", {"id": "in_1", "description": "a\0b\ud800"})
    assert made.text_replaced
    assert made.object["description"] == "a\ufffdb\ufffd"


def test_what_the_handlers_asked_for_is_returned() -> None:
    def handler(event: Event, tx: Tx) -> None:
        assert tx.once("paid", event.object["id"])
        assert tx.execute("UPDATE a SET b = %s", [1]) == 1
        tx.outcome("invoice.paid", key=event.object["id"], data={"b": 1, "a": (2,)})

    result = run(registry(handler), event("invoice.paid", INVOICE))
    cause = "event:acct_test/test/evt_test_1"
    made = outcome_id(cause=cause, handler="h", type="invoice.paid", key="in_1", n=1)
    assert result.outcomes == [OutcomeAsked(made, "invoice.paid", "in_1", {"a": [2], "b": 1})]
    assert result.facts == [("paid", "in_1")]
    assert result.statements == [("UPDATE a SET b = %s", [1])]
    assert not result.ignored


def test_a_type_without_a_handler_is_ignored() -> None:
    result = run(registry(lambda _event, _tx: None), event("charge.refunded", INVOICE))
    assert result.ignored
    assert (result.outcomes, result.facts, result.statements) == ([], [], [])


def test_facts_of_other_events_are_taken() -> None:
    asked = []

    def handler(event: Event, tx: Tx) -> None:
        asked.extend([tx.once("paid", "a/b", "c"), tx.once("paid", "other")])

    result = run(registry(handler), event("invoice.paid", INVOICE), taken=[("paid", "a/b", "c")])
    assert asked == [False, True]
    assert result.facts == [("paid", "other")]


def test_queries_get_their_answers_in_order() -> None:
    seen: list[Any] = []

    def handler(event: Event, tx: Tx) -> None:
        seen.append(tx.fetch_one("SELECT 1"))
        seen.append(tx.fetch_all(b"SELECT 2", {"a": 1}))
        seen.append(tx.fetch_one(SQL("SELECT {}").format(Identifier("x"))))

    answers = [[{"n": 1}, {"n": 2}], [{"m": 1}], []]
    result = run(registry(handler), event("invoice.paid", INVOICE), answers=answers)
    assert seen == [{"n": 1}, [{"m": 1}], None]
    assert result.statements == [("SELECT 1", None), ("SELECT 2", {"a": 1}), ('SELECT "x"', None)]


def test_an_answer_is_a_copy() -> None:
    row = {"n": 1}

    def handler(event: Event, tx: Tx) -> None:
        found = tx.fetch_one("SELECT 1")
        assert found is not None
        found["n"] = 2

    run(registry(handler), event("invoice.paid", INVOICE), answers=[[row]])
    assert row == {"n": 1}


def test_a_query_without_an_answer_is_named() -> None:
    with pytest.raises(AssertionError, match="SELECT balance"):
        run(registry(lambda _event, tx: tx.fetch_all("SELECT balance")), event("invoice.paid", INVOICE))


def test_there_is_no_connection() -> None:
    with pytest.raises(AssertionError, match="no database"):
        run(registry(lambda _event, tx: tx.connection), event("invoice.paid", INVOICE))


def test_what_a_handler_raises_comes_out() -> None:
    def handler(event: Event, tx: Tx) -> None:
        raise KeyError(event.id)

    with pytest.raises(KeyError):
        run(registry(handler), event("invoice.paid", INVOICE))


def test_an_outcome_that_production_would_refuse_is_refused() -> None:
    def handler(event: Event, tx: Tx) -> None:
        tx.outcome("t", key="k", data={"a": float("nan")})

    with pytest.raises(Refused, match="NaN"):
        run(registry(handler), event("invoice.paid", INVOICE))


def test_a_function_that_hides_a_coroutine_is_refused() -> None:
    """Nothing of it would run, and the event would count as processed."""

    async def later() -> None:
        raise AssertionError

    class Later:
        def __await__(self) -> Iterator[None]:
            raise AssertionError

    for hidden in (later, Later):
        with pytest.raises(Refused) as refused:
            run(registry(lambda _event, _tx, hidden=hidden: hidden()), event("invoice.paid", INVOICE))
        assert refused.value.code == "handler_failed"


def test_faulty_registrations_are_found_first() -> None:
    with pytest.raises(Misconfigured):
        run(Handlers(), event("invoice.paid", INVOICE))


def test_handlers_of_one_type_share_the_facts_of_their_event() -> None:
    asked = []
    handlers = Handlers()
    handlers.on("invoice.paid", name="first")(lambda _event, tx: asked.append(tx.once("n", "k")))
    handlers.on("invoice.*", name="second")(lambda _event, tx: asked.append(tx.once("n", "k")))
    assert run(handlers, event("invoice.paid", INVOICE)).facts == [("n", "k")]
    assert asked == [True, False]


def fees() -> Handlers:
    handlers = Handlers()

    @handlers.effect("refund_fee")
    def refund_fee(charge: str, amount: int) -> StripeCall:
        return StripeCall.refund(charge=charge, amount=amount)

    @handlers.on("invoice.paid")
    def ask(event: Event, tx: Tx) -> None:
        tx.request(refund_fee, subject=event.object["id"], order_key="cus_1", charge="ch_1", amount=5)

    @refund_fee.settled
    def told(operation: Settled, tx: Tx) -> None:
        tx.outcome(f"fee.{operation.state}", key=operation.subject, data={"operation": operation.id})
        if operation.state == "failed" and tx.once("again", operation.id):
            tx.request(refund_fee, subject=operation.subject, occurrence=2, charge="ch_1", amount=5)

    return handlers


def test_operations_are_returned_with_their_calls() -> None:
    made = str(operation_id(account="acct_test", mode="test", effect="refund_fee", subject="in_1", occurrence=1))
    assert run(fees(), event("invoice.paid", INVOICE)).operations == [
        OperationAsked(
            made, "refund_fee", "in_1", 1, "cus_1", "acct_test", "test", {"amount": 5, "charge": "ch_1"},
            StripeCall.post("/v1/refunds", charge="ch_1", amount=5),
        )
    ]  # fmt: skip


def test_what_happens_when_an_operation_is_settled() -> None:
    handlers = fees()
    [asked] = run(handlers, event("invoice.paid", INVOICE)).operations
    fine = run_settled(handlers, settled(asked, external_id="re_1", result={"status": "succeeded"}))
    assert [(one.type, one.data) for one in fine.outcomes] == [("fee.succeeded", {"operation": asked.id})]
    cause = f"operation:{asked.id}/succeeded"
    assert fine.outcomes[0].id == outcome_id(cause=cause, handler="refund_fee", type="fee.succeeded", key="in_1", n=1)
    assert fine.operations == []
    lost = run_settled(handlers, settled(asked, "failed"))
    assert [(one.subject, one.occurrence) for one in lost.operations] == [("in_1", 2)]
    assert run_settled(handlers, settled(asked, "failed"), taken=[("again", asked.id)]).operations == []


def _ask(tx: Tx, effect: Effect) -> None:
    tx.request(effect, subject="s", charge="ch_1")


def test_an_effect_without_a_settled_function_is_ignored() -> None:
    handlers = Handlers()
    refund = handlers.use(StripeCall.refund, name="refund")
    handlers.on("invoice.paid", name="h")(lambda _event, tx: _ask(tx, refund))
    [asked] = run(handlers, event("invoice.paid", INVOICE)).operations
    assert run_settled(handlers, settled(asked)).ignored


def test_a_second_wish_is_a_conflict_and_another_account_is_named() -> None:
    handlers = Handlers()
    refund = handlers.use(StripeCall.refund, name="refund")

    def twice(event: Event, tx: Tx) -> None:
        tx.request(refund, subject="s", charge="ch_1")
        with pytest.raises(OperationConflict):
            tx.request(refund, subject="s", charge="ch_2")
        tx.request(refund, subject="s", account="acct_2", charge="ch_2")

    handlers.on("invoice.paid")(twice)
    made = run(handlers, event("invoice.paid", INVOICE), accounts=["acct_2"]).operations
    assert [one.account for one in made] == ["acct_test", "acct_2"]
    with pytest.raises(Refused, match="acct_2 is not an account"):
        run(handlers, event("invoice.paid", INVOICE))


def test_running_totals_are_booked_as_in_production() -> None:
    told: list[int] = []

    def handler(event: Event, tx: Tx) -> None:
        told.extend(tx.book("refunded", event.object["id"], total=total) for total in (1000, 1500, 1500, 700))

    handlers = registry(handler)
    assert run(handlers, event("invoice.paid", INVOICE)).booked == {("refunded", "in_1"): 1500}
    assert told == [1000, 500, 0, 0]
    told.clear()
    assert run(handlers, event("invoice.paid", INVOICE), booked={("refunded", "in_1"): 1500}).booked == {}
    assert told == [0, 0, 0, 0]


@pytest.mark.parametrize("total", [-1, 1.0, "5", 2**63, True])
def test_an_impossible_total_is_refused(total: Any) -> None:
    def handler(event: Event, tx: Tx) -> None:
        tx.book("refunded", event.object["id"], total=total)

    with pytest.raises(Refused, match="whole number"):
        run(registry(handler), event("invoice.paid", INVOICE))


def test_an_event_says_what_the_guard_would_say() -> None:
    before = Previous("evt_0", "invoice.finalized", datetime(2026, 1, 1, tzinfo=UTC), "open")
    made = event("invoice.paid", INVOICE, is_stale=True, previous=before)
    assert (made.is_stale, made.previous) == (True, before)
    assert (event("invoice.paid", INVOICE).is_stale, event("invoice.paid", INVOICE).previous) == (False, None)


def test_a_writer_of_state_does_not_meet_a_stale_event() -> None:
    handlers, met = Handlers(), list[str]()

    @handlers.on("invoice.paid", order="latest")
    def write(_event: Event, _tx: Tx) -> None:
        met.append("latest")

    @handlers.on("invoice.paid", order="each")
    def note(_event: Event, _tx: Tx) -> None:
        met.append("each")

    result = run(handlers, event("invoice.paid", INVOICE, is_stale=True))
    assert (met, result.ignored) == (["each"], False)
    run(handlers, event("invoice.paid", INVOICE))
    assert met[1:] == ["latest", "each"]


@pytest.mark.parametrize("has_more", [False, True])
def test_lines_are_those_that_the_test_gives(*, has_more: bool) -> None:
    handlers = Handlers()

    @handlers.on("invoice.paid", lines="all")
    def count(event: Event, tx: Tx) -> None:
        tx.outcome(
            "lines", key="in_1", data={"shown": len(event.object["lines"]["data"]), "cut": event.lines_truncated}
        )

    lines = {"object": "list", "has_more": has_more, "data": [{"id": "il_1"}, {"id": "il_2"}]}
    [told] = run(handlers, event("invoice.paid", {**INVOICE, "lines": lines})).outcomes
    assert told.data == {"shown": 2, "cut": has_more}


@pytest.mark.parametrize("said", [RetryIn(60, "not signed yet"), Quarantine("two contracts match")])
def test_what_a_handler_says_of_its_event_is_told_and_the_rest_rolled_back(said: RetryIn | Quarantine) -> None:
    handlers = Handlers()

    @handlers.on("invoice.paid")
    def wait(_event: Event, tx: Tx) -> None:
        tx.outcome("invoice.paid", key="in_1", data={})
        raise said

    result = run(handlers, event("invoice.paid", {"id": "in_1"}))
    assert result.said is said
    assert (result.outcomes, result.ignored) == ([], False)
