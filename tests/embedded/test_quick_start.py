"""The file that saves time at each start is made once, fits what it is used with, and never stands in the way.

Java is away here: a few bytes stand for its cache.  ``test_aot_cache`` has the real one.
"""

from __future__ import annotations

import os
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from onceflow.embedded import quick_start
from onceflow.embedded.quick_start import FILES_KEPT_MAX, RETRY_AFTER_SECONDS, ensure_quick_start, fitting_key
from onceflow_schemas.failure import Unavailable

PREPARING = "kafka: preparing quicker starts, once (some 10 s)"


class Maker:
    """Makes a file of a few bytes and counts how often."""

    def __init__(self) -> None:
        self.count = 0
        self.failure: BaseException | None = None

    def __call__(self, scratch: Path) -> Path:
        self.count += 1
        assert list(scratch.iterdir()) == []
        made = scratch / "made"
        made.write_bytes(b"the cache of Java")
        made.chmod(0o600)
        if self.failure is not None:
            raise self.failure
        return made


@pytest.fixture
def maker() -> Maker:
    return Maker()


@pytest.fixture
def jars(tmp_path: Path) -> list[Path]:
    folder = tmp_path / "kafka" / "9.9.9"
    folder.mkdir(parents=True)
    paths = [folder / "a.jar", folder / "b.jar"]
    for path in paths:
        path.write_bytes(b"jar")
        path.chmod(0o644)
    return paths


def left_in(jars: list[Path]) -> list[str]:
    """Everything in the cache but the jars."""
    root = jars[0].parents[1]
    return sorted(path.name for path in root.rglob("*") if path.is_file() and path.suffix != ".jar")


def test_it_is_made_once_and_found_again(jars: list[Path], maker: Maker) -> None:
    said: list[str] = []
    made = ensure_quick_start(jars, make=maker, progress=said.append)
    assert made is not None
    assert made.read_bytes() == b"the cache of Java"
    # The first 16 digits of the content's SHA-256, written down by hand.
    assert made.name == f"quick-start-{fitting_key(jars)}-f1c833fabf70999c.aot"
    assert made.stat().st_mode & 0o777 == 0o644
    assert ensure_quick_start(jars, make=maker, progress=said.append) == made
    assert maker.count == 1
    assert said[0] == PREPARING
    assert said[1].startswith("kafka: quicker starts are prepared after ")
    assert len(said) == 2
    assert left_in(jars) == ["9.9.9.quick-start.lock", made.name]


@pytest.mark.parametrize("change", ["time of a jar", "size of a jar", "java", "flags", "processor"])
def test_whatever_it_must_fit_leads_to_another_file(
    jars: list[Path], maker: Maker, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    first = ensure_quick_start(jars, make=maker, progress=print)
    if change == "time of a jar":
        os.utime(jars[1], (1_000_000, 1_000_000))
    elif change == "size of a jar":
        state = jars[1].stat()
        jars[1].write_bytes(b"longer jar")
        os.utime(jars[1], (state.st_atime, state.st_mtime))
    elif change == "java":
        monkeypatch.setattr(quick_start, "runtime_facts", lambda: ('JAVA_VERSION="26"',))
    elif change == "flags":
        monkeypatch.setattr(quick_start, "fixed_flags", lambda: ("-XX:+UseParallelGC",))
    else:
        monkeypatch.setattr(quick_start, "_processor", lambda: "flags: sse2")
    second = ensure_quick_start(jars, make=maker, progress=print)
    assert second is not None
    assert second != first
    assert maker.count == 2


@pytest.mark.parametrize("content", [b"", b"the cache", b"the cache of Jav\0"])
def test_a_damaged_file_is_never_used_and_made_anew(jars: list[Path], maker: Maker, content: bytes) -> None:
    made = ensure_quick_start(jars, make=maker, progress=print)
    assert made is not None
    made.write_bytes(content)
    assert ensure_quick_start(jars, make=maker, progress=print) == made
    assert made.read_bytes() == b"the cache of Java"
    assert maker.count == 2


def test_a_damaged_file_where_none_can_be_made_is_not_used(jars: list[Path], maker: Maker) -> None:
    made = ensure_quick_start(jars, make=maker, progress=print)
    assert made is not None
    made.write_bytes(b"the cache")
    maker.failure = Unavailable("service_failed", "no luck", "Wait.")
    assert ensure_quick_start(jars, make=maker, progress=print) is None


def test_two_at_once_make_it_once(jars: list[Path]) -> None:
    inside, waits = threading.Event(), threading.Event()

    def make(scratch: Path) -> Path:
        assert not inside.is_set(), "only the first makes it"
        inside.set()
        assert waits.wait(20)
        return Maker()(scratch)

    def second_says(line: str) -> None:
        assert line == "kafka: waiting for another start that prepares quicker ones"
        waits.set()

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(ensure_quick_start, jars, make=make, progress=print)
        assert inside.wait(20)
        second = pool.submit(ensure_quick_start, jars, make=make, progress=second_says)
        assert first.result(60) == second.result(60)
    assert first.result() is not None


@pytest.mark.parametrize("place", ["lock", "scratch", "jar"])
def test_a_cache_folder_that_cannot_be_written_means_a_slower_start(jars: list[Path], place: str) -> None:
    maker, folder = Maker(), jars[0].parent
    if place == "lock":
        folder.with_name("9.9.9.quick-start.lock").mkdir()
    elif place == "scratch":
        folder.with_name("9.9.9.quick-start").touch()
    else:
        jars[1].unlink()
    assert ensure_quick_start(jars, make=maker, progress=print) is None
    assert maker.count == 0


def test_a_folder_that_may_only_be_read_is_left_alone(
    jars: list[Path], maker: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Root may write into every folder, so the question is answered here; ``test_services`` has a real plain user.
    monkeypatch.setattr(os, "access", lambda _path, _mode: False)
    said: list[str] = []
    assert ensure_quick_start(jars, make=maker, progress=said.append) is None
    assert (maker.count, said, left_in(jars)) == (0, [], [])


def test_a_disk_that_is_nearly_full_is_left_alone(
    jars: list[Path], maker: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(jars[0].parent)._replace(free=400_000_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage)
    assert ensure_quick_start(jars, make=maker, progress=print) is None
    assert maker.count == 0


@pytest.mark.parametrize(
    "failure", [Unavailable("service_failed", "no luck", "Wait."), OSError(28, "No space left on device")]
)
def test_a_failure_is_told_in_one_line_and_not_met_again_for_an_hour(
    jars: list[Path], maker: Maker, failure: BaseException
) -> None:
    said: list[str] = []
    maker.failure = failure
    for _ in range(2):
        assert ensure_quick_start(jars, make=maker, progress=said.append) is None
    assert said == [PREPARING, f"kafka: starts stay slower: {failure}"]
    note = jars[0].parent / f"quick-start-{fitting_key(jars)}.failed"
    assert left_in(jars) == ["9.9.9.quick-start.lock", note.name]
    long_ago = note.stat().st_mtime - RETRY_AFTER_SECONDS - 1
    os.utime(note, (long_ago, long_ago))
    maker.failure = None
    made = ensure_quick_start(jars, make=maker, progress=said.append)
    assert made is not None
    assert left_in(jars) == ["9.9.9.quick-start.lock", made.name]


def test_who_is_interrupted_leaves_nothing_and_may_try_again(jars: list[Path], maker: Maker) -> None:
    maker.failure = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        ensure_quick_start(jars, make=maker, progress=print)
    assert left_in(jars) == ["9.9.9.quick-start.lock"]
    maker.failure = None
    assert ensure_quick_start(jars, make=maker, progress=print) is not None


def test_files_of_earlier_versions_go(jars: list[Path], maker: Maker) -> None:
    made = []
    for age in range(FILES_KEPT_MAX + 2):
        os.utime(jars[0], (1_000_000 + age, 1_000_000 + age))
        path = ensure_quick_start(jars, make=maker, progress=print)
        assert path is not None
        os.utime(path, (2_000_000 + age, 2_000_000 + age))
        made.append(path.name)
    assert left_in(jars) == sorted(["9.9.9.quick-start.lock", *made[-FILES_KEPT_MAX:]])
