"""FastStream in batch mode with a correct set-based insert: repeats are dropped, all or nothing, acknowledged afterwards."""

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

BATCH_RECORDS_MAX = 1_000
"""The batch size of onceflow's processor."""

TOLD = json.loads(sys.argv[1])
broker = KafkaBroker(TOLD["bootstrap"], logger=None)
app = FastStream(broker, logger=None)
connections: list[psycopg.AsyncConnection[Any]] = []


@app.on_startup
async def connect() -> None:
    """Open the one connection of this consumer."""
    connections.append(await psycopg.AsyncConnection.connect(TOLD["database_url"]))


@broker.subscriber(
    TOLD["topic"],
    group_id=TOLD["group"],
    auto_offset_reset="earliest",
    batch=True,
    max_records=BATCH_RECORDS_MAX,
    ack_policy=AckPolicy.NACK_ON_ERROR,
)
async def handle(events: list[dict[str, Any]]) -> None:
    """Mark a batch of events and write the outcomes of the new ones, in one transaction."""
    connection = connections[0]
    by_id = {event["id"]: event for event in events}
    columns = [list(column) for column in zip(*sorted(map(row_of, by_id.values())), strict=True)]
    async with connection.transaction():
        cursor = await connection.execute(SQL["events"], columns)
        fresh = [by_id[row[0]] for row in await cursor.fetchall()]
        if fresh:
            outcomes = [(uuid.uuid4(), *outcome_of(event)) for event in fresh]
            await connection.execute(SQL["outcomes"], [list(column) for column in zip(*outcomes, strict=True)])


if __name__ == "__main__":
    asyncio.run(app.run())
