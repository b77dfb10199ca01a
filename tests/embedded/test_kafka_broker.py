"""What the broker refuses and repairs at its start; ``test_services`` has the rest of its life."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from onceflow.embedded.data_folder import DataFolder
from onceflow.embedded.kafka_broker import KafkaBroker, may_continue
from onceflow_schemas.failure import Misconfigured, Unavailable


@pytest.mark.parametrize(
    ("written_by", "ours", "answer"),
    [
        ("4.4.0", "4.4.0", True),
        ("4.3.9", "4.4.0", True),
        ("4.4.1", "4.4.0", False),
        ("4.10.0", "4.9.0", False),
        ("4.9.0", "4.10.0", True),
        ("3.9.0", "4.4.0", False),
        ("5.0.0", "4.4.0", False),
    ],
)
def test_which_folders_may_be_used(written_by: str, ours: str, *, answer: bool) -> None:
    assert may_continue(written_by, ours) is answer


def test_a_folder_of_another_version_is_refused(folder: DataFolder, cache_dir: Path) -> None:
    identity = {"cluster_id": "x", "kafka_version": "3.9.1"}
    (folder.kafka / "identity.json").write_text(json.dumps(identity))
    with pytest.raises(Misconfigured, match=r"was written by Kafka 3\.9\.1, and this release runs Kafka 4") as refused:
        KafkaBroker(folder, cache_dir=cache_dir, progress=print).start()
    assert refused.value.code == "data_folder_version"


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"cluster_id": "x", "kafka_version": "new"}'])
def test_a_damaged_folder_is_refused(folder: DataFolder, cache_dir: Path, text: str) -> None:
    (folder.kafka / "identity.json").write_text(text)
    with pytest.raises(Misconfigured, match=r"identity\.json is damaged") as refused:
        KafkaBroker(folder, cache_dir=cache_dir, progress=print).start()
    assert refused.value.code == "data_folder_unusable"


def test_a_property_that_is_wrong_is_said(folder: DataFolder, cache_dir: Path, jar_folder: Path) -> None:
    broker = KafkaBroker(folder, cache_dir=cache_dir, progress=print, extra_properties={"log.retention.ms": "a while"})
    with pytest.raises(Unavailable, match=r"formatting the Kafka folder ended with 1; it said: .*") as refused:
        broker.start()
    assert refused.value.code == "service_failed"
    assert not (folder.kafka / "log").exists()
    broker.stop()


def test_a_first_start_survives_what_an_unfinished_one_and_a_thief_of_ports_left(
    folder: DataFolder, cache_dir: Path, jar_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder.kafka / "log.new").mkdir()
    (folder.kafka / "log.new" / "meta.properties").write_text("half a folder")
    launch = KafkaBroker._launch
    thieves: list[socket.socket] = []

    def launch_too_late(self: KafkaBroker) -> None:
        if not thieves:
            host, port = self.bootstrap.split(":")
            thieves.append(socket.create_server((host, int(port))))
        launch(self)

    monkeypatch.setattr(KafkaBroker, "_launch", launch_too_late)
    broker = KafkaBroker(folder, cache_dir=cache_dir, progress=print)
    try:
        broker.start()
        stolen = broker.bootstrap
        broker.wait_ready()
        assert broker.bootstrap != stolen
        assert f"cluster.id={broker.cluster_id}\n" in (folder.kafka / "log" / "meta.properties").read_text()
        assert len(broker.cluster_id) == 22
    finally:
        broker.stop()
        thieves[0].close()
    assert broker.poll() == 143
