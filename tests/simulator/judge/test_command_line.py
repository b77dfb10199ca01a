"""Stripe's own command line triggers its fixtures against the simulator, and the event that it names comes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import stripe

from onceflow_simulator import Simulator

pytestmark = pytest.mark.judge

STEP_SECONDS_MAX = 60.0
SETTLED_SECONDS = 100.0
PAGE = 100
ENVIRONMENT = {"STRIPE_CLI_TELEMETRY_OPTOUT": "1"}
"""Its reports about itself would leave this machine, and now and then end it with a panic."""

FIXTURES = [
    "account.application.deauthorized",
    "account.updated",
    "charge.captured",
    "charge.dispute.closed",
    "charge.dispute.created",
    "charge.dispute.updated",
    "charge.failed",
    "charge.refund.updated",
    "charge.refunded",
    "charge.succeeded",
    "checkout.session.async_payment_failed",
    "checkout.session.async_payment_succeeded",
    "checkout.session.completed",
    "checkout.session.expired",
    "coupon.created",
    "coupon.deleted",
    "coupon.updated",
    "credit_note.created",
    "credit_note.updated",
    "credit_note.voided",
    "customer.created",
    "customer.deleted",
    "customer.discount.created",
    "customer.discount.deleted",
    "customer.discount.updated",
    "customer.source.created",
    "customer.source.updated",
    "customer.subscription.created",
    "customer.subscription.deleted",
    "customer.subscription.paused",
    "customer.subscription.trial_will_end",
    "customer.subscription.updated",
    "customer.updated",
    "invoice.created",
    "invoice.deleted",
    "invoice.finalized",
    "invoice.marked_uncollectible",
    "invoice.paid",
    "invoice.payment_action_required",
    "invoice.payment_failed",
    "invoice.payment_succeeded",
    "invoice.sent",
    "invoice.updated",
    "invoice.voided",
    "invoiceitem.created",
    "invoiceitem.deleted",
    "payment_intent.amount_capturable_updated",
    "payment_intent.canceled",
    "payment_intent.created",
    "payment_intent.payment_failed",
    "payment_intent.processing",
    "payment_intent.requires_action",
    "payment_intent.succeeded",
    "payment_link.created",
    "payment_link.updated",
    "payment_method.attached",
    "payment_method.detached",
    "payment_method.updated",
    "payout.created",
    "payout.updated",
    "plan.created",
    "plan.deleted",
    "plan.updated",
    "price.created",
    "price.updated",
    "product.created",
    "product.deleted",
    "product.updated",
    "promotion_code.created",
    "promotion_code.updated",
    "setup_intent.canceled",
    "setup_intent.created",
    "setup_intent.requires_action",
    "setup_intent.setup_failed",
    "setup_intent.succeeded",
    "subscription.payment_failed",
    "subscription.payment_succeeded",
    "tax_rate.created",
    "tax_rate.updated",
    "test_helpers.test_clock.advancing",
    "test_helpers.test_clock.created",
    "test_helpers.test_clock.deleted",
    "test_helpers.test_clock.ready",
    "topup.created",
    "transfer.created",
    "transfer.reversed",
    "transfer.updated",
]

NAMED = {
    "subscription.payment_failed": "invoice.payment_failed",
    "subscription.payment_succeeded": "invoice.payment_succeeded",
}
"""Fixtures whose names are not that of an event."""


def ask(program: Path, simulator: Simulator, *words: str, home: Path) -> subprocess.CompletedProcess[str]:
    """Run it without any right of ours: a home of its own, an empty environment."""
    command = [str(program), *words, "--api-key", simulator.api_key, "--api-base", simulator.url]
    return subprocess.run(
        command,
        env=ENVIRONMENT | {"HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=STEP_SECONDS_MAX,
        check=False,
    )


def types(client: stripe.StripeClient) -> list[str]:
    return [str(event.type) for event in client.v1.events.list({"limit": PAGE}).data]


def test_there_are_enough() -> None:
    assert len(set(FIXTURES)) == len(FIXTURES) >= 25


@pytest.mark.parametrize("fixture", FIXTURES)
def test_a_fixture_makes_its_event(
    stripe_program: Path, simulator: Simulator, client: stripe.StripeClient, tmp_path: Path, fixture: str
) -> None:
    done = ask(stripe_program, simulator, "trigger", fixture, home=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    # What comes later at Stripe (a debit that settles, a card network that disputes) comes now.
    simulator.advance(SETTLED_SECONDS)
    assert NAMED.get(fixture, fixture) in types(client)


def test_a_fixture_with_other_parameters_for_a_connected_account(
    stripe_program: Path, simulator: Simulator, client: stripe.StripeClient, tmp_path: Path
) -> None:
    words = ("trigger", "payment_intent.succeeded", "--override", "payment_intent:amount=4711")
    done = ask(stripe_program, simulator, *words, "--stripe-account", "acct_c1", home=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    (entry,) = simulator.ledger(kind="charge").entries
    assert (entry["account"], entry["amount"]) == ("acct_c1", 4711)
    assert types(client) == []


def test_an_event_is_sent_again(
    stripe_program: Path, simulator: Simulator, client: stripe.StripeClient, tmp_path: Path
) -> None:
    endpoint = simulator.add_webhook("http://127.0.0.1:9/", secrets=["whsec_1"], retries_max=0)
    client.v1.customers.create({})
    event = client.v1.events.list({}).data[0].id
    done = ask(stripe_program, simulator, "events", "resend", event, "--webhook-endpoint", endpoint, home=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    simulator.wait_delivered()
    assert [one["event"] for one in simulator.deliveries()] == [event, event]


def test_an_object_is_read(
    stripe_program: Path, simulator: Simulator, client: stripe.StripeClient, tmp_path: Path
) -> None:
    customer = client.v1.customers.create({"email": "a@example.com"}).id
    done = ask(stripe_program, simulator, "get", f"/v1/customers/{customer}", home=tmp_path)
    assert (done.returncode, "a@example.com" in done.stdout) == (0, True)
