"""A FastAPI endpoint that only reads the body: what any endpoint costs."""

from __future__ import annotations

import json
import sys

import uvicorn
from fastapi import FastAPI, Request

TOLD = json.loads(sys.argv[1])
app = FastAPI()


@app.post("/webhooks/stripe")
async def take(request: Request) -> dict[str, bool]:
    """Read the body."""
    await request.body()
    return {"received": True}


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=TOLD["port"], access_log=False, log_level="error")
