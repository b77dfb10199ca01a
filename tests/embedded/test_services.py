"""Both real services as users see them: one folder, one owner, every death healed, nothing left over."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource

from onceflow.embedded import EmbeddedServices, ExtraListener
from onceflow.embedded.child_process import Command, run_to_end
from onceflow.embedded.kafka_jars import KAFKA_VERSION
from onceflow.embedded.postgres_identity import choose_identity
from onceflow_schemas.failure import Misconfigured
from tests.checker.waiting import wait_for
from tests.embedded.broker_client import create_topic, read, write
from tests.embedded.process_state import is_alive, kill_hard, wait_gone

PARENT = """
import json, pathlib, signal, sys
from onceflow.embedded import EmbeddedServices
services = EmbeddedServices(data_dir=pathlib.Path(sys.argv[1]), cache_dir=pathlib.Path(sys.argv[2]))
services.start()
print(json.dumps({"pids": [services.kafka.pid, services.postgres.pid], "url": services.database_url}), flush=True)
signal.pause()
"""

PLAIN_USER = """
import os, pathlib, psycopg
from confluent_kafka.admin import AdminClient
from onceflow.embedded import EmbeddedServices
assert os.geteuid() != 0
with EmbeddedServices(data_dir=pathlib.Path("data"), cache_dir=pathlib.Path("cache")) as services:
    with psycopg.connect(services.database_url) as connection:
        version = connection.info.server_version // 10_000
    brokers = AdminClient({"bootstrap.servers": services.kafka_bootstrap}).list_topics(timeout=10).brokers
print(f"a plain user: {version} and {len(brokers)} broker")
"""


@pytest.fixture(scope="module")
def own_services(
    tmp_path_factory: pytest.TempPathFactory, cache_dir: Path, jar_folder: Path
) -> Iterator[EmbeddedServices]:
    """Services of this module alone, in a folder whose name Java and Kafka could trip over."""
    data = tmp_path_factory.mktemp("services") / "Größe, zwei = 2"
    with EmbeddedServices(data_dir=data, cache_dir=cache_dir) as running:
        yield running


def test_kafka_comes_back_after_kill_9_with_its_records(own_services: EmbeddedServices) -> None:
    bootstrap, topic = own_services.kafka_bootstrap, create_topic(own_services.kafka_bootstrap)
    write(bootstrap, topic, [b"one", b"two"])
    kill_hard(own_services.kafka.pid)
    # The first thread of Java is gone a moment before the last one.
    code = wait_for(own_services.kafka.poll, limit_seconds=30, what="the end of Java")
    assert code == -signal.SIGKILL
    own_services.kafka.start()
    own_services.kafka.wait_ready()
    assert own_services.kafka_bootstrap == bootstrap
    write(bootstrap, topic, [b"three"])
    assert read(bootstrap, topic, 3) == [b"one", b"two", b"three"]


def test_the_process_ids_are_those_of_the_real_services(own_services: EmbeddedServices) -> None:
    for pid, program in ((own_services.kafka.pid, "java"), (own_services.postgres.pid, "postgres")):
        assert Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].endswith(program.encode())
        assert f"PPid:\t{os.getpid()}\n" in Path(f"/proc/{pid}/status").read_text()


def test_a_second_start_on_one_folder_is_refused(own_services: EmbeddedServices, cache_dir: Path) -> None:
    second = EmbeddedServices(data_dir=own_services.folder.root, cache_dir=cache_dir)
    with pytest.raises(Misconfigured, match=f"in use by process {os.getpid()}$") as refused:
        second.start()
    assert refused.value.code == "data_folder_in_use"
    assert own_services.kafka.poll() is None
    assert own_services.postgres.poll() is None


def test_logs_lie_in_the_folder(own_services: EmbeddedServices) -> None:
    assert "Kafka Server started" in (own_services.folder.logs / "broker.log").read_text()
    assert "ready to accept connections" in (own_services.folder.logs / "postgres.log").read_text()


def broker_setting(bootstrap: str, name: str) -> str | None:
    """Return the value of a setting as the running broker has it."""
    resource = ConfigResource(ConfigResource.Type.BROKER, "1")
    admin = AdminClient({"bootstrap.servers": bootstrap})
    value: str | None = admin.describe_configs([resource])[resource].result(10)[name].value
    return value


@pytest.mark.long
def test_two_folders_side_by_side_and_each_continues(
    own_services: EmbeddedServices, cache_dir: Path, tmp_path: Path
) -> None:
    said: list[str] = []
    services = EmbeddedServices(
        data_dir=tmp_path,
        cache_dir=cache_dir,
        progress=said.append,
        extra_broker_properties={"message.max.bytes": "2000000"},
        kafka_listeners=[ExtraListener("PROXY", advertised_port=29_999)],
    )
    with services:
        assert services.kafka.cluster_id != own_services.kafka.cluster_id
        assert len({services.kafka_bootstrap, own_services.kafka_bootstrap, services.kafka.address("PROXY")}) == 3
        brokers = AdminClient({"bootstrap.servers": services.kafka.address("PROXY")}).list_topics(timeout=10).brokers
        assert broker_setting(services.kafka_bootstrap, "message.max.bytes") == "2000000"
        assert [broker.port for broker in brokers.values()] == [29_999]
        topic, first = create_topic(services.kafka_bootstrap), (services.kafka_bootstrap, services.database_url)
        write(services.kafka_bootstrap, topic, [b"kept"])
        with psycopg.connect(services.database_url) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 42 AS answer")
        pids = (services.kafka.pid, services.postgres.pid)
    assert (services.kafka.poll(), services.postgres.poll()) == (143, 0)
    assert not any(is_alive(pid or 0) for pid in pids)
    with services:
        assert (services.kafka_bootstrap, services.database_url) == first
        assert read(services.kafka_bootstrap, topic, 1) == [b"kept"]
        with psycopg.connect(services.database_url) as connection:
            assert connection.execute("SELECT answer FROM kept").fetchall() == [(42,)]
    assert sum(line.endswith("making the data folder") for line in said) == 2
    assert sum(": ready on 127.0.0.1:" in line for line in said) == 4


def test_nothing_outlives_a_parent_that_was_killed_and_the_next_start_continues(
    cache_dir: Path, jar_folder: Path, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    with subprocess.Popen([sys.executable, "-c", PARENT, str(data), str(cache_dir)], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        started = json.loads(parent.stdout.readline())
        with psycopg.connect(started["url"], autocommit=True) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 42 AS answer")
            backends = [row[0] for row in connection.execute("SELECT pid FROM pg_stat_activity").fetchall()]
            parent.kill()
            wait_gone(*started["pids"], *backends)
    services = EmbeddedServices(data_dir=data, cache_dir=cache_dir)
    services.folder.claim()
    try:
        services.postgres.start()
        services.postgres.wait_ready()
        assert services.database_url == started["url"]
        with psycopg.connect(services.database_url) as connection:
            assert connection.execute("SELECT answer FROM kept").fetchall() == [(42,)]
    finally:
        services.stop()


def test_a_failed_start_leaves_nothing_and_frees_the_folder(cache_dir: Path, jar_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "kafka").mkdir()
    (tmp_path / "kafka" / "identity.json").write_text('{"cluster_id": "x", "kafka_version": "3.9.1"}')
    services = EmbeddedServices(data_dir=tmp_path, cache_dir=cache_dir)
    with pytest.raises(Misconfigured, match=r"Kafka 3\.9\.1"):
        services.start()
    assert services.postgres.poll() == 0
    services.folder.claim()
    services.folder.release()


@pytest.fixture
def plain_user(tmp_path: Path, jar_folder: Path) -> Iterator[tuple[str, Path]]:
    """How to become a plain user, and a folder of that user with a warm cache in it, but no file for a quick start.

    For root this is ``nobody`` where that user can reach the interpreter, else a user namespace in which we look like
    ``nobody``.  Everybody else is a plain user already.
    """
    home = Path(tempfile.mkdtemp(prefix="onceflow-plain-user-"))
    cache = home / "cache" / "kafka"
    shutil.copytree(jar_folder, cache / KAFKA_VERSION, ignore=shutil.ignore_patterns("quick-start-*"))
    # To some of these users the folder belongs, so it is this that keeps them from writing.
    for folder in (cache / KAFKA_VERSION, cache):
        folder.chmod(0o555)
    launch = "same"
    if os.geteuid() == 0:
        launch = choose_identity(Path(sys.executable), home.parent).launch
    if launch.startswith("user:"):
        _, user, group = launch.split(":")
        os.chown(home, int(user), int(group))
    yield launch, home
    for folder in (cache, cache / KAFKA_VERSION):
        folder.chmod(0o755)
    assert [path.name for path in cache.iterdir()] == [KAFKA_VERSION]
    assert {path.suffix for path in (cache / KAFKA_VERSION).iterdir()} == {".jar"}
    shutil.rmtree(home)


def test_a_plain_user_starts_both_with_a_cache_that_it_may_only_read(plain_user: tuple[str, Path]) -> None:
    launch, home = plain_user
    command = Command(
        [sys.executable, "-c", PLAIN_USER],
        directory=home,
        identity=launch,
        environment={"HOME": str(home), "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    finished = run_to_end(command, timeout_seconds=60)
    assert finished.output == "a plain user: 18 and 1 broker\n"
    assert finished.exit_code == 0
