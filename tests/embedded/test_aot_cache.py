"""Java's own cache: made by a first start, used by every later one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from onceflow.embedded import aot_cache, kafka_broker
from onceflow.embedded.aot_cache import make_aot_cache, quick_flags
from onceflow.embedded.child_process import Command, run_to_end
from onceflow.embedded.data_folder import DataFolder
from onceflow.embedded.java_runtime import ENVIRONMENT, TOOL_HEAP_MB, java_command
from onceflow.embedded.kafka_broker import KafkaBroker
from onceflow.embedded.kafka_jars import KAFKA_VERSION, pinned_jars
from onceflow_schemas.failure import Misconfigured, Unavailable
from tests.embedded.process_state import kill_hard

MAKING_SECONDS_MAX = 600.0
SHARED = "source: shared objects file"


@dataclass
class FirstStart:
    """A cache folder of this module alone, and what the first broker that used it said."""

    cache: Path
    broker: KafkaBroker
    said: list[str]

    @property
    def jars(self) -> list[Path]:
        return [self.cache / "kafka" / KAFKA_VERSION / jar.file_name for jar in pinned_jars()]

    @property
    def files(self) -> list[Path]:
        return list((self.cache / "kafka" / KAFKA_VERSION).glob("quick-start-*"))


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory, jar_folder: Path) -> Iterator[FirstStart]:
    root = tmp_path_factory.mktemp("first start")
    folder = root / "cache" / "kafka" / KAFKA_VERSION
    folder.mkdir(parents=True)
    for jar in pinned_jars():
        (folder / jar.file_name).symlink_to(jar_folder / jar.file_name)
    said: list[str] = []
    data = DataFolder(root / "data")
    data.claim()
    broker = KafkaBroker(data, cache_dir=root / "cache", progress=said.append)
    try:
        with pytest.MonkeyPatch.context() as patch:
            # On a busy machine the product soon does without; here it is to be made, however long that takes.
            patch.setattr(kafka_broker, "RECORDING_READY_SECONDS_MAX", MAKING_SECONDS_MAX)
            patch.setattr(aot_cache, "ASSEMBLY_SECONDS_MAX", MAKING_SECONDS_MAX)
            broker.start()
        broker.wait_ready()
        yield FirstStart(root / "cache", broker, said)
    finally:
        broker.stop()
        data.release()


def uses(pid: int | None, file: Path) -> bool:
    """Say whether the process has the file in its memory; Java lets go of a cache that does not fit."""
    return str(file) in Path(f"/proc/{pid}/maps").read_text()


@pytest.mark.long
def test_the_first_start_makes_the_cache_and_uses_it(first: FirstStart) -> None:
    assert first.said[0] == "kafka: preparing quicker starts, once (some 10 s)"
    assert first.said[1].startswith("kafka: quicker starts are prepared after ")
    assert first.said[2] == "kafka: making the data folder"
    assert [file.suffix for file in first.files] == [".aot"]
    assert uses(first.broker.pid, first.files[0])
    assert sorted(path.name for path in (first.cache / "kafka").iterdir()) == [
        KAFKA_VERSION,
        f"{KAFKA_VERSION}.quick-start.lock",
    ]


def test_a_start_after_kill_9_uses_it_and_nothing_is_made_again(first: FirstStart) -> None:
    before, lines = first.files, len(first.said)
    kill_hard(first.broker.pid)
    assert first.broker._ends_within(30)
    first.broker.start()
    first.broker.wait_ready()
    assert uses(first.broker.pid, before[0])
    assert first.files == before
    assert [line for line in first.said[lines:] if "quick" in line] == []


def test_the_tool_with_its_smaller_heap_loads_its_classes_from_it(first: FirstStart, tmp_path: Path) -> None:
    flags = (*quick_flags(first.files[0]), "-XX:AOTMode=on", "-Xlog:class+load:file=loaded.txt")
    argv = java_command("kafka.tools.StorageTool", ["random-uuid"], jars=first.jars, heap_mb=TOOL_HEAP_MB, flags=flags)
    finished = run_to_end(Command(argv, directory=tmp_path, environment=ENVIRONMENT), timeout_seconds=60)
    assert finished.exit_code == 0
    # One line, the identifier: nothing of what Java says about its cache is seen.
    assert len(finished.output.splitlines()) == 1
    loaded = (tmp_path / "loaded.txt").read_text().splitlines()
    shared = sum(SHARED in line for line in loaded)
    assert shared > 0.8 * len(loaded)


@pytest.mark.long
def test_a_cache_that_does_not_fit_is_ignored_without_a_word(first: FirstStart, tmp_path: Path) -> None:
    garbage = tmp_path / "garbage.aot"
    garbage.write_bytes(b"garbage" * 10_000)
    argv = java_command("kafka.tools.StorageTool", ["random-uuid"], jars=first.jars, flags=quick_flags(garbage))
    finished = run_to_end(Command(argv, directory=tmp_path, environment=ENVIRONMENT), timeout_seconds=60)
    assert finished.exit_code == 0
    assert len(finished.output.splitlines()) == 1


@pytest.mark.long
def test_a_recording_that_java_cannot_use_is_a_failure(first: FirstStart, tmp_path: Path) -> None:
    def record(_data: Path, recording: Path) -> None:
        recording.write_bytes(b"garbage" * 10_000)

    with pytest.raises(Unavailable, match="making the AOT cache of Java ended with 1; it said: ") as refused:
        make_aot_cache(tmp_path, jars=first.jars, record=record)
    assert refused.value.code == "service_failed"


@pytest.mark.long
def test_a_run_that_does_not_start_is_not_recorded(first: FirstStart, tmp_path: Path) -> None:
    (tmp_path / "data" / "kafka").mkdir(parents=True)
    (tmp_path / "data" / "kafka" / "identity.json").write_text("{}")
    with pytest.raises(Misconfigured, match="damaged"):
        first.broker._record(tmp_path / "data", tmp_path / "recording")
    again = DataFolder(tmp_path / "data")
    again.claim()
    again.release()
