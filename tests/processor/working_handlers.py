"""Handlers whose work takes time; each run is noted outside of the transaction, so that runs can be counted."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from onceflow import Event, Handlers, Tx

handlers = Handlers()


@handlers.on("invoice.paid")
def work(event: Event, tx: Tx) -> None:
    """Note the run, work for as long as the event says, then write the row and the outcome."""
    with Path(os.environ["WORK_LOG"]).open("a") as log:
        log.write(f"{event.id} {os.getpid()}\n")
    threading.Event().wait(event.body["work_ms"] / 1_000)
    tx.execute("INSERT INTO public.seen (event_id, pid) VALUES (%s, %s)", [event.id, os.getpid()])
    tx.outcome("invoice.paid", key=event.object["id"], data={"event": event.id})
