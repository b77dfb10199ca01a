"""A FastAPI endpoint that produces and flushes in each request: no signature check, acks=all like the bridge."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import uvicorn
from confluent_kafka import Producer
from fastapi import Depends, FastAPI, HTTPException, Request

FLUSH_SECONDS = 10
TOLD = json.loads(sys.argv[1])
producer = Producer({"bootstrap.servers": TOLD["bootstrap"], "acks": "all", "enable.idempotence": True})
app = FastAPI()


async def read_body(request: Request) -> bytes:
    """The body, read in the event loop as always."""
    return await request.body()


@app.post("/webhooks/stripe")
def take(body: Annotated[bytes, Depends(read_body)]) -> dict[str, bool]:
    """Publish the webhook, and answer when the broker has it."""
    event = json.loads(body)
    producer.produce(TOLD["topic"], value=body, key=event["id"])
    if producer.flush(FLUSH_SECONDS):
        raise HTTPException(503)
    return {"received": True}


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=TOLD["port"], access_log=False, log_level="error")
