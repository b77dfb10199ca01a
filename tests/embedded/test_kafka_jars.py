"""Only the pinned jars, byte for byte, ever reach the class path."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from onceflow.embedded.kafka_jars import KAFKA_VERSION, ensure_jars, is_intact, pinned_jars
from onceflow.embedded.ports import choose_port
from onceflow_schemas.failure import Misconfigured, Unavailable
from tests.embedded.jar_server import serve_jars


@pytest.fixture
def warm_cache(jar_folder: Path, tmp_path: Path) -> Path:
    """A cache of this test alone; its jars are links to those of the user, so a test replaces and never writes."""
    copy = tmp_path / "cache" / "kafka" / KAFKA_VERSION
    copy.mkdir(parents=True)
    for jar in pinned_jars():
        (copy / jar.file_name).symlink_to(jar_folder / jar.file_name)
    return tmp_path / "cache"


@pytest.fixture
def nowhere() -> dict[str, str]:
    """A repository that nobody answers for."""
    return {"nowhere": f"http://127.0.0.1:{choose_port(taken=())}/maven"}


def replace_with(path: Path, content: bytes) -> None:
    path.unlink()
    path.write_bytes(content)


def never(line: str) -> None:
    raise AssertionError(f"nothing should be fetched: {line}")


def test_the_list_pins_45_jars_of_one_version() -> None:
    jars = pinned_jars()
    assert len(jars) == 45
    assert len({jar.file_name for jar in jars}) == 45
    assert all(len(jar.sha256) == 64 for jar in jars)
    assert {jar.version for jar in jars if jar.group == "org.apache.kafka"} == {KAFKA_VERSION}
    versions = {jar.artifact: jar.version for jar in jars if jar.artifact.startswith("log4j-")}
    assert set(versions) == {"log4j-api", "log4j-core", "log4j-slf4j-impl"}
    assert len(set(versions.values())) == 1


def test_a_warm_cache_needs_no_network(warm_cache: Path, nowhere: dict[str, str]) -> None:
    paths = ensure_jars(warm_cache, progress=never, repositories=nowhere)
    assert len(paths) == 45
    assert all(path.is_absolute() and path.is_file() for path in paths)


def test_an_empty_cache_is_filled_with_progress(jar_folder: Path, tmp_path: Path) -> None:
    said: list[str] = []
    with serve_jars(jar_folder) as server:
        paths = ensure_jars(tmp_path / "cache", progress=said.append, repositories=server.repositories)
    assert all(is_intact(path, jar) for path, jar in zip(paths, pinned_jars(), strict=True))
    assert len(said) == 45
    assert said[-1] == "kafka: 45 of 45 jars (44 MB)"
    assert sorted(path.name for path in (tmp_path / "cache" / "kafka").iterdir()) == [KAFKA_VERSION, "4.4.0.lock"]


def test_two_first_starts_at_once_fetch_once(jar_folder: Path, tmp_path: Path) -> None:
    said: list[str] = []
    begun = threading.Event()

    def first_says(line: str) -> None:
        begun.set()
        said.append(line)

    with serve_jars(jar_folder) as server, ThreadPoolExecutor(2) as pool:
        first = pool.submit(ensure_jars, tmp_path / "cache", progress=first_says, repositories=server.repositories)
        assert begun.wait(20)
        second = pool.submit(ensure_jars, tmp_path / "cache", progress=said.append, repositories=server.repositories)
        assert first.result(60) == second.result(60)
    assert set(server.served.values()) == {1}
    assert "kafka: waiting for another start that fetches the jars" in said


@pytest.mark.parametrize("damage", ["cut", "changed", "missing"])
def test_a_damaged_jar_is_fetched_again(
    jar_folder: Path, warm_cache: Path, nowhere: dict[str, str], damage: str
) -> None:
    victim = warm_cache / "kafka" / KAFKA_VERSION / "jspecify-1.0.0.jar"
    whole = victim.read_bytes()
    if damage == "missing":
        victim.unlink()
    else:
        replace_with(victim, whole[:1000] if damage == "cut" else b"\0" + whole[1:])
    with pytest.raises(
        Unavailable, match=r"jspecify-1\.0\.0\.jar could not be fetched: the network answers"
    ) as refused:
        ensure_jars(warm_cache, progress=never, repositories=nowhere)
    assert refused.value.code == "download_failed"
    assert "Check the network" in refused.value.hint
    said: list[str] = []
    with serve_jars(jar_folder) as server:
        ensure_jars(warm_cache, progress=said.append, repositories=server.repositories)
    assert server.served == {"jspecify-1.0.0.jar": 1}
    assert said == ["kafka: 45 of 45 jars (0 MB)"]
    assert victim.read_bytes() == whole


def test_a_repository_that_changes_a_jar_is_refused_and_the_rest_is_kept(jar_folder: Path, tmp_path: Path) -> None:
    with serve_jars(jar_folder) as server:
        server.damaged = {"jspecify-1.0.0.jar"}
        with pytest.raises(Unavailable, match="SHA-256 is not the expected one") as refused:
            ensure_jars(tmp_path, progress=lambda _line: None, repositories=server.repositories)
        assert refused.value.code == "download_failed"
        assert not (tmp_path / "kafka" / KAFKA_VERSION / "jspecify-1.0.0.jar").exists()
        before = sum(server.served.values())
        server.damaged = set()
        ensure_jars(tmp_path, progress=lambda _line: None, repositories=server.repositories)
    # Three tries for the damaged one and one for each other jar, over both runs together.
    assert sum(server.served.values()) == 3 + 45
    assert before >= 3


def test_a_repository_without_the_jar_is_refused(jar_folder: Path, warm_cache: Path) -> None:
    (warm_cache / "kafka" / KAFKA_VERSION / "re2j-1.8.jar").unlink()
    with serve_jars(jar_folder) as server:
        server.missing = {"re2j-1.8.jar"}
        with pytest.raises(Unavailable, match=r"re2j-1\.8\.jar could not be fetched: no repository has it"):
            ensure_jars(warm_cache, progress=never, repositories=server.repositories)


def test_a_cache_folder_that_cannot_be_used_is_a_setting_to_mend(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="has a colon in its name"):
        ensure_jars(tmp_path / "a:b", progress=never)
    (tmp_path / "file").touch()
    with pytest.raises(Misconfigured, match="cannot be used: Not a directory"):
        ensure_jars(tmp_path / "file", progress=never)
