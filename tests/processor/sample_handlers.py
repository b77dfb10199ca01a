"""Handlers for the processors that the tests start."""

import os
import signal
import time

from onceflow import Event, Handlers, Tx
from onceflow.effects import refund

handlers = Handlers()


@handlers.on("invoice.paid")
def invoice_paid(event: Event, tx: Tx) -> None:
    tx.execute("INSERT INTO public.seen (event_id, pid) VALUES (%s, %s)", [event.id, os.getpid()])
    tx.outcome("invoice.paid", key=event.object["id"], data={"event": event.id})


@handlers.on("payment_intent.succeeded")
def order_paid(event: Event, tx: Tx) -> None:
    if event.object["metadata"].get("app") != "ours":
        tx.ignore("metadata of another app, or none")
        return
    tx.execute("INSERT INTO public.seen (event_id, pid) VALUES (%s, %s)", [event.id, os.getpid()])
    tx.outcome("order.paid", key=event.object["id"], data={"event": event.id})


give_back = handlers.use(refund, name="give_back")


@handlers.on("test.request")
def requests(event: Event, tx: Tx) -> None:
    if tx.once("requested", event.object["id"]):
        tx.request(give_back, subject=event.object["id"], charge="ch_1", amount=5)


@handlers.on("test.sleep")
def sleeps(_event: Event, _tx: Tx) -> None:
    time.sleep(60)


@handlers.on("test.database_sleep")
def database_sleeps(_event: Event, tx: Tx) -> None:
    tx.execute("SELECT pg_sleep(60)")


_stalled: list[str] = []


@handlers.on("test.database_stall")
def database_stalls_once(event: Event, tx: Tx) -> None:
    if event.id not in _stalled:
        _stalled.append(event.id)
        tx.execute("SELECT pg_sleep(60)")
    tx.outcome("stall.over", key=event.id, data={})


@handlers.on("test.spin")
def spins(_event: Event, _tx: Tx) -> None:
    while True:
        pass


@handlers.on("test.exit")
def exits(_event: Event, _tx: Tx) -> None:
    os._exit(9)


@handlers.on("test.close")
def closes(event: Event, tx: Tx) -> None:
    tx.connection.close()
    tx.execute("INSERT INTO public.seen (event_id, pid) VALUES (%s, 0)", [event.id])


@handlers.on("test.close_quietly")
def closes_quietly(_event: Event, tx: Tx) -> None:
    tx.connection.close()


@handlers.on("test.terminate")
def terminates(_event: Event, tx: Tx) -> None:
    tx.execute("SELECT pg_terminate_backend(pg_backend_pid())")


@handlers.on("test.poison")
def poisoned(event: Event, tx: Tx) -> None:
    """Does to an event what the table ``public.poison`` says of it."""
    found = tx.fetch_one("SELECT kind FROM public.poison WHERE event_id = %s", [event.id])
    kind = None if found is None else found["kind"]
    if kind == "kills":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "waits":
        raise ConnectionRefusedError(kind)
    if kind == "fails":
        raise LookupError(kind)
    tx.execute("INSERT INTO public.seen (event_id, pid) VALUES (%s, %s)", [event.id, os.getpid()])
    tx.outcome("poison.survived", key=event.object["id"], data={"event": event.id})


@handlers.on("test.mend")
def fails_until_it_is_mended(event: Event, tx: Tx) -> None:
    found = tx.fetch_one("SELECT to_regclass('public.mended') IS NULL AS broken")
    if event.object["poisoned"] and found is not None and found["broken"]:
        raise KeyError("tax")
    tx.execute("INSERT INTO public.seen (event_id, pid) VALUES (%s, %s)", [event.id, os.getpid()])
    tx.outcome("mended", key=event.object["id"], data={"event": event.id})


@handlers.on("test.line")
def waits_at_its_head(event: Event, tx: Tx) -> None:
    """The first of a line is parked until it is mended; the others cost no statement of their own."""
    if event.object["number"] == 0 and tx.fetch_all("SELECT to_regclass('public.mended') AS at")[0]["at"] is None:
        raise ConnectionRefusedError("not yet")
    tx.outcome("line.passed", key=event.object["id"], data={"number": event.object["number"]})
