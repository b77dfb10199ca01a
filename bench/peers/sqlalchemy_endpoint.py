"""A FastAPI endpoint that inserts each webhook with SQLAlchemy before it answers: no signature check, no repeats told apart."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Any

import uvicorn
from fastapi import Depends, FastAPI, Request
from sqlalchemy import create_engine, func
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, sessionmaker

POOL_CONNECTIONS = 40
"""As many as FastAPI has threads for endpoints."""

TOLD = json.loads(sys.argv[1])
engine = create_engine(
    TOLD["database_url"].replace("postgresql://", "postgresql+psycopg://", 1), pool_size=POOL_CONNECTIONS
)
new_session = sessionmaker(engine)
app = FastAPI()


class Base(DeclarativeBase):
    """The tables of this endpoint."""


class Webhook(Base):
    """One webhook."""

    __tablename__ = "webhook"
    __table_args__ = {"schema": "bench"}  # noqa: RUF012 - the form that SQLAlchemy documents

    event_id: Mapped[str] = mapped_column(primary_key=True)
    type: Mapped[str]
    body: Mapped[bytes]
    received_at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())


def session() -> Iterator[Session]:
    """A session per request."""
    with new_session() as one:
        yield one


async def read_body(request: Request) -> bytes:
    """The body, read in the event loop as always."""
    return await request.body()


@app.post("/webhooks/stripe")
def take(body: Annotated[bytes, Depends(read_body)], database: Annotated[Session, Depends(session)]) -> dict[str, bool]:
    """Insert the webhook and commit."""
    event: dict[str, Any] = json.loads(body)
    row = {"event_id": event["id"], "type": event["type"], "body": body}
    database.execute(insert(Webhook).values(row).on_conflict_do_nothing())
    database.commit()
    return {"received": True}


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=TOLD["port"], access_log=False, log_level="error")
