"""Handlers of a small shop that need every rule of order: state, transitions, facts, running totals.

``public.ledger`` holds the state of each object; outcomes tell transitions and facts, once each.
"""

from __future__ import annotations

from onceflow_processor.event import Event
from onceflow_processor.handlers import Handlers
from onceflow_processor.tx import Tx

STATEFUL = (
    "customer.subscription.*", "invoice.*", "payment_intent.*", "refund.*", "charge.refund.updated", "charge.dispute.*",
    "checkout.session.*",
)  # fmt: skip


def shop() -> Handlers:
    """The whole registry."""
    handlers = Handlers()
    add_states(handlers)
    add_invoices(handlers)
    add_sessions(handlers)
    add_charges(handlers)
    add_disputes(handlers)
    return handlers


def add_states(handlers: Handlers) -> None:
    """The state of each object, and its transitions."""

    @handlers.on(*STATEFUL, order="latest")
    def state(event: Event, tx: Tx) -> None:
        subject = event.object
        note = f"{subject.get('status')} {subject.get('payment_status', '')} {subject.get('n', '')}".strip()
        _write_down(tx, subject["id"], note)

    @handlers.on(*STATEFUL, order="each")
    def transition(event: Event, tx: Tx) -> None:
        data = {"status": event.object.get("status"), "before": event.previous_attributes}
        tx.outcome(f"seen.{event.type}", key=event.object["id"], data=data)


def add_invoices(handlers: Handlers) -> None:
    """An invoice is paid once; its tries are a running total."""

    @handlers.on("invoice.payment_succeeded", "invoice.paid", name="once")
    def paid_once(event: Event, tx: Tx) -> None:
        if tx.once("paid", event.object["id"]):
            tx.outcome("paid", key=event.object["id"], data={"amount": event.object["amount_paid"]})

    @handlers.on("invoice.*", name="attempts")
    def attempts(event: Event, tx: Tx) -> None:
        tx.book("attempts", event.object["id"], total=event.object["attempt_count"])


def add_sessions(handlers: Handlers) -> None:
    """What the payment status says counts, never that a session was completed."""

    @handlers.on("checkout.session.*", name="session")
    def session(event: Event, tx: Tx) -> None:
        subject = event.object
        if subject["payment_status"] in ("paid", "no_payment_required") and tx.once("order-paid", subject["id"]):
            tx.outcome("order.paid", key=subject["id"], data={"amount": subject["amount_total"]})
        if event.type == "checkout.session.async_payment_failed" and tx.once("order-failed", subject["id"]):
            tx.outcome("order.failed", key=subject["id"], data={})


def add_charges(handlers: Handlers) -> None:
    """What was refunded is a running total; how far a charge is refunded is a state."""

    @handlers.on("charge.succeeded", "charge.refunded", order="latest", name="refund-status")
    def refund_status(event: Event, tx: Tx) -> None:
        subject = event.object
        refunded = subject["amount_refunded"]
        status = "full" if refunded == subject["amount"] else "partial" if refunded else "none"
        _write_down(tx, subject["id"], status)

    @handlers.on("charge.succeeded", "charge.refunded", name="charge")
    def charge(event: Event, tx: Tx) -> None:
        subject = event.object
        tx.book("credited", subject["id"], total=subject["amount"])
        difference = tx.book("refunded", subject["id"], total=subject["amount_refunded"])
        if difference:
            tx.outcome("refunded", key=subject["id"], data={"amount": difference})
        _settle(tx, subject["id"])


def add_disputes(handlers: Handlers) -> None:
    """Money moves with the funds' events, the verdict is the status; fees are told apart."""

    @handlers.on("charge.dispute.*", name="dispute")
    def dispute(event: Event, tx: Tx) -> None:
        subject = event.object
        if event.type.endswith("funds_withdrawn") and tx.once("withdrawn", subject["id"]):
            tx.outcome("funds.withdrawn", key=subject["id"], data={"amount": subject["amount"], "fee": subject["fee"]})
        if event.type.endswith("funds_reinstated") and tx.once("reinstated", subject["id"]):
            tx.outcome("funds.reinstated", key=subject["id"], data={"amount": subject["amount"]})
        if subject["status"] in ("won", "lost") and tx.once("verdict", subject["id"], subject["status"]):
            tx.outcome(f"dispute.{subject['status']}", key=subject["id"], data={})
        tx.book("disputed", subject["charge"], total=subject["amount"])
        if subject["status"] == "won":
            tx.book("won", subject["charge"], total=subject["amount"])
        _settle(tx, subject["charge"])


def _write_down(tx: Tx, name: str, note: str) -> None:
    tx.execute(
        "INSERT INTO public.ledger (event_id, note) VALUES (%s, %s)"
        " ON CONFLICT (event_id) DO UPDATE SET note = EXCLUDED.note",
        [name, note],
    )


def _settle(tx: Tx, charge: str) -> None:
    """Refunds and disputes together take back what was credited at most, whichever comes first; a dispute that is won gives back.

    The net may rise and fall, and a running total only rises: what was taken and what was given are two totals.  Booking
    nothing locks the charge first, so that two events about it are settled one after the other.
    """
    tx.book("settled", charge, total=0)
    rows = tx.fetch_all("SELECT namespace, total FROM onceflow.booked WHERE key = %s", [charge])
    sums = {row["namespace"]: row["total"] for row in rows}
    wanted = min(sums.get("credited", 0), sums.get("refunded", 0) + sums.get("disputed", 0) - sums.get("won", 0))
    taken, given = sums.get("taken-back", 0), sums.get("given-back", 0)
    if more := tx.book("taken-back", charge, total=max(taken, given + wanted)):
        tx.outcome("taken.back", key=charge, data={"amount": more})
    if less := tx.book("given-back", charge, total=max(given, taken - wanted)):
        tx.outcome("given.back", key=charge, data={"amount": less})
