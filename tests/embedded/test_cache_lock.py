"""Two at once do the work once; nobody waits for ever."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from onceflow.embedded.cache_lock import cache_lock


def never() -> None:
    raise AssertionError("nobody has to wait")


def test_the_second_waits_until_the_first_is_done(tmp_path: Path) -> None:
    waits = threading.Event()
    order: list[str] = []

    def second() -> bool:
        with cache_lock(tmp_path / "lock", wait_seconds_max=60, waiting=waits.set) as held:
            order.append("second")
            return held

    with ThreadPoolExecutor(1) as pool:
        with cache_lock(tmp_path / "lock", wait_seconds_max=0, waiting=never) as held:
            assert held
            answer = pool.submit(second)
            assert waits.wait(20)
            order.append("first")
        assert answer.result(60)
    assert order == ["first", "second"]


def test_who_has_waited_long_enough_holds_nothing(tmp_path: Path) -> None:
    said: list[str] = []
    with cache_lock(tmp_path / "lock", wait_seconds_max=0, waiting=never):
        for _ in range(2):
            with cache_lock(tmp_path / "lock", wait_seconds_max=0, waiting=lambda: said.append("wait")) as held:
                assert not held
    assert said == ["wait", "wait"]
    with cache_lock(tmp_path / "lock", wait_seconds_max=0, waiting=never) as held:
        assert held


def test_a_folder_that_cannot_be_written_is_an_error_of_the_system(tmp_path: Path) -> None:
    (tmp_path / "lock").mkdir()
    with pytest.raises(IsADirectoryError), cache_lock(tmp_path / "lock", wait_seconds_max=0, waiting=never):
        raise AssertionError("there is no lock to hold")
