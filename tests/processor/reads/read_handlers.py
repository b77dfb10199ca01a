"""Handlers of the processes in these tests: one that writes down a customer's name."""

from __future__ import annotations

from onceflow import Event, Handlers, Tx

handlers = Handlers()


@handlers.on("customer.*", order="latest")
def write_name(event: Event, tx: Tx) -> None:
    """Keep the name, and tell it."""
    tx.execute("INSERT INTO public.seen VALUES (%s, 0)", [event.id])
    tx.outcome("customer.name", key=event.object["id"], data={"name": event.object["name"]})
