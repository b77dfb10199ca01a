"""Handlers that want order per object: the state of a subscription, and each step of its life."""

from onceflow import Event, Handlers, Tx

handlers = Handlers()


@handlers.on("customer.subscription.*", order="latest")
def state(event: Event, tx: Tx) -> None:
    """``public.seen`` holds the status of each subscription, whose id is a number after ``sub_``."""
    number = int(event.object["id"].removeprefix("sub_"))
    tx.execute("DELETE FROM public.seen WHERE pid = %s", [number])
    tx.execute("INSERT INTO public.seen (event_id, pid) VALUES (%s, %s)", [event.object["status"], number])


@handlers.on("customer.subscription.*", order="each")
def step(event: Event, tx: Tx) -> None:
    tx.outcome("step", key=event.object["id"], data={"event": event.id})
