"""Events that come in the wrong order, unpaid sessions, disputes, partial refunds: the right answer from every order."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections import Counter
from collections.abc import Sequence

import pytest

from onceflow_processor.event import Event
from onceflow_processor.handlers import Handlers
from onceflow_processor.tx import Tx
from tests.processor import conftest
from tests.processor.conftest import Bench
from tests.processor.reports.shop import shop
from tests.processor.reports.stripe_events import MakeBench, records, told

SUBSCRIPTION = "customer.subscription"


class Feed:
    """Runs event bodies one batch after the other."""

    def __init__(self, one: Bench) -> None:
        self.one = one
        self.offset = 0

    def run(self, *batches: Sequence[bytes]) -> None:
        for batch in batches:
            self.one.run(records(batch, first=self.offset))
            self.offset += len(batch)


def outcomes(one: Bench, key: str) -> Counter[str]:
    """Types of the outcomes about a key; those that tell a single transition left out."""
    rows = one.rows("SELECT type FROM onceflow.outcome WHERE key = %s AND type NOT LIKE 'seen.%%'", key)
    return Counter(row["type"] for row in rows)


def amounts(one: Bench, kind: str, key: str) -> list[int]:
    rows = one.rows("SELECT value FROM onceflow.outcome WHERE type = %s AND key = %s ORDER BY created_at", kind, key)
    return [json.loads(bytes(row["value"]))["amount"] for row in rows]


def state(one: Bench, name: str) -> str:
    [row] = one.rows("SELECT note FROM public.ledger WHERE event_id = %s", name)
    return str(row["note"])


@pytest.mark.parametrize("partitions", [1, 2])
@pytest.mark.parametrize("together", [True, False])
def test_an_update_that_comes_before_the_creation(bench: MakeBench, partitions: int, *, together: bool) -> None:
    handlers = shop()

    @handlers.on(f"{SUBSCRIPTION}.created", order="each", name="created")
    def created(event: Event, tx: Tx) -> None:
        tx.outcome("created", key=event.object["id"], data={"stale": event.is_stale})

    @handlers.on(f"{SUBSCRIPTION}.updated", order="each", name="activated")
    def activated(event: Event, tx: Tx) -> None:
        if (event.previous_attributes.get("status"), event.object["status"]) == ("incomplete", "active"):
            tx.outcome("activated", key=event.object["id"], data={"stale": event.is_stale})

    one = bench(handlers)
    subject = {"id": "sub_1", "object": "subscription"}
    before = {"status": "incomplete"}
    newer = told("evt_B", f"{SUBSCRIPTION}.updated", {**subject, "status": "active"}, at=1, before=before)
    older = told("evt_A", f"{SUBSCRIPTION}.created", {**subject, "status": "incomplete"})
    first = records([newer])
    second = records([older], first=2 - partitions, partition=partitions - 1)
    for batch in [first + second] if together else [first, second]:
        one.run(batch)
    assert state(one, "sub_1") == "active"
    assert one.states() == {"evt_A": "processed", "evt_B": "processed"}
    assert outcomes(one, "sub_1") == {"created": 1, "activated": 1}


def test_two_event_ids_of_one_change_have_one_effect(bench: MakeBench) -> None:
    one = bench(shop())
    subject = {"id": "sub_1", "object": "subscription", "status": "active"}
    twice = [
        told(name, f"{SUBSCRIPTION}.updated", subject, before={"status": "trialing"}, request={"id": "req_1"})
        for name in ("evt_1", "evt_2")
    ]
    Feed(one).run(twice[:1], twice[1:])
    assert set(one.states().values()) == {"processed"}
    assert len(one.outcomes()) == 1


def test_a_change_there_and_back_within_a_second_is_three_transitions(bench: MakeBench) -> None:
    """Stripe changed it by itself, so no request tells the steps apart."""
    one = bench(shop())
    steps = [(2, 1), (1, 2), (3, 1)]
    bodies = [
        told(
            f"evt_{after}_{before}",
            f"{SUBSCRIPTION}.updated",
            subscription(n=after),
            before={"n": before},
            request=None,
        )
        for after, before in steps
    ]
    twin = told("evt_twin", f"{SUBSCRIPTION}.updated", subscription(n=3), before={"n": 1}, request=None)
    one.run(records([*bodies, twin]))
    assert len(one.rows("SELECT FROM onceflow.outcome WHERE type LIKE 'seen.%%'")) == len(steps)


def subscription(**fields: object) -> dict[str, object]:
    return {"id": "sub_1", "object": "subscription", "status": "active", **fields}


@pytest.mark.parametrize("created", [0, 4_102_444_800, 253_402_300_799])
def test_odd_times_of_events_are_times(bench: MakeBench, created: int) -> None:
    """1970, 2100, the last second of the calendar: compared as any other."""
    one, subject = bench(shop()), {"id": "sub_1", "object": "subscription"}
    at = created - 1_767_225_600
    newer = told("evt_2", f"{SUBSCRIPTION}.updated", {**subject, "status": "active"}, at=at)
    older = told("evt_1", f"{SUBSCRIPTION}.created", {**subject, "status": "incomplete"}, at=at)
    Feed(one).run([newer], [older])
    assert state(one, "sub_1") == "active"
    assert set(one.states().values()) == {"processed"}


def test_an_older_failure_after_the_payment(bench: MakeBench) -> None:
    one = bench(shop())
    invoice = {"id": "in_1", "object": "invoice", "amount_paid": 0, "attempt_count": 1, "status": "open"}
    paid = {**invoice, "amount_paid": 500, "attempt_count": 2, "status": "paid"}
    bodies = [
        told("evt_2", "invoice.paid", paid, at=9),
        told("evt_1", "invoice.payment_failed", invoice, at=1),
        told("evt_3", "invoice.payment_succeeded", paid, at=9),
    ]
    Feed(one).run(*([body] for body in bodies))
    assert state(one, "in_1") == "paid"
    assert outcomes(one, "in_1") == {"paid": 1}


def test_objects_of_two_accounts_have_two_guards(bench: MakeBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same id in another account is another object."""
    handlers, met = Handlers(), list[tuple[str, bool]]()

    @handlers.on(f"{SUBSCRIPTION}.updated", order="latest")
    def look(event: Event, _tx: Tx) -> None:
        met.append((event.account, event.is_stale))

    rules = dataclasses.replace(conftest.RULES, accounts=frozenset({conftest.ACCOUNT, "acct_other"}))
    monkeypatch.setattr(conftest, "RULES", rules)
    one = bench(handlers)
    subject = {"id": "sub_1", "object": "subscription", "status": "active"}
    newer = told("evt_2", f"{SUBSCRIPTION}.updated", subject, at=5)
    older = told("evt_1", f"{SUBSCRIPTION}.updated", subject, at=1, account="acct_other")
    Feed(one).run([newer, older])
    assert met == [("acct_test", False), ("acct_other", False)]


SESSION = {"id": "cs_9", "object": "checkout.session", "status": "complete", "amount_total": 700}
COMPLETED = told("evt_1", "checkout.session.completed", {**SESSION, "payment_status": "unpaid"})
SUCCEEDED = told("evt_2", "checkout.session.async_payment_succeeded", {**SESSION, "payment_status": "paid"}, at=259_200)
FAILED = told(
    "evt_3", "checkout.session.async_payment_failed", {**SESSION, "payment_status": "unpaid", "n": 1}, at=259_200
)
PROCESSING = told(
    "evt_4", "payment_intent.processing", {"id": "pi_9", "object": "payment_intent", "status": "processing"}, at=1
)


@pytest.mark.parametrize(
    ("bodies", "paid", "failed", "last"),
    [
        ([COMPLETED], 0, 0, "complete unpaid"),
        ([COMPLETED, PROCESSING, SUCCEEDED], 1, 0, "complete paid"),
        ([SUCCEEDED, PROCESSING, COMPLETED], 1, 0, "complete paid"),
        ([COMPLETED, PROCESSING, FAILED], 0, 1, "complete unpaid 1"),
        ([FAILED, COMPLETED], 0, 1, "complete unpaid 1"),
    ],
)
def test_a_session_that_is_completed_but_unpaid(
    bench: MakeBench, bodies: list[bytes], paid: int, failed: int, last: str
) -> None:
    one = bench(shop())
    Feed(one).run(*([body] for body in bodies))
    counted = outcomes(one, "cs_9")
    assert (counted["order.paid"], counted["order.failed"]) == (paid, failed)
    assert state(one, "cs_9") == last


def disputed(event: str, status: str, *, at: int, amount: int = 2500) -> bytes:
    subject = {
        "id": "dp_1", "object": "dispute", "status": status, "amount": amount, "fee": 1500, "charge": "ch_1", "n": at,
    }  # fmt: skip
    return told(f"evt_d{at}", f"charge.dispute.{event}", subject, at=at)


WON = [
    disputed("created", "needs_response", at=1),
    disputed("funds_withdrawn", "needs_response", at=2),
    disputed("closed", "won", at=3),
    disputed("funds_reinstated", "won", at=4),
]
LOST = [*WON[:2], disputed("closed", "lost", at=3), disputed("funds_reinstated", "lost", at=4)]


def charged(event: str, refunded: int, *, at: int, name: str = "") -> bytes:
    subject = {"id": "ch_1", "object": "charge", "status": "succeeded", "amount": 2500, "amount_refunded": refunded}
    return told(name or f"evt_c{at}", f"charge.{event}", subject, at=at)


def in_all_orders(one: Bench, bodies: Sequence[bytes]) -> list[str]:
    """Run every order of the events, each about a charge and a dispute of its own; return the numbers of both."""
    feed = Feed(one)
    orders = list(itertools.permutations(bodies))
    for number, order in enumerate(orders):
        feed.run(
            [
                body.replace(b"dp_1", b"dp_%d" % number)
                .replace(b"ch_1", b"ch_%d" % number)
                .replace(b"evt_", b"evt_%d_" % number)
                for body in order
            ]
        )
    return [str(number) for number in range(len(orders))]


def net(one: Bench, charge: str) -> int:
    """What was taken back of what was credited, less what was given back."""
    return sum(amounts(one, "taken.back", charge)) - sum(amounts(one, "given.back", charge))


def test_a_dispute_that_is_won_moves_nothing_in_the_end(bench: MakeBench) -> None:
    one = bench(shop())
    was_taken = set()
    for number in in_all_orders(one, [charged("succeeded", 0, at=0), *WON]):
        name = f"dp_{number}"
        assert state(one, name) == "won  4"
        assert outcomes(one, name) == {"funds.withdrawn": 1, "funds.reinstated": 1, "dispute.won": 1}
        assert amounts(one, "funds.withdrawn", name) == amounts(one, "funds.reinstated", name) == [2500]
        assert net(one, f"ch_{number}") == 0
        was_taken.add(sum(amounts(one, "taken.back", f"ch_{number}")))
    assert was_taken == {0, 2500}, "in some orders it was taken first, and given back"
    [row] = one.rows("SELECT value FROM onceflow.outcome WHERE type = 'funds.withdrawn' LIMIT 1")
    assert json.loads(bytes(row["value"])) == {"amount": 2500, "fee": 1500}


def test_the_status_says_who_won_and_not_the_type_of_the_event(bench: MakeBench) -> None:
    one = bench(shop())
    for number in in_all_orders(one, [charged("succeeded", 0, at=0), *LOST]):
        name = f"dp_{number}"
        assert state(one, name) == "lost  4"
        assert outcomes(one, name) == {"funds.withdrawn": 1, "funds.reinstated": 1, "dispute.lost": 1}
        assert net(one, f"ch_{number}") == 2500
    assert one.rows("SELECT 1 FROM onceflow.outcome WHERE type = 'given.back'") == []


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_no_more_is_taken_back_than_was_credited(bench: MakeBench, order: tuple[int, ...]) -> None:
    """A dispute about a part of a charge that was refunded whole."""
    bodies = [
        charged("succeeded", 0, at=1),
        charged("refunded", 2500, at=5),
        disputed("created", "needs_response", at=6, amount=400),
    ]
    one = bench(shop())
    Feed(one).run(*([bodies[place]] for place in order))
    assert sum(amounts(one, "taken.back", "ch_1")) == 2500
    assert amounts(one, "given.back", "ch_1") == []


REFUNDS = [charged("refunded", sum_, at=at) for at, sum_ in enumerate([1000, 1500, 2500])]


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (2, 1, 0), (0, 2), (2, 0)])
@pytest.mark.parametrize("together", [True, False])
def test_partial_refunds_add_up_to_the_running_total(
    bench: MakeBench, order: tuple[int, ...], *, together: bool
) -> None:
    """Each event twice by its id and once more under another id; the one in the middle may never come.

    The status is read after each batch: partial until the whole is refunded, then full for ever.
    """
    one = bench(shop())
    bodies = [REFUNDS[place] for place in order]
    other_ids = [body.replace(b"evt_c", b"evt_x") for body in bodies]
    told_all = [*bodies, *bodies, *other_ids]
    refund = told(
        "evt_r",
        "refund.created",
        {"id": "re_1", "object": "refund", "status": "succeeded", "amount": 1000, "charge": "ch_1"},
    )
    feed = Feed(one)
    for number, batch in enumerate([told_all] if together else [[body] for body in told_all]):
        feed.run(batch)
        highest = 2 if together else max(order[: number + 1])
        assert state(one, "ch_1") == ("full" if highest == 2 else "partial")
    feed.run([refund])
    assert state(one, "ch_1") == "full"
    reversals = amounts(one, "refunded", "ch_1")
    assert sum(reversals) == 2500
    assert len(reversals) <= len(order)
    totals = one.rows("SELECT namespace, total FROM onceflow.booked WHERE namespace = 'refunded'")
    assert totals == [{"namespace": "refunded", "total": 2500}]
