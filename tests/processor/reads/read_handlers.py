"""Handlers of the processes in these tests: one that writes down a customer's name."""

from __future__ import annotations

from onceflow import Event, Handlers, Tx

handlers = Handlers()


@handlers.on("customer.*", order="latest")
def write_name(event: Event, tx: Tx) -> None:
    """Keep the name, and tell it."""
    tx.execute("INSERT INTO public.seen VALUES (%s, 0)", [event.id])
    tx.outcome("customer.name", key=event.object["id"], data={"name": event.object["name"]})


@handlers.on("v1.customer.*")
def tell_thin(event: Event, tx: Tx) -> None:
    """Tell what a thin event was about."""
    tx.outcome("customer.told", key=event.object["id"], data={"name": event.object["name"]})


@handlers.on("invoice.paid", lines="all")
def count_lines(event: Event, tx: Tx) -> None:
    """Tell how many lines there are."""
    tx.outcome("invoice.lines", key=event.object["id"], data={"lines": len(event.object["lines"]["data"])})
