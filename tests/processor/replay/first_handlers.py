"""Handlers as they were first deployed; ``mended_handlers`` are the same ones after a change."""

from __future__ import annotations

from onceflow import Event, Handlers, Tx
from onceflow.effects import refund

handlers = Handlers()
give_back = handlers.use(refund, name="give_back")


@handlers.on("invoice.paid")
def books(event: Event, tx: Tx) -> None:
    tx.execute("INSERT INTO public.seen (event_id, pid) VALUES (%s, 1)", [event.id])
    if not tx.once("paid", event.object["id"]):
        return
    added = tx.book("sum", event.object["id"], total=event.object["amount_paid"])
    tx.outcome("paid", key=event.object["id"], data={"added": added, "first": True})
    if event.id.startswith("evt_gone"):
        tx.outcome("thanks", key=event.object["id"], data={})
    if event.id.startswith(("evt_asks", "evt_conflict")):
        tx.request(give_back, subject=event.object["id"], charge="ch_1", amount=5)


@handlers.on("invoice.paid", rerun="safe")
def counts(event: Event, tx: Tx) -> None:
    tx.execute("INSERT INTO public.seen (event_id, pid) VALUES (%s, 2)", [event.id])


@handlers.on("invoice.paid", replay="never")
def mails(event: Event, tx: Tx) -> None:
    tx.execute("INSERT INTO public.seen (event_id, pid) VALUES (%s, 3)", [event.id])
    tx.outcome("mailed", key=event.object["id"], data={})


@handlers.on("product.updated", order="latest", replay="never")
def mirrors(event: Event, tx: Tx) -> None:
    tx.outcome("mirrored", key=event.object["id"], data={"name": event.object["name"]})


@handlers.on("customer.updated", order="latest")
def keeps(event: Event, tx: Tx) -> None:
    tx.outcome("kept", key=event.object["id"], data={"name": event.object["name"]})


@handlers.on("customer.updated", "product.updated")
def notes(event: Event, tx: Tx) -> None:
    tx.outcome("noted", key=event.object["id"], data={"stale": event.is_stale, "event": event.id})
