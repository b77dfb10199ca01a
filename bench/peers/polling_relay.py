"""The usual outbox relay: select what is unsent, produce, flush, mark as sent, commit, again."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import psycopg
from confluent_kafka import Producer

sys.path.insert(0, str(Path(__file__).parent))
from event_work import SQL

FLUSH_SECONDS = 30
IDLE_SECONDS = 0.03
TOLD = json.loads(sys.argv[1])


def relay_once(connection: psycopg.Connection, producer: Producer) -> int:
    """Send one page of at most 500 rows; returns how many there were."""
    with connection.transaction():
        rows = connection.execute(SQL["unsent"]).fetchall()
        for outcome_id, kind, key, value, event_id, created_at in rows:
            headers = [
                ("ce_id", str(outcome_id).encode()),
                ("ce_type", kind.encode()),
                ("ce_time", created_at.isoformat().encode()),
                ("cause", event_id.encode()),
            ]
            producer.produce(TOLD["topic"], value=value, key=key, headers=headers)
        if producer.flush(FLUSH_SECONDS):
            raise RuntimeError("not everything was confirmed")
        if rows:
            connection.execute(SQL["mark_sent"], [[row[0] for row in rows]])
    return len(rows)


def main() -> None:
    """Relay for ever."""
    producer = Producer({"bootstrap.servers": TOLD["bootstrap"], "acks": "all", "enable.idempotence": True})
    with psycopg.connect(TOLD["database_url"], autocommit=True) as connection:
        while True:
            if not relay_once(connection, producer):
                time.sleep(IDLE_SECONDS)


if __name__ == "__main__":
    main()
