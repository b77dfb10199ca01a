"""The real services behind the tests: one PostgreSQL and one Kafka per session, started when a test first asks.

A test that only needs a database or a topic gets one of its own (``fresh_database``, ``topic``), so that tests run in
any order.  A test that kills or pauses a service starts its own ``EmbeddedServices``, never these.

Folders whose tests share a whole running system are run in one piece (``one_piece``), so that it ends with them: an
idle Kafka and its clients take a fifth of a core from every test that comes after.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import hypothesis
import psycopg
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from psycopg import sql
from psycopg.conninfo import make_conninfo
from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

from onceflow.embedded.services import EmbeddedServices
from onceflow.migrations import migrate

# A time limit per example would fail on a busy machine, and says nothing about the code.
hypothesis.settings.register_profile("onceflow", deadline=None)
hypothesis.settings.load_profile("onceflow")

SHARING_FOLDERS = ("tests/bad_input/", "tests/faults/", "tests/producer/", "tests/simulator/")
"""Their fixtures of scope ``package`` are whole systems or processes."""

SLOW = (
    "tests/chaos/", "tests/faults/", "tests/docs/", "tests/bench/", "tests/demo/", "tests/processor/test_members.py",
    "tests/clusters/test_pgbouncer.py", "tests/embedded/test_aot_cache.py", "tests/relay/test_service.py",
    "tests/console/test_up.py", "tests/processor/test_long_line.py",
)  # fmt: skip
"""Begun first where several run side by side, or one of them would wait minutes for the last of the others."""

PARTITIONS = 6
TOPIC_TIMEOUT_SECONDS = 20.0


def one_piece(node_id: str) -> str:
    """Return what a test is run together with: its file, or its folder where a folder shares a system."""
    file = node_id.partition("::")[0]
    return next((folder for folder in SHARING_FOLDERS if file.startswith(folder)), file)


class PieceScheduling(LoadFileScheduling):  # type: ignore[misc]
    """Gives each piece to one worker."""

    def _split_scope(self, nodeid: str) -> str:
        return one_piece(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> PieceScheduling:
    config.option.loadscopereorder = False  # the order is that of the collection
    return PieceScheduling(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the pieces together again that the random order took apart, the slow ones in front."""
    places: dict[str, int] = {}
    for item in items:
        places.setdefault(one_piece(item.nodeid), len(places))
    items.sort(key=lambda item: (not item.nodeid.startswith(SLOW), places[one_piece(item.nodeid)]))


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


@contextmanager
def new_database(database_url: str, *, template: str = "template1") -> Iterator[str]:
    """The address of a new database, which is dropped in the end."""
    name = f"test_{uuid.uuid4().hex[:12]}"
    create = sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(name), sql.Identifier(template))
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(create)
    yield make_conninfo(database_url, dbname=name)
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest.fixture
def empty_database(database_url: str) -> Iterator[str]:
    """The address of a new database without any tables."""
    with new_database(database_url) as address:
        yield address


@cache
def migrated_template(database_url: str) -> str:
    """Make a database with every migration applied, once per server; a copy costs half of the migrations.  Return its name."""
    name = f"migrated_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    with psycopg.connect(database_url, dbname=name) as connection:
        migrate(connection)
    return name


@pytest.fixture
def fresh_database(database_url: str) -> Iterator[str]:
    """The address of a new database with every migration applied."""
    with new_database(database_url, template=migrated_template(database_url)) as address:
        yield address
