"""The rule of order: the last of each known lifecycle wins from any order of arrival, within one second too."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceflow_schemas.object_order import (
    LIFECYCLES,
    ObjectState,
    Order,
    applied_after,
    compare,
    digest_of,
    read_state,
    transition_of,
)

T0 = datetime(2026, 1, 1, tzinfo=UTC)
Step = tuple[str, dict[str, Any]]


def state(event_type: str, subject: dict[str, Any], *, second: int = 0, event_id: str = "evt_1") -> ObjectState:
    return read_state(subject, created=T0 + timedelta(seconds=second), event_id=event_id, event_type=event_type)


def last_of(states: tuple[ObjectState, ...]) -> ObjectState:
    applied: ObjectState | None = None
    for offered in states:
        applied = applied_after(applied, offered, order=compare(applied, offered))
    assert applied is not None
    return applied


def steps(kind: str, *told: Step) -> list[Step]:
    return [(event_type, {"object": kind, "id": "x_1", **fields}) for event_type, fields in told]


SUBSCRIPTION = "customer.subscription"
LIVES: dict[str, list[Step]] = {
    "subscription": steps(
        "subscription",
        (f"{SUBSCRIPTION}.created", {"status": "incomplete"}),
        (f"{SUBSCRIPTION}.updated", {"status": "active"}),
        (f"{SUBSCRIPTION}.deleted", {"status": "canceled"}),
    ),
    "subscription that was never paid": steps(
        "subscription",
        (f"{SUBSCRIPTION}.created", {"status": "incomplete"}),
        (f"{SUBSCRIPTION}.updated", {"status": "incomplete_expired"}),
    ),
    "subscription that is active at once": steps(
        "subscription",
        (f"{SUBSCRIPTION}.created", {"status": "active", "items": 1}),
        (f"{SUBSCRIPTION}.updated", {"status": "active", "items": 2}),
    ),
    "invoice": steps(
        "invoice",
        ("invoice.created", {"status": "draft", "attempt_count": 0, "amount_paid": 0}),
        ("invoice.finalized", {"status": "open", "attempt_count": 0, "amount_paid": 0}),
        ("invoice.payment_failed", {"status": "open", "attempt_count": 1, "amount_paid": 0}),
        ("invoice.payment_action_required", {"status": "open", "attempt_count": 2, "amount_paid": 0}),
        ("invoice.payment_failed", {"status": "open", "attempt_count": 3, "amount_paid": 0}),
        ("invoice.paid", {"status": "paid", "attempt_count": 3, "amount_paid": 500}),
    ),
    "invoice given up": steps(
        "invoice",
        ("invoice.created", {"status": "draft"}),
        ("invoice.finalized", {"status": "open"}),
        ("invoice.sent", {"status": "open", "sent": True}),
        ("invoice.marked_uncollectible", {"status": "uncollectible"}),
        ("invoice.voided", {"status": "void"}),
    ),
    "payment": steps(
        "payment_intent",
        ("payment_intent.created", {"status": "requires_payment_method"}),
        ("payment_intent.requires_action", {"status": "requires_action"}),
        ("payment_intent.processing", {"status": "processing"}),
        ("payment_intent.amount_capturable_updated", {"status": "requires_capture"}),
        ("payment_intent.succeeded", {"status": "succeeded", "amount_received": 500}),
    ),
    "payment canceled": steps(
        "payment_intent",
        ("payment_intent.created", {"status": "requires_payment_method"}),
        ("payment_intent.payment_failed", {"status": "requires_payment_method", "error": 1}),
        ("payment_intent.canceled", {"status": "canceled"}),
    ),
    "charge": steps(
        "charge",
        ("charge.pending", {"status": "pending", "amount_refunded": 0}),
        ("charge.succeeded", {"status": "succeeded", "amount_refunded": 0}),
        ("charge.captured", {"status": "succeeded", "amount_captured": 500, "amount_refunded": 0}),
        ("charge.refunded", {"status": "succeeded", "amount_captured": 500, "amount_refunded": 100}),
        ("charge.refunded", {"status": "succeeded", "amount_captured": 500, "amount_refunded": 500}),
    ),
    "charge whose balance transaction comes later": steps(
        "charge",
        ("charge.succeeded", {"status": "succeeded", "amount_captured": 5, "balance_transaction": None}),
        ("charge.updated", {"status": "succeeded", "amount_captured": 5, "balance_transaction": "txn_1"}),
    ),
    "refund": steps(
        "refund",
        ("refund.created", {"status": "pending"}),
        ("refund.updated", {"status": "requires_action"}),
        ("refund.updated", {"status": "succeeded"}),
        ("refund.failed", {"status": "failed"}),
    ),
    "dispute": steps(
        "dispute",
        ("charge.dispute.created", {"status": "needs_response"}),
        ("charge.dispute.funds_withdrawn", {"status": "needs_response", "taken": 1}),
        ("charge.dispute.updated", {"status": "under_review"}),
        ("charge.dispute.closed", {"status": "won"}),
        ("charge.dispute.funds_reinstated", {"status": "won", "back": 1}),
    ),
    "dispute that begins as a warning": steps(
        "dispute",
        ("charge.dispute.created", {"status": "warning_needs_response"}),
        ("charge.dispute.updated", {"status": "warning_under_review"}),
        ("charge.dispute.updated", {"status": "needs_response"}),
        ("charge.dispute.closed", {"status": "lost"}),
    ),
    "checkout": steps(
        "checkout.session",
        ("checkout.session.completed", {"status": "complete", "payment_status": "unpaid"}),
        ("checkout.session.async_payment_failed", {"status": "complete", "payment_status": "unpaid", "failed": 1}),
        ("checkout.session.async_payment_succeeded", {"status": "complete", "payment_status": "paid"}),
    ),
    "payout": steps(
        "payout",
        ("payout.created", {"status": "pending"}),
        ("payout.updated", {"status": "in_transit"}),
        ("payout.paid", {"status": "paid"}),
        ("payout.failed", {"status": "failed"}),
    ),
    "setup": steps(
        "setup_intent",
        ("setup_intent.created", {"status": "requires_payment_method"}),
        ("setup_intent.requires_action", {"status": "requires_action"}),
        ("setup_intent.succeeded", {"status": "succeeded"}),
    ),
    "customer": steps(
        "customer",
        ("customer.created", {"name": "a"}),
        ("customer.updated", {"name": "b"}),
        ("customer.deleted", {"name": "b", "deleted": True}),
    ),
    "a kind without ranks": steps(
        "quote", ("quote.created", {"n": 1}), ("quote.finalized", {"n": 2}), ("quote.deleted", {"n": 3})
    ),
    "coupon": steps(
        "coupon",
        ("coupon.created", {"name": "a"}),
        ("coupon.updated", {"name": "b"}),
        ("coupon.deleted", {"name": "b", "gone": 1}),
    ),
}


@pytest.mark.parametrize("life", LIVES)
def test_the_last_of_one_second_wins_from_any_order(life: str) -> None:
    states = [state(*step, event_id=f"evt_{n}") for n, step in enumerate(LIVES[life])]
    for order in itertools.permutations(states):
        assert last_of(order) == states[-1]


@pytest.mark.parametrize("life", LIVES)
def test_the_last_of_different_seconds_wins_from_any_order(life: str) -> None:
    states = [state(*step, second=n, event_id=f"evt_{n}") for n, step in enumerate(LIVES[life])]
    for order in itertools.permutations(states):
        assert last_of(order) == states[-1]


@pytest.mark.parametrize("life", LIVES)
def test_two_states_are_each_other_s_opposite(life: str) -> None:
    opposite = {Order.NEWER: Order.OLDER, Order.OLDER: Order.NEWER}
    states = [state(*step) for step in LIVES[life]]
    for one, two in itertools.permutations(states, 2):
        assert compare(one, two) is opposite[compare(two, one)]


@pytest.mark.parametrize("status", ["requires_confirmation", "requires_action", "processing"])
@pytest.mark.parametrize(("kind", "failure"), [("payment_intent", "payment_failed"), ("setup_intent", "setup_failed")])
def test_a_failed_try_and_a_step_of_the_next_one_in_one_second_are_a_tie(kind: str, failure: str, status: str) -> None:
    """The step may also be of the try that failed: whoever reads the object knows."""
    failed = state(f"{kind}.{failure}", {"object": kind, "status": "requires_payment_method", "error": 1})
    step = state(f"{kind}.step", {"object": kind, "status": status})
    again = state(f"{kind}.{failure}", {"object": kind, "status": "requires_payment_method", "error": 2})
    first = state(f"{kind}.created", {"object": kind, "status": "requires_payment_method"})
    done = state(f"{kind}.succeeded", {"object": kind, "status": "succeeded"})
    assert (compare(failed, step), compare(step, failed), compare(failed, again)) == (Order.TIE,) * 3
    assert (compare(first, failed), compare(failed, first)) == (Order.NEWER, Order.OLDER)
    assert (compare(failed, done), compare(done, failed)) == (Order.NEWER, Order.OLDER)
    later = state(f"{kind}.step", {"object": kind, "status": status}, second=1)
    assert (compare(failed, later), compare(later, failed)) == (Order.NEWER, Order.OLDER)


def test_every_kind_with_ranks_has_a_life_here() -> None:
    assert set(LIFECYCLES) <= {told[0][1]["object"] for told in LIVES.values()}


def test_nothing_applied_before() -> None:
    offered = state("invoice.paid", {"object": "invoice", "status": "paid"})
    assert compare(None, offered) is Order.NEWER
    assert applied_after(None, offered, order=Order.NEWER) is offered


def test_time_decides_before_rank() -> None:
    """A subscription that fell back to past_due, and an invoice event of a lower rank, are newer when they happened later."""
    paid = state("invoice.paid", {"object": "invoice", "status": "paid"})
    open_again = state("invoice.updated", {"object": "invoice", "status": "open"}, second=1)
    assert compare(paid, open_again) is Order.NEWER
    assert compare(open_again, paid) is Order.OLDER


def test_a_beginning_is_older_and_an_end_newer_whatever_the_clock_says() -> None:
    born = state(f"{SUBSCRIPTION}.created", {"object": "subscription", "status": "incomplete"}, second=9)
    alive = state(f"{SUBSCRIPTION}.updated", {"object": "subscription", "status": "active"}, second=5)
    dead = state(f"{SUBSCRIPTION}.deleted", {"object": "subscription", "status": "canceled"}, second=1)
    for order in itertools.permutations([born, alive, dead]):
        assert last_of(order) is dead
    assert compare(alive, born) is Order.OLDER


def test_what_is_in_a_final_status_may_change_without_coming_back_to_life() -> None:
    dead = state(f"{SUBSCRIPTION}.updated", {"object": "subscription", "status": "canceled"})
    noted = state(f"{SUBSCRIPTION}.updated", {"object": "subscription", "status": "canceled", "metadata": 1}, second=3)
    back = state(f"{SUBSCRIPTION}.updated", {"object": "subscription", "status": "active"}, second=9)
    assert compare(dead, noted) is Order.NEWER
    assert compare(noted, back) is Order.OLDER


@pytest.mark.parametrize("second", [0, 9])
@pytest.mark.parametrize("told", [{"quantity": 1}, {"quantity": 2}])
def test_behind_a_deletion_there_is_nothing(told: dict[str, Any], second: int) -> None:
    """Also where the other event tells a final status, or the same object, and whenever Stripe made it."""
    common = {"object": "subscription", "status": "canceled"}
    gone = state(f"{SUBSCRIPTION}.deleted", {**common, "quantity": 2})
    late = state(f"{SUBSCRIPTION}.updated", {**common, **told}, second=second)
    assert (compare(gone, late), compare(late, gone)) == (Order.OLDER, Order.NEWER)
    assert last_of((gone, late)) is gone
    assert last_of((late, gone)) is gone


def test_an_id_that_an_account_chose_may_be_used_again() -> None:
    gone = state("coupon.deleted", {"object": "coupon", "id": "SUMMER"})
    again = state("coupon.created", {"object": "coupon", "id": "SUMMER", "percent_off": 5}, second=60)
    assert not gone.tombstone
    assert compare(gone, again) is Order.NEWER


def test_the_same_state_is_the_same_whenever_it_is_told() -> None:
    subject = {"object": "invoice", "status": "paid", "b": 1, "a": {"d": 1, "c": 2}}
    reordered = {"a": {"c": 2, "d": 1}, "b": 1, "status": "paid", "object": "invoice"}
    first, second = state("invoice.paid", subject), state("invoice.paid", reordered, second=5)
    assert compare(first, second) is Order.SAME
    assert compare(second, first) is Order.SAME
    assert applied_after(first, second, order=Order.SAME) is second
    assert applied_after(second, first, order=Order.SAME) is second


def test_the_same_state_under_another_type_is_told_too() -> None:
    """invoice.paid and invoice.payment_succeeded come together; neither may hide the other from its handler."""
    subject = {"object": "invoice", "status": "paid"}
    one, two = state("invoice.payment_succeeded", subject), state("invoice.paid", subject)
    assert compare(one, two) is Order.NEWER
    assert compare(two, one) is Order.NEWER
    assert applied_after(two, one, order=Order.NEWER) is two


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (
            (f"{SUBSCRIPTION}.updated", {"object": "subscription", "status": "past_due"}),
            (f"{SUBSCRIPTION}.updated", {"object": "subscription", "status": "active"}),
        ),
        (("customer.updated", {"object": "customer", "n": 1}), ("customer.updated", {"object": "customer", "n": 2})),
        (("quote.accepted", {"object": "quote", "n": 1}), ("quote.canceled", {"object": "quote", "n": 2})),
        (
            ("payment_intent.processing", {"object": "payment_intent", "status": "processing"}),
            ("payment_intent.new_thing", {"object": "payment_intent", "status": "a_status_of_the_future"}),
        ),
        (("invoice.updated", {"object": "invoice", "status": None}), ("invoice.updated", {"object": "invoice"})),
        (("x.y", {"object": 5}), ("x.y", {"object": None})),
    ],
)
def test_what_no_rank_tells_apart_is_a_tie(one: Step, two: Step) -> None:
    assert compare(state(*one), state(*two)) is Order.TIE
    assert compare(state(*two), state(*one)) is Order.TIE
    assert applied_after(state(*one), state(*two), order=Order.TIE) == state(*two)


def test_a_step_back_does_not_move_what_was_applied() -> None:
    applied, older = (state("customer.updated", {"object": "customer", "n": n}, second=n) for n in (2, 1))
    assert compare(applied, older) is Order.OLDER
    assert applied_after(applied, older, order=Order.OLDER) is applied


def test_odd_amounts_are_no_measure() -> None:
    told = [True, "5", -1, None, 2**63, 3.5]
    measures = [state("charge.refunded", {"object": "charge", "amount_refunded": odd}).rank.measure for odd in told]
    assert measures == [0, 0, 0, 0, 2**63 - 1, 0]


def test_statuses_are_texts_of_bounded_length() -> None:
    assert state("x.y", {"status": "s" * 500}).status == "s" * 100
    assert state("x.y", {"status": 5}).status is None


def test_digests_take_whatever_json_holds() -> None:
    assert digest_of({"a": 2**70, "é": ["\ufffd", 1.5]}) == digest_of({"é": ["\ufffd", 1.5], "a": 2**70})
    assert digest_of({"a": 2**70}) != digest_of({"a": 2**70 + 1})


def test_a_transition_is_its_type_time_request_and_previous_values() -> None:
    def key(**changed: Any) -> bytes:
        fields: dict[str, Any] = {
            "type": "charge.refunded",
            "second": 0,
            "n": 1,
            "before": {"a": 1},
            "request": "req_1",
        }
        fields |= changed
        told = state(fields["type"], {"object": "charge", "n": fields["n"]}, second=fields["second"])
        return transition_of(told, previous_attributes=fields["before"], request_id=fields["request"])

    assert key() == key(n=2)
    # There and back within a second, by no request: each step has its own content.
    assert key(request=None) != key(request=None, n=2)
    others = [key(type="charge.updated"), key(second=1), key(before={"a": 2}), key(request="req_2"), key(request=None)]
    assert len({key(), *others}) == 6
    assert key(before={}, request=None) != key(before={}, request=None, n=2)
    assert key(before={}, request=None) == key(before={}, request=None)


@given(
    st.lists(
        st.tuples(st.sampled_from([step for life in LIVES.values() for step in life]), st.integers(0, 3)),
        min_size=3,
        max_size=3,
    )
)
def test_newer_is_transitive_within_a_kind(picked: list[tuple[Step, int]]) -> None:
    states = [state(*step, second=second) for step, second in picked]
    if len({one.kind for one in states}) > 1 or len({one.digest for one in states}) < 3:
        return
    a, b, c = states
    if compare(a, b) is compare(b, c) is Order.NEWER:
        assert compare(a, c) in (Order.NEWER, Order.TIE)
