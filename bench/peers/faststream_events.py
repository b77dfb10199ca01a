"""FastStream with a handler per event: one transaction per event, acknowledged afterwards."""

from __future__ import annotations

import asyncio
import json
import sys
import uuid
from pathlib import Path
from typing import Any

import psycopg
from faststream import AckPolicy, FastStream
from faststream.confluent import KafkaBroker

sys.path.insert(0, str(Path(__file__).parent))
from event_work import SQL, outcome_of, row_of

TOLD = json.loads(sys.argv[1])
broker = KafkaBroker(TOLD["bootstrap"], logger=None)
app = FastStream(broker, logger=None)
connections: list[psycopg.AsyncConnection[Any]] = []


@app.on_startup
async def connect() -> None:
    """Open the one connection of this consumer."""
    connections.append(await psycopg.AsyncConnection.connect(TOLD["database_url"]))


@broker.subscriber(
    TOLD["topic"], group_id=TOLD["group"], auto_offset_reset="earliest", ack_policy=AckPolicy.NACK_ON_ERROR
)
async def handle(event: dict[str, Any]) -> None:
    """Mark one event and write its outcome."""
    connection = connections[0]
    async with connection.transaction():
        cursor = await connection.execute(SQL["event"], row_of(event))
        if cursor.rowcount == 1:
            await connection.execute(SQL["outcome"], [uuid.uuid4(), *outcome_of(event)])


if __name__ == "__main__":
    asyncio.run(app.run())
