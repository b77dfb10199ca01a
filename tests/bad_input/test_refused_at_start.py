"""Databases and topics that a service must not work with: refused at its start, with a code, a fix and a status."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from onceflow.embedded.data_folder import DataFolder
from onceflow.embedded.postgres_server import PostgresServer
from onceflow.migrations import migrate
from onceflow_processor.start_check import check_safety
from onceflow_schemas.failure import Unavailable
from tests.conftest import create_topic

BOTH = pytest.mark.parametrize("service", ["process", "relay"])


class Installation:
    """Two topics and a database; every setting is right."""

    def __init__(self, bootstrap: str, url: str, folder: Path) -> None:
        self.url, self.bootstrap, self.folder = url, bootstrap, folder
        self.outcomes = create_topic(bootstrap, prefix="outcomes", partitions=2)
        self.events = create_topic(bootstrap, prefix="events", partitions=2)

    def make_lanes(self, count: int = 2) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(
                "INSERT INTO onceflow.lane (lane, topic_id) SELECT n, 'x' FROM generate_series(0, %s) n", [count - 1]
            )

    def start(self, service: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a service that is expected to refuse."""
        given = {
            **os.environ,
            "DATABASE_URL": self.url,
            "STRIPE_WEBHOOK_SECRET": "whsec_" + base64.b64encode(b"0123456789abcdef").decode(),
            "ONCEFLOW_DEPLOYMENT_ID": f"refused-{uuid.uuid4().hex[:8]}",
            "ONCEFLOW_STRIPE_ACCOUNT": "acct_1",
            "ONCEFLOW_ATTESTATION_KEYS": "k1=0123456789abcdef0123456789abcdef",
            "ONCEFLOW_PROCESSOR_HANDLERS": "onceflow.examples.payments:handlers",
            "ONCEFLOW_KAFKA_BOOTSTRAP_SERVERS": self.bootstrap,
            "ONCEFLOW_TOPICS_EVENTS": self.events,
            "ONCEFLOW_TOPICS_OUTCOMES": self.outcomes,
            **environment,
        }
        return subprocess.run(
            [sys.executable, "-m", "onceflow", service],
            cwd=self.folder, env=given, capture_output=True, text=True, timeout=40, check=False,
        )  # fmt: skip

    def refusal(self, service: str, *, status: int, **environment: str) -> str:
        """What the service said before it ended with this status."""
        done = self.start(service, **environment)
        assert done.returncode == status, done.stderr
        assert "Traceback" not in done.stderr
        said = done.stderr[done.stderr.index("error: ") :]
        assert "\nhint: " in said
        return said


@pytest.fixture
def installation(kafka_bootstrap: str, fresh_database: str, tmp_path: Path) -> Installation:
    return Installation(kafka_bootstrap, fresh_database, tmp_path)


@BOTH
def test_a_newer_schema(installation: Installation, service: str) -> None:
    with psycopg.connect(installation.url, autocommit=True) as connection:
        connection.execute("INSERT INTO onceflow.schema_migrations (version) VALUES ('29990101000000')")
    assert installation.refusal(service, status=4).startswith("error: schema_ahead: ")


@BOTH
def test_no_schema(kafka_bootstrap: str, empty_database: str, tmp_path: Path, service: str) -> None:
    said = Installation(kafka_bootstrap, empty_database, tmp_path).refusal(service, status=4)
    assert said.startswith("error: schema_missing: ")


@BOTH
def test_another_number_of_partitions(installation: Installation, service: str) -> None:
    installation.make_lanes(3)
    said = installation.refusal(service, status=5)
    assert said.startswith("error: topic_mismatch: ")
    assert "2 partitions" in said
    assert "3 lanes" in said


@BOTH
def test_commits_that_a_crash_would_lose(installation: Installation, service: str) -> None:
    installation.make_lanes()
    _alter(installation.url, "SET synchronous_commit = off")
    assert "database_unsafe: synchronous_commit is off" in installation.refusal(service, status=5)


def _alter(url: str, what: str) -> None:
    name = sql.Identifier(str(conninfo_to_dict(url)["dbname"]))
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(sql.SQL("ALTER DATABASE {} ").format(name) + sql.SQL(what))


def test_a_read_only_database_is_waited_for(installation: Installation) -> None:
    """It is no standby: a full disk or an operator made it so, and it passes without a restart of ours."""
    _alter(installation.url, "SET default_transaction_read_only = on")
    with psycopg.connect(installation.url) as connection, pytest.raises(Unavailable, match="read-only"):
        check_safety(connection)
    with psycopg.connect(installation.url, options="-c default_transaction_read_only=off") as connection:
        assert check_safety(connection) >= 150_000


@pytest.fixture(scope="module")
def standby(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server in recovery, with a schema; fsync is off besides."""
    folder = DataFolder(tmp_path_factory.mktemp("standby"))
    folder.claim()
    server = PostgresServer(folder, progress=print, extra_settings={"fsync": "off"})
    try:
        server.start()
        server.wait_ready()
        with psycopg.connect(server.url) as connection:
            migrate(connection)
            connection.execute("INSERT INTO onceflow.lane (lane, topic_id) VALUES (0, 'x'), (1, 'x')")
        server.stop()
        [control] = folder.postgres.glob("*/PG_VERSION")
        signal = control.with_name("standby.signal")
        signal.touch()
        owner = control.stat()
        os.chown(signal, owner.st_uid, owner.st_gid)
        server.start()
        server.wait_ready()
        yield server.url
    finally:
        server.stop()
        folder.release()


@BOTH
def test_a_standby_with_all_its_faults_at_once(
    kafka_bootstrap: str, standby: str, tmp_path: Path, service: str
) -> None:
    said = Installation(kafka_bootstrap, standby, tmp_path).refusal(service, status=5)
    assert said.startswith("error: database_unsafe: ")
    assert "  - fsync is off" in said
    assert "  - this is a standby: connect to the primary" in said


@pytest.fixture
def latin_database(database_url: str) -> Iterator[str]:
    name = f"latin_{uuid.uuid4().hex[:8]}"
    statement = "CREATE DATABASE {} ENCODING 'LATIN1' LOCALE 'C' LOCALE_PROVIDER libc TEMPLATE template0"
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(sql.SQL(statement).format(sql.Identifier(name)))
    yield make_conninfo(database_url, dbname=name)
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@BOTH
def test_another_encoding(kafka_bootstrap: str, latin_database: str, tmp_path: Path, service: str) -> None:
    said = Installation(kafka_bootstrap, latin_database, tmp_path).refusal(service, status=5)
    assert "database_unsafe: the database's encoding is LATIN1" in said


@pytest.mark.parametrize("service", ["bridge", "process", "relay"])
def test_settings_are_refused_all_at_once(installation: Installation, service: str) -> None:
    said = installation.refusal(
        service,
        status=3,
        ONCEFLOW_BRIDGE_PROT="1",
        ONCEFLOW_KAFKA_ACKS="1",
        ONCEFLOW_KAFKA_BUFFER_MEMORY="1000",
        ONCEFLOW_KAFKA_GROUP_ID="mine",
        STRIPE_WEBHOOK_SECRET="sk_test_CANARY",
        ONCEFLOW_PROCESSOR_HORIZON_DAYS="90",
        ONCEFLOW_TOPICS_OUTCOMES=installation.events,
    )
    faults = [line for line in said.splitlines() if line.startswith("  - ")]
    for text in (
        "did you mean",
        "kafka.acks",
        "kafka.buffer.memory",
        "kafka.group.id",
        "stripe.webhook_secret",
        "shorter than processor.horizon_days",
        "which is an event topic too",
    ):
        assert any(text in fault for fault in faults), (text, faults)
    assert "CANARY" not in said
