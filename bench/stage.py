"""What all groups stand on: one broker, one PostgreSQL, databases and topics of their own, the peers' interpreter.

Rule: every run of a side gets a fresh database (a copy of one that was migrated once), and all sides of a group read
the same topic.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
from confluent_kafka import Producer
from psycopg import sql

from bench.bodies import ACCOUNT, ATTESTATION_KEY, DEPLOYMENT, ENDPOINT, WEBHOOK_SECRET, bodies, record_of
from bench.sizes import Sizes
from bench.statements import statements
from onceflow.kafka_admin import KafkaAdmin
from onceflow.migrations import migrate
from onceflow.settings_model import TopicSettings
from onceflow.topics import apply_topics, plan_from_settings
from onceflow_schemas.event_record import OutgoingRecord

PARTITIONS = 6
FLUSH_SECONDS = 300.0
POLL_SECONDS = 0.1
"""So long it is waited for room when the client's queue is full."""
_SQL = statements("bench")


@dataclass(frozen=True, slots=True)
class Road:
    """A pair of topics, and the database that its runs are copied from."""

    events: str
    outcomes: str
    template: str


@dataclass(slots=True)
class Stage:
    """The common ground of a run.

    Attributes:
        folder: for logs and state files.
        bootstrap: of the broker.
        database_url: of a role that may create databases.
        sizes: how much is done.
        peer_python: the peers' interpreter.
        say: called with one line for people.
    """

    folder: Path
    bootstrap: str
    database_url: str
    sizes: Sizes
    peer_python: Path
    say: Callable[[str], None] = print
    _filled: dict[int, Road] = field(default_factory=dict)

    @property
    def peers_folder(self) -> Path:
        """Where the peers' programs are."""
        return Path(__file__).with_name("peers")

    def road(self) -> Road:
        """Make two topics and a migrated database with lanes and the bench's tables."""
        mark = uuid.uuid4().hex[:8]
        road = Road(f"bench.events.{mark}", f"bench.outcomes.{mark}", f"bench_template_{mark}")
        self._execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(road.template)))
        settings = TopicSettings(events=(road.events,), outcomes=road.outcomes, partitions=PARTITIONS)
        admin = KafkaAdmin({"bootstrap.servers": self.bootstrap})
        with psycopg.connect(self.url_of(road.template)) as connection:
            migrate(connection)
            plan, wishes = plan_from_settings(settings, admin=admin, connection=connection)
            apply_topics(plan, wishes, admin=admin, connection=connection, outcome_topic=road.outcomes)
            connection.execute(_SQL["tables"])
        return road

    def filled_road(self, records: int) -> Road:
        """Return a road whose event topic holds this many records, the same for all groups that ask."""
        if records not in self._filled:
            road = self.road()
            self.fill(road, records, series="R")
            self._filled[records] = road
        return self._filled[records]

    def fill(self, road: Road, records: int, *, series: str, ids: Callable[[int], str] | None = None) -> None:
        """Publish records as the bridge does; ``ids`` makes other event ids from their numbers."""
        made = bodies(records, series=series)
        self.publish(
            road,
            (
                record_of(
                    body if ids is None else body.replace(event_id.encode(), ids(number).encode(), 1), topic=road.events
                )
                for number, (event_id, body) in enumerate(made)
            ),
        )

    def publish(self, road: Road, records: Iterable[OutgoingRecord]) -> None:
        """Publish records as they are."""
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "partitioner": "murmur2_random",
                "enable.idempotence": True,
                "linger.ms": 20,
                "queue.buffering.max.messages": 200_000,
                "queue.buffering.max.kbytes": 1_000_000,
            }
        )
        for record in records:
            headers: Any = record.headers
            while True:
                try:
                    producer.produce(road.events, record.value, record.key, headers=headers)
                except BufferError:
                    producer.poll(POLL_SECONDS)
                else:
                    break
        left = producer.flush(FLUSH_SECONDS)
        assert left == 0, f"{left} records were not confirmed"

    @contextmanager
    def database(self, road: Road) -> Iterator[str]:
        """Yield the address of a fresh copy of the road's database; it is dropped afterwards."""
        name = f"bench_{uuid.uuid4().hex[:12]}"
        copy = sql.SQL("CREATE DATABASE {} TEMPLATE {}")
        self._execute(copy.format(sql.Identifier(name), sql.Identifier(road.template)))
        self._execute(_SQL["settle"])
        try:
            yield self.url_of(name)
        finally:
            self._execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))

    def url_of(self, database: str) -> str:
        """Return the address of a database of this server."""
        return urlsplit(self.database_url)._replace(path=f"/{database}").geturl()

    def settings(self, road: Road, *, database_url: str, handlers: str = "bench.handlers:plain") -> dict[str, Any]:
        """Return the settings of the product's parts, by ``section.name``."""
        return {
            "deployment.id": DEPLOYMENT,
            "stripe.account": ACCOUNT,
            "stripe.webhook_secret": f"{ENDPOINT}={WEBHOOK_SECRET}",
            "attestation.keys": f"{ATTESTATION_KEY.id}={ATTESTATION_KEY.secret.hex()}",
            "kafka.bootstrap.servers": self.bootstrap,
            "database.url": database_url,
            "topics.events": (road.events,),
            "topics.outcomes": road.outcomes,
            "topics.partitions": PARTITIONS,
            "bridge.port": 0,
            "processor.handlers": handlers,
            "logs.level": "warning",
        }

    def _execute(self, statement: sql.Composed | bytes) -> None:
        with psycopg.connect(self.database_url, autocommit=True) as connection:
            connection.execute(statement)
