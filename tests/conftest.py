"""The real services behind the tests: one PostgreSQL and one Kafka per session, started when a test first asks.

A test that only needs a database or a topic gets one of its own (``fresh_database``, ``topic``), so that tests run in
any order.  A test that kills or pauses a service starts its own ``EmbeddedServices``, never these.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import psycopg
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from psycopg import sql
from psycopg.conninfo import make_conninfo

from onceflow.embedded.services import EmbeddedServices
from onceflow.migrations import migrate

# A time limit per example would fail on a busy machine, and says nothing about the code.
hypothesis.settings.register_profile("onceflow", deadline=None)
hypothesis.settings.load_profile("onceflow")

PARTITIONS = 6
TOPIC_TIMEOUT_SECONDS = 20.0


@pytest.fixture(scope="session")
def cache_dir() -> Path:
    """Where the Kafka jars are kept between runs."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "onceflow"


@pytest.fixture(scope="session")
def services(tmp_path_factory: pytest.TempPathFactory, cache_dir: Path) -> Iterator[EmbeddedServices]:
    with EmbeddedServices(data_dir=tmp_path_factory.mktemp("services"), cache_dir=cache_dir) as running:
        yield running


@pytest.fixture(scope="session")
def kafka_bootstrap(services: EmbeddedServices) -> str:
    return services.kafka_bootstrap


@pytest.fixture(scope="session")
def database_url(services: EmbeddedServices) -> str:
    return services.database_url


@pytest.fixture
def topic(kafka_bootstrap: str) -> str:
    """A new topic with six partitions."""
    return create_topic(kafka_bootstrap)


def create_topic(
    kafka_bootstrap: str, *, prefix: str = "events", partitions: int = PARTITIONS, config: dict[str, str] | None = None
) -> str:
    """Create a topic of a unique name and wait until the broker knows it."""
    name = f"{prefix}.{uuid.uuid4().hex[:12]}"
    admin = AdminClient({"bootstrap.servers": kafka_bootstrap})
    new = NewTopic(name, num_partitions=partitions, replication_factor=1, config=config or {})
    admin.create_topics([new])[name].result(TOPIC_TIMEOUT_SECONDS)
    give_up_at = time.monotonic() + TOPIC_TIMEOUT_SECONDS
    # The controller has answered, but the broker may not know the topic yet.
    while len(admin.list_topics(name, timeout=TOPIC_TIMEOUT_SECONDS).topics[name].partitions) != partitions:
        assert time.monotonic() < give_up_at, f"the broker does not know {name}"
    return name


@pytest.fixture
def empty_database(database_url: str) -> Iterator[str]:
    """The address of a new database without any tables."""
    name = f"test_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    yield make_conninfo(database_url, dbname=name)
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest.fixture
def fresh_database(empty_database: str) -> str:
    """The address of a new database with every migration applied."""
    with psycopg.connect(empty_database) as connection:
        migrate(connection)
    return empty_database
