"""A call that never comes back costs its time limit and nothing else."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from onceflow_processor.relay import bounded_call
from onceflow_processor.relay.bounded_call import abandoned, call_within
from onceflow_schemas.failure import Unavailable


@pytest.fixture
def release() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()
    for thread in threading.enumerate():
        if thread.name == "kafka-call":
            thread.join(10)
    assert abandoned() == 0


def test_a_call_in_time() -> None:
    done: list[int] = []
    call_within(lambda: done.append(1), seconds=10)
    assert done == [1]


def test_what_it_raises_is_raised_here() -> None:
    with pytest.raises(ZeroDivisionError):
        call_within(lambda: 1 // 0, seconds=10)


def test_a_call_that_does_not_come_back(release: threading.Event) -> None:
    with pytest.raises(Unavailable):
        call_within(release.wait, seconds=0.05)
    assert abandoned() == 1


def test_too_many_of_them_end_the_process(release: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_call, "ABANDONED_MAX", 2)
    for _ in range(2):
        with pytest.raises(Unavailable):
            call_within(release.wait, seconds=0.01)
    with pytest.raises(RuntimeError):
        call_within(release.wait, seconds=0.01)
