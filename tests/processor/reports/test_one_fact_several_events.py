"""One business fact told by several events has one effect, and all of them are linked to it."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from onceflow_processor.event import Event
from onceflow_processor.handlers import Handlers
from onceflow_processor.tx import Tx
from tests.processor.conftest import ACCOUNT, Bench
from tests.processor.reports.stripe_events import MakeBench, records, told

PAYMENT = [
    told("evt_i", "payment_intent.succeeded", {"id": "pi_7", "object": "payment_intent", "amount": 15000}),
    told("evt_c", "charge.succeeded", {"id": "ch_7", "object": "charge", "payment_intent": "pi_7", "amount": 15000}),
    told(
        "evt_s",
        "checkout.session.completed",
        {"id": "cs_7", "object": "checkout.session", "payment_intent": "pi_7", "amount_total": 15000},
    ),
]
ORDERS = list(itertools.permutations(range(3)))


def credit() -> Handlers:
    handlers = Handlers()

    @handlers.on("payment_intent.succeeded", "charge.succeeded", "checkout.session.completed")
    def credit(event: Event, tx: Tx) -> None:
        subject = event.object
        intent = subject["id"] if subject["object"] == "payment_intent" else subject["payment_intent"]
        if tx.once("credit", intent):
            amount = subject.get("amount", subject.get("amount_total"))
            tx.outcome("credited", key=intent, data={"amount": amount})

    return handlers


def linked(one: Bench) -> tuple[str, set[str]]:
    [fact] = one.rows("SELECT cause FROM onceflow.fact WHERE namespace = 'credit' AND key = 'pi_7'")
    claims = one.rows("SELECT cause FROM onceflow.fact_claim WHERE namespace = 'credit' AND key = 'pi_7'")
    return fact["cause"], {row["cause"] for row in claims}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("together", [False, True])
def test_one_payment_is_credited_once_whoever_tells_it_first(
    bench: MakeBench, order: tuple[int, ...], *, together: bool
) -> None:
    one = bench(credit())
    bodies = [PAYMENT[place] for place in order]
    batches = [records(bodies)] if together else [records([body], first=n) for n, body in enumerate(bodies)]
    for batch in batches:
        one.run(batch)
    assert one.outcomes() == [("credited", "pi_7")]
    names = [f"event:{ACCOUNT}/test/{'ics'[place]}" for place in order]
    causes = [name.replace("/test/", "/test/evt_") for name in names]
    assert linked(one) == (causes[0], set(causes[1:]))


def test_a_record_that_is_read_again_claims_nothing_again(bench: MakeBench) -> None:
    one = bench(credit())
    one.run(records(PAYMENT[:2]))
    one.run(records(PAYMENT[:2], first=2))
    assert len(linked(one)[1]) == 1


def test_a_claim_of_an_event_that_fails_is_not_kept(bench: MakeBench) -> None:
    handlers = credit()

    @handlers.on("charge.succeeded", name="fails")
    def fails(_event: Event, _tx: Tx) -> None:
        message = "no"
        raise ValueError(message)

    one = bench(handlers)
    # All are of one key, so whatever comes behind the one that fails would wait for it.
    one.run(records([PAYMENT[0], PAYMENT[2], PAYMENT[1]]))
    assert linked(one) == (f"event:{ACCOUNT}/test/evt_i", {f"event:{ACCOUNT}/test/evt_s"})


def test_an_event_that_asks_twice_is_no_second_claimant(bench: MakeBench) -> None:
    handlers, answers = credit(), list[bool]()

    @handlers.on("payment_intent.succeeded", name="again")
    def again(event: Event, tx: Tx) -> None:
        answers.append(tx.once("credit", event.object["id"]))

    one = bench(handlers)
    one.run(records(PAYMENT[:1]))
    assert answers == [False]
    assert linked(one) == (f"event:{ACCOUNT}/test/evt_i", set())


def test_facts_that_are_claimed_once_cost_no_further_statement(bench: MakeBench) -> None:
    one = bench(credit())
    statements: list[str] = []
    execute = one.connection.execute

    def watch(query: Any, *arguments: Any, **options: Any) -> Any:
        statements.append(query.decode())
        return execute(query, *arguments, **options)

    one.connection.execute = watch  # type: ignore[method-assign]
    one.run(records(PAYMENT[:1]))
    assert any("onceflow.fact " in text for text in statements)
    assert not any("fact_claim" in text for text in statements)


CHANGES: dict[str, dict[str, Any]] = {
    "evt_card": {"default_payment_method": None},
    "evt_back": {"status": "past_due"},
}


@pytest.mark.parametrize("order", list(itertools.permutations(CHANGES)))
def test_two_updates_of_one_change_tell_one_recovery(bench: MakeBench, order: tuple[str, ...]) -> None:
    """One change of a subscription may come as two events; only the one that names the status tells of a recovery."""
    handlers = Handlers()

    @handlers.on("customer.subscription.updated", order="each")
    def recovered(event: Event, tx: Tx) -> None:
        if event.previous_attributes.get("status") == "past_due" and event.object["status"] == "active":
            tx.outcome("recovered", key=event.object["id"], data={})

    @handlers.on("customer.subscription.updated", order="latest")
    def state(event: Event, tx: Tx) -> None:
        tx.execute("INSERT INTO public.ledger (event_id, note) VALUES ('sub_7', %s)", [event.object["status"]])

    subject = {"id": "sub_7", "object": "subscription", "status": "active", "default_payment_method": "pm_2"}
    one = bench(handlers)
    bodies = [told(name, "customer.subscription.updated", subject, before=CHANGES[name]) for name in order]
    one.run(records(bodies))
    assert one.outcomes() == [("recovered", "sub_7")]
    assert one.rows("SELECT note FROM public.ledger") == [{"note": "active"}]
    assert set(one.states().values()) == {"processed"}
