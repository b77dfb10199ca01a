"""DBOS: each record starts a durable workflow whose one step is a transaction in the same database."""

from __future__ import annotations

import json
import sys
import threading
import uuid
from pathlib import Path
from typing import Any

from dbos import DBOS, KafkaMessage, SQLAlchemyDatasource

sys.path.insert(0, str(Path(__file__).parent))
from event_work import SQL, outcome_of, row_of

TOLD = json.loads(sys.argv[1])
EVENT = SQL["event"].decode()
OUTCOME = SQL["outcome"].decode()
URL = TOLD["database_url"].replace("postgresql://", "postgresql+psycopg://", 1)

DBOS(config={"name": "bench", "system_database_url": URL, "run_admin_server": False, "log_level": "WARNING"})
datasource = SQLAlchemyDatasource.create(URL)


@datasource.transaction(isolation_level="READ COMMITTED")
def mark_and_write(event: dict[str, Any]) -> None:
    """Mark one event and write its outcome."""
    connection = datasource.sql_session().connection()
    if connection.exec_driver_sql(EVENT, row_of(event)).rowcount == 1:
        connection.exec_driver_sql(OUTCOME, (uuid.uuid4(), *outcome_of(event)))


@DBOS.kafka_consumer(
    {"bootstrap.servers": TOLD["bootstrap"], "group.id": TOLD["group"], "auto.offset.reset": "earliest"},
    [TOLD["topic"]],
)
@DBOS.workflow()
def handle(message: KafkaMessage) -> None:
    """One event."""
    mark_and_write(json.loads(message.value or b""))


if __name__ == "__main__":
    DBOS.launch()
    threading.Event().wait()
