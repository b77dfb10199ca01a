"""`onceflow doctor` as an operator starts it, on a real broker and database, whole and broken in many ways."""

from __future__ import annotations

import base64
import json
import os
import pty
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

SECRET = "whsec_" + base64.b64encode(b"CANARY-secret-of-an-endpoint").decode()
KEY = "CANARY-attestation-key-of-32-bytes-or-more"
AWAY_SECONDS_MAX = 40.0


class Doctor:
    """An installation with topics of its own."""

    def __init__(self, bootstrap: str, url: str, folder: Path) -> None:
        mark = uuid.uuid4().hex[:10]
        self.url, self.bootstrap, self.folder = url, bootstrap, folder
        self.events, self.outcomes = f"events.{mark}", f"outcomes.{mark}"
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "PYTHONPATH") if name in os.environ}
        self.environment = {
            **kept,
            "DATABASE_URL": url,
            "STRIPE_WEBHOOK_SECRET": SECRET,
            "ONCEFLOW_DEPLOYMENT_ID": f"shop-{mark}",
            "ONCEFLOW_STRIPE_ACCOUNT": "acct_1",
            "ONCEFLOW_ATTESTATION_KEYS": f"k1={KEY}",
            "ONCEFLOW_PROCESSOR_HANDLERS": "onceflow.examples.payments:handlers",
            "ONCEFLOW_KAFKA_BOOTSTRAP_SERVERS": bootstrap,
            "ONCEFLOW_TOPICS_EVENTS": self.events,
            "ONCEFLOW_TOPICS_OUTCOMES": self.outcomes,
            "ONCEFLOW_TOPICS_PARTITIONS": "2",
        }

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "onceflow", *arguments],
            cwd=self.folder,
            env={**self.environment, "PYTHONIOENCODING": "utf-8", **environment},
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )

    def examine(self, *arguments: str, **environment: str) -> tuple[int, list[dict[str, Any]]]:
        """The exit status, and every line."""
        done = self.run("doctor", "--json", *arguments, **environment)
        assert "CANARY" not in done.stdout + done.stderr
        assert "Traceback" not in done.stderr, done.stderr
        return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]

    def crosses(self, *arguments: str, status: int, **environment: str) -> dict[str, str]:
        """The subjects of the crosses with what was found; each has a fix."""
        code, lines = self.examine(*arguments, **environment)
        bad = [line for line in lines if not line["ok"]]
        assert code == status, bad
        assert all(line["fix"] for line in bad)
        return {line["subject"]: line["found"] for line in bad}

    def sql(self, text: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(text.encode())

    def configure(self, topic: str, name: str, value: str) -> None:
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.incremental_alter_configs([resource])[resource].result(20)


@pytest.fixture
def doctor(kafka_bootstrap: str, fresh_database: str, tmp_path: Path) -> Doctor:
    """An installation in which nothing is wrong."""
    made = Doctor(kafka_bootstrap, fresh_database, tmp_path)
    applied = made.run("topics", "apply")
    assert applied.returncode == 0, applied.stderr
    return made


def test_where_nothing_is_wrong_there_are_only_ticks(doctor: Doctor) -> None:
    code, lines = doctor.examine()
    assert [line for line in lines if not line["ok"]] == []
    assert code == 0
    subjects = [line["subject"] for line in lines]
    for subject in (
        "python", "packages", "settings", "handlers", "kafka", doctor.events, doctor.outcomes, "size limits",
        f"{doctor.events} retention", f"rights on topic {doctor.events}", "database", "clock", "schema",
        "database rights", "deployment", "lanes", "positions", "retention",
    ):  # fmt: skip
        assert subject in subjects
    with psycopg.connect(doctor.url) as connection:
        # It looked, and left nothing behind.
        assert connection.execute("SELECT count(*) FROM onceflow.deployment").fetchone() == (0,)


def test_colours_are_for_terminals_only(doctor: Doctor) -> None:
    piped = doctor.run("doctor", "--part", "relay")
    assert piped.stdout.startswith("✓ python: ")
    assert "\x1b[" not in piped.stdout
    plain = doctor.run("doctor", "--part", "relay", PYTHONIOENCODING="ascii:replace")
    assert plain.stdout.startswith("ok python: ")
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "onceflow", "doctor", "--part", "relay"],
        cwd=doctor.folder, env={**doctor.environment, "TERM": "xterm", "PYTHONIOENCODING": "utf-8"}, stdout=theirs,
    ) as process:  # fmt: skip
        os.close(theirs)
        shown = b""
        while chunk := _read(ours):
            shown += chunk
        assert process.wait(60) == 0
    os.close(ours)
    assert b"\x1b[32m" in shown


def _read(terminal: int) -> bytes:
    """The other end of a terminal that is closed is an error on Linux, which means the end."""
    try:
        return os.read(terminal, 65_536)
    except OSError:
        return b""


def test_a_part_needs_only_its_own(doctor: Doctor) -> None:
    for name in ("DATABASE_URL", "ONCEFLOW_PROCESSOR_HANDLERS"):
        del doctor.environment[name]
    code, lines = doctor.examine("--part", "bridge")
    assert (code, [line for line in lines if not line["ok"]]) == (0, [])
    assert "database" not in [line["subject"] for line in lines]
    code, lines = doctor.examine("--part", "bridge", ONCEFLOW_TOPICS_OUTCOMES="not.mine")
    assert (code, [line for line in lines if not line["ok"]]) == (0, [])
    code, lines = doctor.examine()
    assert code == 3
    assert sum(line["subject"] == "settings" for line in lines if not line["ok"]) == 2
    assert doctor.run("doctor", "--part", "nobody").returncode == 2


@pytest.mark.long
def test_with_everything_away_it_ends_in_time_and_says_so(tmp_path: Path) -> None:
    away = Doctor("127.0.0.1:9", "postgresql://u:CANARY@127.0.0.1:9/x", tmp_path)
    begun = time.monotonic()
    found = away.crosses(status=5)
    assert time.monotonic() - begun < AWAY_SECONDS_MAX
    assert set(found) == {"kafka", "database"}


def test_one_dependency_away_costs_no_line_of_the_other(doctor: Doctor) -> None:
    code, lines = doctor.examine(DATABASE_URL="postgresql://u:CANARY@127.0.0.1:9/x")
    assert code == 5
    assert {line["subject"] for line in lines if not line["ok"]} == {"database"}
    assert doctor.events in [line["subject"] for line in lines]
    code, lines = doctor.examine(ONCEFLOW_KAFKA_BOOTSTRAP_SERVERS="127.0.0.1:9")
    assert code == 5
    assert {line["subject"] for line in lines if not line["ok"]} == {"kafka"}
    assert "lanes" in [line["subject"] for line in lines]


def test_settings_and_handlers(doctor: Doctor) -> None:
    (doctor.folder / "broken_shop.py").write_text("raise RuntimeError('not today')\n")
    found = doctor.crosses(
        status=3,
        ONCEFLOW_BRIDGE_PROT="1",
        ONCEFLOW_KAFKA_ACKS="1",
        ONCEFLOW_PROCESSOR_HANDLERS="broken_shop:handlers",
    )
    assert set(found) == {"settings", "handlers"}
    assert "not today" in found["handlers"]


def test_the_schema(doctor: Doctor, empty_database: str) -> None:
    doctor.sql("INSERT INTO onceflow.schema_migrations (version) VALUES ('29990101000000')")
    assert "schema_ahead" in doctor.crosses(status=1)["schema"]


def test_a_database_without_the_schema(kafka_bootstrap: str, empty_database: str, tmp_path: Path) -> None:
    found = Doctor(kafka_bootstrap, empty_database, tmp_path).crosses(status=1)
    assert "schema_missing" in found["schema"]


def test_a_database_that_may_lose_or_cannot_take_writes(doctor: Doctor) -> None:
    name = sql.Identifier(str(conninfo_to_dict(doctor.url)["dbname"])).as_string(None)
    doctor.sql(f"ALTER DATABASE {name} SET synchronous_commit = off")
    assert "synchronous_commit is off" in doctor.crosses(status=5)["database"]
    doctor.sql(f"ALTER DATABASE {name} RESET synchronous_commit")
    doctor.sql(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    assert doctor.crosses(status=5)["database"] == "the database is read-only"


@pytest.fixture
def ascii_database(database_url: str) -> Iterator[str]:
    name = f"ascii_{uuid.uuid4().hex[:8]}"
    statement = "CREATE DATABASE {} ENCODING 'SQL_ASCII' LOCALE 'C' LOCALE_PROVIDER libc TEMPLATE template0"
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(sql.SQL(statement).format(sql.Identifier(name)))
    yield make_conninfo(database_url, dbname=name)
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def test_another_encoding(kafka_bootstrap: str, ascii_database: str, tmp_path: Path) -> None:
    found = Doctor(kafka_bootstrap, ascii_database, tmp_path).crosses("--part", "relay", status=5)
    assert found["encoding"] == "SQL_ASCII"


def test_rights_of_the_database_role(doctor: Doctor) -> None:
    role = f"doctor_{uuid.uuid4().hex[:8]}"
    doctor.sql(f"CREATE ROLE {role} LOGIN PASSWORD 'CANARY'")
    doctor.sql(f"GRANT USAGE ON SCHEMA onceflow TO {role}")
    doctor.sql(f"GRANT SELECT ON ALL TABLES IN SCHEMA onceflow TO {role}")
    try:
        url = make_conninfo(doctor.url, user=role, password="CANARY")
        found = doctor.crosses(status=1, DATABASE_URL=url)
        assert found["database rights"].startswith(f"{role} lacks DELETE on onceflow.batch_guard")
        doctor.sql(f"REVOKE SELECT ON onceflow.progress, onceflow.lane FROM {role}")
        unseen = doctor.crosses(status=1, DATABASE_URL=url)
        assert set(unseen) == {"database rights"}, "what may not be read is not looked at"
        doctor.sql(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA onceflow TO {role}")
        assert doctor.crosses(status=0, DATABASE_URL=url) == {}
    finally:
        doctor.sql(f"DROP OWNED BY {role}; DROP ROLE {role}")


def test_an_operator_needs_the_rights_for_decisions_and_no_secret_of_stripe(doctor: Doctor) -> None:
    role = f"doctor_{uuid.uuid4().hex[:8]}"
    doctor.sql(f"CREATE ROLE {role} LOGIN PASSWORD 'CANARY'")
    doctor.sql(f"GRANT USAGE ON SCHEMA onceflow TO {role}")
    doctor.sql(f"GRANT SELECT ON ALL TABLES IN SCHEMA onceflow TO {role}")
    for name in ("STRIPE_WEBHOOK_SECRET", "ONCEFLOW_PROCESSOR_HANDLERS", "ONCEFLOW_STRIPE_ACCOUNT"):
        del doctor.environment[name]
    try:
        doctor.environment["DATABASE_URL"] = make_conninfo(doctor.url, user=role, password="CANARY")
        found = doctor.crosses("--part", "operator", status=1)
        assert set(found) == {"database rights"}
        for right in ("INSERT on onceflow.audit", "UPDATE (detail) on onceflow.lane"):
            assert right in found["database rights"]
        doctor.sql(f"GRANT INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA onceflow TO {role}")
        code, lines = doctor.examine("--part", "operator")
        assert code == 0
        found = {line["subject"]: line["found"] for line in lines}
        assert found["database rights"] == f"{role} may do what is needed for operator"
        assert found[f"rights on topic {doctor.events}"] == "ALTER_CONFIGS, CREATE, READ"
        assert {"positions", "lanes", doctor.outcomes} <= set(found)
    finally:
        doctor.sql(f"DROP OWNED BY {role}; DROP ROLE {role}")


def test_what_stands_still_and_what_belongs_to_others(doctor: Doctor) -> None:
    doctor.sql("UPDATE onceflow.lane SET state = 'stopped:diverged', detail = 'why' WHERE lane = 1")
    doctor.sql(
        "INSERT INTO onceflow.deployment (id, accounts, mode, system_id, timeline) VALUES ('bank', '{acct_9}', 'test', '1', 1)"
    )
    doctor.sql(
        "INSERT INTO onceflow.progress (cluster_id, topic_id, partition, topic, next_offset, epoch, owner, clean, batch_end)"
        f" VALUES ('another', 'another', 1, '{doctor.events}', 7, 1, 'me', true, 7)"
    )
    found = doctor.crosses(status=1)
    assert found["lanes"] == "lane 1 is stopped:diverged: why"
    assert found["positions"].startswith(f"{doctor.events}/1 is stopped topic_changed")
    assert found["deployment"].startswith("the database belongs to bank (test)")


def test_topics_and_limits(doctor: Doctor) -> None:
    doctor.configure(doctor.events, "max.message.bytes", "500000")
    doctor.configure(doctor.events, "retention.ms", "86400000")
    doctor.configure(doctor.outcomes, "cleanup.policy", "compact")
    found = doctor.crosses(status=1)
    assert "topic 500000" in found["size limits"]
    assert "kept 1 days" in found[f"{doctor.events} retention"]
    assert found[doctor.outcomes] == "cleanup.policy should be delete and is compact"
    missing = doctor.crosses(status=1, ONCEFLOW_TOPICS_OUTCOMES=f"missing.{uuid.uuid4().hex}")
    assert any("topic should be" in text for text in missing.values())
