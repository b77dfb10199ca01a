"""Events of chosen order keys, and handlers that are poisoned for some of them: what the tests of parking are made of."""

from __future__ import annotations

import psycopg

from onceflow import Event, Handlers, Tx
from onceflow_processor.records import Record
from tests.processor.conftest import Bench, event_body, record


class Poison:
    """Handlers that note every event in ``public.ledger``, except those that are poisoned now."""

    def __init__(self) -> None:
        self.raises: dict[str, BaseException] = {}
        self.calls: list[str] = []
        self.handlers = Handlers()

        @self.handlers.on("invoice.paid")
        def note(event: Event, tx: Tx) -> None:
            self.calls.append(event.id)
            tx.execute("INSERT INTO public.ledger (event_id, note) VALUES (%s, clock_timestamp()::text)", [event.id])
            if event.id in self.raises:
                raise self.raises[event.id]
            tx.outcome("invoice.paid", key=event.object["id"], data={"event": event.id})


def of_key(event_id: str, key: str, offset: int, *, partition: int = 0) -> Record:
    """An event of an invoice, whose order key that is."""
    subject = {"id": key, "object": "invoice", "amount_paid": 1}
    return record(event_body(event_id, "invoice.paid", subject), offset, partition=partition)


def ledger(bench: Bench) -> list[str]:
    """The events that handlers have noted, in their order."""
    return [row["event_id"] for row in bench.rows("SELECT event_id FROM public.ledger ORDER BY note")]


def parked(bench: Bench) -> list[str]:
    """The parked events by key, in their order."""
    return [row["event_id"] for row in bench.rows("SELECT event_id FROM onceflow.parked ORDER BY order_key, seq")]


def key_rows(bench: Bench) -> list[tuple[str, str, str]]:
    """The parked keys, with reason and head."""
    rows = bench.rows("SELECT order_key, reason, event_id FROM onceflow.parked_key ORDER BY order_key")
    return [(row["order_key"], row["reason"], row["event_id"]) for row in rows]


def ask_retry(bench: Bench, event_id: str) -> None:
    """What ``onceflow quarantine retry`` does to an event that blocks its key."""
    with psycopg.connect(bench.url) as other:
        other.execute("UPDATE onceflow.inbox SET state = 'parked' WHERE event_id = %s", [event_id])
        other.execute(
            'INSERT INTO onceflow.parked (account, mode, event_id, order_key, seq, topic_id, partition, "offset", topic, key,'
            " value, headers, record_time, type)"
            " SELECT account, mode, event_id, order_key, (SELECT min(seq) - 1 FROM onceflow.parked), topic_id, partition,"
            ' "offset", topic, key, value, headers, record_time, type FROM onceflow.quarantine WHERE event_id = %s',
            [event_id],
        )
        other.execute(
            "UPDATE onceflow.quarantine SET decision = 'retried', decided_at = now() WHERE event_id = %s", [event_id]
        )
        other.execute("UPDATE onceflow.parked_key SET reason = 'retry', due_at = clock_timestamp(), fence = fence + 1")
