"""Handlers of the processes in tests of order: state, transitions, a fact, and a running total, of charges and subscriptions.

``public.seen`` names each run of a handler that was committed, ``public.state`` is what the state writer left.
"""

from __future__ import annotations

from onceflow import Event, Handlers, Tx

STATE, EACH, MONEY = 1, 2, 3

handlers = Handlers()


@handlers.on("charge.*", "customer.subscription.*", order="latest")
def state(event: Event, tx: Tx) -> None:
    tx.execute("INSERT INTO public.seen VALUES (%s, %s)", [event.id, STATE])
    tx.execute(
        "INSERT INTO public.state (object_id, status) VALUES (%s, %s)"
        " ON CONFLICT (object_id) DO UPDATE SET status = EXCLUDED.status",
        [event.object["id"], event.object["status"]],
    )


@handlers.on("charge.*", order="each")
def transition(event: Event, tx: Tx) -> None:
    tx.execute("INSERT INTO public.seen VALUES (%s, %s)", [event.id, EACH])
    tx.outcome("seen", key=event.object["id"], data={"status": event.object["status"], "stale": event.is_stale})


@handlers.on("charge.*")
def money(event: Event, tx: Tx) -> None:
    tx.execute("INSERT INTO public.seen VALUES (%s, %s)", [event.id, MONEY])
    charge = event.object["id"]
    if tx.once("credited", charge):
        tx.outcome("credited", key=charge, data={"amount": event.object["amount"]})
    difference = tx.book("refunded", charge, total=event.object["amount_refunded"])
    if difference:
        tx.outcome("refunded", key=charge, data={"amount": difference})


@handlers.on("customer.subscription.created", order="each")
def created(event: Event, tx: Tx) -> None:
    tx.outcome("created", key=event.object["id"], data={"stale": event.is_stale})


@handlers.on("customer.subscription.updated", order="each")
def activated(event: Event, tx: Tx) -> None:
    if (event.previous_attributes.get("status"), event.object["status"]) == ("incomplete", "active"):
        tx.outcome("activated", key=event.object["id"], data={"stale": event.is_stale})
