"""Payments, refunds, invoices, subscriptions and disputes as outcomes; deposits given back, orders charged.

Run it with ``onceflow up``, which uses it unless ``--handlers`` names others.  Amounts stay what Stripe says: integers
of minor units beside their currency.
"""

from typing import Any

from onceflow import Event, Handlers, Settled, Tx, effects

handlers = Handlers()

give_back = handlers.use(effects.refund, name="give_back")
charge_order = handlers.use(effects.charge, name="charge_order")
"""Asked for by the application that takes the orders: ``onceflow.attach(connection, cause=...).request(charge_order, ...)``."""


def _id_of(value: Any) -> str | None:
    """Return the id of a field that Stripe gives as an id, as the whole object when expanded, or as null."""
    if isinstance(value, dict):
        value = value.get("id")
    return value if isinstance(value, str) else None


@handlers.on("payment_intent.succeeded", facts=lambda event: [("payment", event.object["id"])])
def payment_succeeded(event: Event, tx: Tx) -> None:
    """A payment counts once, however many events tell of it; a deposit (so its metadata) is given back."""
    intent = event.object
    if not tx.once("payment", intent["id"]):
        return
    tx.outcome(
        "payment.succeeded",
        key=intent["id"],
        data={
            "payment_intent": intent["id"],
            "amount": intent.get("amount_received", intent.get("amount")),
            "currency": intent.get("currency"),
            "customer": _id_of(intent.get("customer")),
            "description": intent.get("description"),
        },
    )
    metadata = intent.get("metadata")
    if isinstance(metadata, dict) and "deposit" in metadata:
        tx.request(give_back, subject=intent["id"], payment_intent=intent["id"], amount=intent["amount_received"])


@give_back.settled
def deposit_is_back(operation: Settled, tx: Tx) -> None:
    """Told for each end, also when the bank returns a refund weeks later."""
    tx.outcome(
        f"deposit.refund.{operation.state}",
        key=operation.subject,
        data={"payment_intent": operation.subject, "operation": operation.id},
    )


@charge_order.settled
def order_is_charged(operation: Settled, tx: Tx) -> None:
    """``succeeded``: it is paid; ``failed``: declined, and its intent is closed for certain."""
    result = operation.result or {}
    tx.outcome(
        f"order.charge.{operation.state}",
        key=operation.subject,
        data={"order": operation.subject, "operation": operation.id, "code": result.get("code")},
    )


@handlers.on("payment_intent.payment_failed")
def payment_failed(event: Event, tx: Tx) -> None:
    """Each failed try is told; the intent may still succeed later."""
    intent = event.object
    error = intent.get("last_payment_error") or {}
    tx.outcome(
        "payment.failed",
        key=intent["id"],
        data={"payment_intent": intent["id"], "customer": _id_of(intent.get("customer")), "code": error.get("code")},
    )


@handlers.on("charge.refunded")
def charge_refunded(event: Event, tx: Tx) -> None:
    """Stripe gives the running total of what was refunded, not the last refund."""
    charge = event.object
    tx.outcome(
        "charge.refunded",
        key=charge["id"],
        data={
            "charge": charge["id"],
            "payment_intent": _id_of(charge.get("payment_intent")),
            "amount_refunded": charge.get("amount_refunded"),
            "currency": charge.get("currency"),
            "refunded": charge.get("refunded"),
        },
    )


@handlers.on("invoice.paid", facts=lambda event: [("invoice-paid", event.object["id"])])
def invoice_paid(event: Event, tx: Tx) -> None:
    """An invoice is paid once; the money is ``amount_paid``, whatever its lines show."""
    invoice = event.object
    if not tx.once("invoice-paid", invoice["id"]):
        return
    tx.outcome(
        "invoice.paid",
        key=invoice["id"],
        data={
            "invoice": invoice["id"],
            "amount_paid": invoice.get("amount_paid"),
            "currency": invoice.get("currency"),
            "customer": _id_of(invoice.get("customer")),
        },
    )


@handlers.on("customer.subscription.*")
def subscription_changed(event: Event, tx: Tx) -> None:
    """The state as this event saw it; ``event_created`` tells which of two is older."""
    subscription = event.object
    tx.outcome(
        "subscription.changed",
        key=subscription["id"],
        data={
            "subscription": subscription["id"],
            "customer": _id_of(subscription.get("customer")),
            "status": subscription.get("status"),
            "change": event.type.rpartition(".")[2],
            "event_created": event.created.isoformat(),
        },
    )


@handlers.on("charge.dispute.*")
def dispute_changed(event: Event, tx: Tx) -> None:
    """The status decides what a dispute means, not the event's type."""
    dispute = event.object
    tx.outcome(
        "dispute.changed",
        key=dispute["id"],
        data={
            "dispute": dispute["id"],
            "charge": _id_of(dispute.get("charge")),
            "amount": dispute.get("amount"),
            "currency": dispute.get("currency"),
            "status": dispute.get("status"),
            "change": event.type.rpartition(".")[2],
            "event_created": event.created.isoformat(),
        },
    )
