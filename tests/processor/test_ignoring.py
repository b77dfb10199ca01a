"""Events of other applications on the same Stripe account: a handler says so, and nothing comes of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from onceflow import Event, Handlers, Tx
from onceflow.testing import event, run
from onceflow_processor.effects import Effects
from onceflow_processor.ignoring import REASON_CHARACTERS_MAX, note_reason
from onceflow_schemas.failure import Refused
from tests.processor.conftest import Bench, event_body, record

MakeBench = Callable[[Handlers], Bench]
OTHERS = {"id": "pi_1", "object": "payment_intent", "customer": "cus_unknown"}


@pytest.fixture(name="shop")
def handlers_of_a_shop() -> Handlers:
    handlers = Handlers()

    @handlers.on("payment_intent.succeeded")
    def order_paid(event: Event, tx: Tx) -> None:
        if event.object["metadata"].get("app") != "shop":
            tx.ignore("metadata of another app, or none")
            return
        tx.outcome("order.paid", key=event.object["id"], data={})

    @handlers.on("payment_intent.succeeded")
    def counted(event: Event, tx: Tx) -> None:
        tx.execute("INSERT INTO public.ledger (event_id) VALUES (%s)", [event.id])

    return handlers


def paid(event_id: str, metadata: dict[str, str], offset: int) -> Any:
    return record(event_body(event_id, "payment_intent.succeeded", {**OTHERS, "metadata": metadata}), offset)


def test_events_of_another_app_are_processed_with_their_reason_and_without_an_effect(
    bench: MakeBench, shop: Handlers
) -> None:
    one = bench(shop)
    records = [paid("evt_none", {}, 0), paid("evt_other", {"app": "other"}, 1), paid("evt_ours", {"app": "shop"}, 2)]
    end = one.run(records)
    rows = one.rows("SELECT event_id, state, ignored_because FROM onceflow.inbox ORDER BY 1")
    because = "order_paid: metadata of another app, or none"
    assert [tuple(row.values()) for row in rows] == [
        ("evt_none", "processed", because),
        ("evt_other", "processed", because),
        ("evt_ours", "processed", None),
    ]
    assert (one.outcomes(), one.quarantine()) == ([("order.paid", "pi_1")], {})
    assert one.rows("SELECT FROM onceflow.parked_key") == [], "nothing waits behind them"
    assert len(one.rows("SELECT FROM public.ledger")) == 3, "the other handler of the type has run"
    assert [counts.ignored_by for counts in end.counts] == [{"order_paid": 2}]
    # Again, by another record: the marker says that it was met.
    [counts] = one.run([paid("evt_none", {}, 3)]).counts
    assert (counts.duplicate, counts.ignored_by) == (1, {})


def test_a_handler_that_ignores_and_then_fails_leaves_no_reason(bench: MakeBench) -> None:
    handlers = Handlers()

    @handlers.on("payment_intent.succeeded")
    def undecided(_event: Event, tx: Tx) -> None:
        tx.ignore("not ours")
        raise LookupError("cus_unknown")

    one = bench(handlers)
    one.run([paid("evt_none", {}, 0)])
    assert one.rows("SELECT state, ignored_because FROM onceflow.inbox") == [
        {"state": "quarantined", "ignored_because": None}
    ]


@pytest.mark.parametrize("reason", ["", None, 3, "a\x00b", "x" * (REASON_CHARACTERS_MAX + 1)])
def test_a_reason_that_cannot_be_kept_is_refused_at_the_call(reason: Any) -> None:
    with pytest.raises(Refused) as refused:
        note_reason(Effects(), handler="order_paid", reason=reason)
    assert refused.value.code == "effect_refused"


def test_a_unit_test_sees_the_reason(shop: Handlers) -> None:
    result = run(shop, event("payment_intent.succeeded", {**OTHERS, "metadata": {}}))
    assert result.ignored_because == {"order_paid": "metadata of another app, or none"}
    assert (result.outcomes, result.ignored) == ([], False)
