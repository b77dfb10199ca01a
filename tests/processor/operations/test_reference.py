"""The reference table: what becomes of an order's charge or refund, whatever gets lost; counted in the simulator's own ledger.

Each test is one line of the table, from the request to what Stripe really did.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
import stripe

from onceflow_schemas.operations.limits import Limits
from onceflow_simulator import Simulator
from tests.processor.operations.at_simulator import (
    CARD,
    PRICE,
    AtSimulator,
    at,
    capture,
    charge,
    client_of,
    make_due,
    paid_charge,
    pass_hours,
    refund,
    shop,
)
from tests.processor.operations.conftest import Desk
from tests.processor.processor_process import wait_until

CONFIRM = "/v1/payment_intents/{id}/confirm"
SLOW_RETRIES = Limits(retry_first=timedelta(seconds=3))


@pytest.fixture(scope="module")
def simulator_process() -> Iterator[Simulator]:
    with Simulator(seed=7) as running:
        yield running


@pytest.fixture
def simulator(simulator_process: Simulator) -> Iterator[Simulator]:
    simulator_process.reset()
    yield simulator_process
    assert simulator_process.state()["bugs"] == []


def ask_charge(desk: Desk, order: str = "order-1", *, card: str = CARD) -> str:
    return desk.ask(order, effect=charge, amount=PRICE, currency="usd", payment_method=card)[0]


def ask_refund(desk: Desk, simulator: Simulator, order: str = "order-1") -> str:
    return desk.ask(order, effect=refund, charge=paid_charge(simulator), amount=500)[0]


def work(desk: Desk, simulator: Simulator, *, limits: Limits | None = None, **states: str) -> AtSimulator:
    """Let a worker run until the operations are in these states, and stop it."""
    sender = at(simulator)
    with desk.working(sender, handlers=shop, limits=limits or Limits()):
        desk.wait_for(**{subject.replace("_", "-"): state for subject, state in states.items()})
    return sender


def test_the_same_order_asked_twice_is_one_operation(desk: Desk, simulator: Simulator) -> None:
    first, again = ask_charge(desk), ask_charge(desk)
    assert first == again
    work(desk, simulator, order_1="succeeded")
    assert ask_charge(desk) == first
    assert simulator.ledger().count("charge") == 1


@pytest.mark.parametrize("how", ["reset", "truncated", "garbage"])
def test_a_lost_answer_is_unknown_and_the_same_key_finds_it(desk: Desk, simulator: Simulator, how: str) -> None:
    asked = ask_refund(desk, simulator)
    simulator.faults.lose_answer(how, match={"path": "/v1/refunds"})
    work(desk, simulator, limits=SLOW_RETRIES, order_1="unknown")
    assert simulator.ledger().count("refund", asked) == 1
    make_due(desk)
    sender = work(desk, simulator, order_1="succeeded")
    assert sender.sent == [("order-1", asked)]
    assert simulator.ledger().count("refund", asked) == 1
    assert desk.outcomes() == [("refund.succeeded", "order-1")]


def test_a_lost_answer_to_a_charge_is_unknown_then_succeeded_and_one_charge(desk: Desk, simulator: Simulator) -> None:
    asked = ask_charge(desk)
    simulator.faults.lose_answer(match={"path": "/v1/payment_intents"})
    simulator.faults.lose_answer(match={"path": CONFIRM})
    sender = work(desk, simulator, order_1="succeeded")
    rows = desk.rows("SELECT name, evidence FROM onceflow.attempt ORDER BY n")
    assert [(row["name"], row["evidence"]) for row in rows] == [
        ("create", "unknown"),
        ("create", "done"),
        ("confirm", "unknown"),
    ]
    assert sender.looked == ["order-1"]
    assert simulator.ledger().count("intent", asked) == 1
    assert simulator.ledger().count("charge", asked) == 1


def test_the_danger_a_new_key_per_retry_charges_twice(simulator: Simulator) -> None:
    client = client_of(simulator)
    simulator.faults.lose_answer()
    for key in ("first try", "second try"):
        try:
            client.v1.payment_intents.create(
                {"amount": PRICE, "currency": "usd", "confirm": True, "payment_method": CARD}, {"idempotency_key": key}
            )
        except stripe.APIConnectionError:
            continue
    assert simulator.ledger().count("charge") == 2


def test_unknown_past_the_window_is_settled_by_a_look_up_and_no_blind_call(desk: Desk, simulator: Simulator) -> None:
    given = ask_refund(desk, simulator, "refund-1")
    taken = ask_charge(desk)
    simulator.faults.lose_answer(match={"path": "/v1/refunds"})
    simulator.faults.lose_answer(match={"path": CONFIRM})
    work(desk, simulator, limits=SLOW_RETRIES, order_1="unknown", refund_1="unknown")
    pass_hours(desk, simulator, 25)
    sender = work(desk, simulator, order_1="succeeded", refund_1="succeeded")
    assert sender.sent == []
    assert sorted(sender.looked) == ["order-1", "refund-1"]
    assert simulator.ledger().count("refund", given) == 1
    assert simulator.ledger().count("charge", taken) == 1


def test_declined_is_failed_and_never_called_again(desk: Desk, simulator: Simulator) -> None:
    asked = ask_charge(desk, card="pm_card_chargeDeclined")
    sender = work(desk, simulator, order_1="failed")
    assert [key for _, key in sender.sent] == [f"{asked}.create", f"{asked}.confirm", f"{asked}.cancel"]
    assert ask_charge(desk, card="pm_card_chargeDeclined") == asked
    make_due(desk)
    work(desk, simulator, order_1="failed")
    pass_hours(desk, simulator, 25)
    again = at(simulator)
    with desk.working(again, handlers=shop):
        ask_refund(desk, simulator, "later")
        desk.wait_for(later="succeeded")
    assert "order-1" not in again.subjects()
    assert simulator.ledger().count("charge", asked) == 0
    assert simulator.ledger().count("cancel", asked) == 1
    assert ("charge.failed", "order-1") in desk.outcomes()


def test_processing_is_no_success_and_is_settled_by_a_retrieve(desk: Desk, simulator: Simulator) -> None:
    simulator.stop_clock()
    asked = ask_charge(desk, card="pm_usBankAccount_processing")
    work(desk, simulator, order_1="pending")
    assert desk.outcomes() == []
    assert simulator.ledger().count("charge", asked) == 0
    [row] = desk.rows("SELECT external_id FROM onceflow.operation")
    simulator.act("settle", row["external_id"])
    make_due(desk)
    sender = work(desk, simulator, order_1="succeeded")
    assert (sender.sent, sender.looked) == ([], ["order-1"])
    assert simulator.ledger().count("intent", asked) == 1
    assert simulator.ledger().count("charge", asked) == 1


def test_found_after_the_window_without_a_payment_is_no_success(desk: Desk, simulator: Simulator) -> None:
    asked = ask_charge(desk, card="pm_card_chargeDeclined")
    simulator.faults.lose_answer(match={"path": CONFIRM})
    work(desk, simulator, limits=SLOW_RETRIES, order_1="unknown")
    [row] = desk.rows("SELECT external_id FROM onceflow.operation")
    found = client_of(simulator).v1.payment_intents.retrieve(row["external_id"])
    assert found.status == "requires_payment_method"
    pass_hours(desk, simulator, 25)
    sender = work(desk, simulator, order_1="failed")
    assert [key for _, key in sender.sent] == [f"{asked}.cancel"]
    assert desk.outcomes() == [("charge.failed", "order-1")]
    assert simulator.ledger().count("charge", asked) == 0


def test_nothing_found_for_an_unknown_refund_is_for_a_person(desk: Desk, simulator: Simulator) -> None:
    asked = ask_refund(desk, simulator)
    simulator.faults.lose_request(match={"path": "/v1/refunds"})
    work(desk, simulator, limits=SLOW_RETRIES, order_1="unknown")
    pass_hours(desk, simulator, 25)
    sender = work(desk, simulator, order_1="review")
    assert (sender.sent, sender.looked) == ([], ["order-1"])
    assert [row["code"] for row in desk.rows("SELECT code FROM onceflow.review")] == ["operation_not_found"]
    assert simulator.ledger().count("refund", asked) == 0
    assert desk.outcomes() == []


@pytest.mark.parametrize("hours", [0, 72])
def test_an_object_that_is_not_there_is_a_failure_and_nobodys_decision(
    desk: Desk, simulator: Simulator, hours: int
) -> None:
    """A mistyped id; past the window it is looked up first."""
    desk.ask("order-1", effect=capture, payment_intent="pi_typo")
    if hours:
        pass_hours(desk, simulator, hours)
    sender = work(desk, simulator, order_1="failed")
    assert (len(sender.sent), len(sender.looked)) == ((0, 1) if hours else (1, 0))
    [row] = desk.rows("SELECT last_error FROM onceflow.operation")
    assert "resource_missing" in row["last_error"]
    assert desk.rows("SELECT FROM onceflow.review") == []


def test_made_three_days_ago_but_never_sent_is_looked_up_and_then_sent(desk: Desk, simulator: Simulator) -> None:
    given, taken = ask_refund(desk, simulator, "refund-1"), ask_charge(desk)
    pass_hours(desk, simulator, 72)
    sender = work(desk, simulator, order_1="succeeded", refund_1="succeeded")
    assert sorted(sender.looked) == ["order-1", "order-1", "refund-1"], "before the create, the confirm, the refund"
    assert sorted(key for _, key in sender.sent) == sorted([given, f"{taken}.create", f"{taken}.confirm"])
    assert simulator.ledger().count("refund", given) == 1
    assert simulator.ledger().count("charge", taken) == 1


def test_no_transaction_is_open_during_the_call(desk: Desk, simulator: Simulator) -> None:
    ask_refund(desk, simulator)
    simulator.set(latency_ms=1_500)
    sender = at(simulator, seconds_max=10.0)
    with desk.working(sender, handlers=shop, lease_seconds=30.0):
        wait_until(lambda: sender.sent, "the call is on its way")
        open_ones = desk.rows(
            "SELECT application_name, state FROM pg_stat_activity WHERE datname = current_database()"
            " AND pid <> pg_backend_pid() AND (state <> 'idle' OR xact_start IS NOT NULL)"
        )
        workers = desk.rows("SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'operator%%'")
        assert desk.states() == {"order-1": "sending"}, "the call is still on its way"
        desk.wait_for(**{"order-1": "succeeded"})
    assert open_ones == []
    assert workers


def as_an_older_release(desk: Desk) -> None:
    """What was asked for just now is frozen as before objects had the deployment in their metadata."""
    desk.change(
        "UPDATE onceflow.operation SET steps = (SELECT json_agg(step::jsonb #- '{request,params,metadata,onceflow_deployment}' ORDER BY n)"
        " FROM json_array_elements(steps) WITH ORDINALITY AS one (step, n))"
    )
    [row] = desk.rows("SELECT count(*) AS n FROM onceflow.operation WHERE steps::text LIKE '%%onceflow_deployment%%'")
    assert row == {"n": 0}


def lose_in_restore(desk: Desk) -> None:
    """The database was put back to before anybody asked."""
    desk.change("DELETE FROM onceflow.attempt; DELETE FROM onceflow.outcome; DELETE FROM onceflow.operation")
    desk.change("UPDATE onceflow.lane SET head_seq = 0, published_seq = 0")


def test_what_an_older_release_froze_in_other_words_is_settled_by_what_it_made(
    desk: Desk, simulator: Simulator
) -> None:
    """The key refuses the new words; the object with the operation's id tells what the old ones did, and nothing is done twice."""
    paid = paid_charge(simulator)

    def ask() -> list[str]:
        [refunded] = desk.ask("order-2", effect=refund, charge=paid, amount=500)
        return [ask_charge(desk), refunded]

    asked = ask()
    as_an_older_release(desk)
    work(desk, simulator, order_1="succeeded", order_2="succeeded")
    before = simulator.ledger()
    objects = {row["subject"]: row["external_id"] for row in desk.operations().values()}
    lose_in_restore(desk)
    assert ask() == asked
    work(desk, simulator, order_1="succeeded", order_2="succeeded")
    assert {row["subject"]: row["external_id"] for row in desk.operations().values()} == objects
    after = simulator.ledger()
    assert [after.count(kind) for kind in ("charge", "refund")] == [before.count(kind) for kind in ("charge", "refund")]
    proofs = [row["evidence"] for row in desk.rows("SELECT evidence FROM onceflow.attempt ORDER BY operation_id, n")]
    assert proofs.count("key_mismatch") == 2, "it was sent under its key, which did nothing"
    assert desk.rows("SELECT code FROM onceflow.review") == []


def test_a_key_that_somebody_else_has_used_is_for_a_person(desk: Desk, simulator: Simulator) -> None:
    """Nothing at Stripe has the operation's id: it is not sent again, and a person is asked once nothing can be on its way."""
    asked = ask_refund(desk, simulator)
    client_of(simulator).v1.customers.create({"name": "x"}, options={"idempotency_key": asked})
    sender = at(simulator)
    with desk.working(sender, handlers=shop, limits=Limits(absence_wait=timedelta(seconds=1))):
        desk.wait_for(**{"order-1": "review"})
    [review] = desk.rows("SELECT code FROM onceflow.review")
    assert review == {"code": "key_mismatch"}
    assert (len(sender.sent), simulator.ledger().count("refund")) == (1, 0)
