"""What the processor of these tests does with an event: one outcome, one row."""

from __future__ import annotations

from onceflow import Event, Handlers, Tx

handlers = Handlers()


@handlers.on("customer.*")
def greet(event: Event, tx: Tx) -> None:
    tx.execute("INSERT INTO public.seen (event_id, pid) VALUES (%s, 0)", [event.id])
    tx.outcome("greeted", key=event.object["id"], data={"event": event.id})
