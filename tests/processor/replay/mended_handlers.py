"""The handlers of ``first_handlers``, mended."""

from __future__ import annotations

from onceflow import Event, Handlers, Tx
from onceflow.effects import refund
from tests.processor.replay import first_handlers

handlers = Handlers()
give_back = handlers.use(refund, name="give_back")


@handlers.on("invoice.paid")
def books(event: Event, tx: Tx) -> None:
    tx.execute("INSERT INTO public.seen (event_id, pid) VALUES (%s, 1)", [event.id])
    if not tx.once("paid", event.object["id"]):
        return
    added = tx.book("sum", event.object["id"], total=event.object["amount_paid"])
    tx.outcome("paid", key=event.object["id"], data={"added": added, "first": not event.id.startswith("evt_changed")})
    if event.id.startswith("evt_new"):
        tx.outcome("thanks", key=event.object["id"], data={"tax": tx.book("tax", event.object["id"], total=7)})
    if event.id.startswith("evt_breaks"):
        tx.connection.commit()
    if event.id.startswith(("evt_sleeps", "evt_takes_time")):
        tx.execute("SELECT pg_sleep(%s)", [60 if event.id.startswith("evt_sleeps") else 0.9])
    if event.id.startswith(("evt_asks", "evt_wants")):
        tx.request(give_back, subject=event.object["id"], charge="ch_1", amount=5)
    if event.id.startswith("evt_conflict"):
        tx.request(give_back, subject=event.object["id"], charge="ch_1", amount=6)
    if event.id.startswith("evt_fails"):
        raise ValueError(event.id)


@handlers.on("invoice.paid")
def books_late(event: Event, tx: Tx) -> None:
    """Two events tell one total, and the first of them fails after it."""
    if event.id.startswith("evt_late"):
        tx.outcome("late", key=event.object["id"], data={"added": tx.book("late", "shared", total=9)})
    if event.id.startswith("evt_late_fails"):
        raise ValueError(event.id)


handlers.on("invoice.paid", rerun="safe")(first_handlers.counts)
handlers.on("invoice.paid", replay="never")(first_handlers.mails)
handlers.on("product.updated", order="latest", replay="never")(first_handlers.mirrors)
handlers.on("customer.updated", order="latest")(first_handlers.keeps)
handlers.on("customer.updated", "product.updated")(first_handlers.notes)
