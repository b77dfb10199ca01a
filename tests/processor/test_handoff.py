"""The queues between the two threads: bounded, in order, and nobody waits for ever."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from onceflow_processor.admission import Item
from onceflow_processor.handoff import Command, Done, Handoff, Renew, Revoked
from onceflow_processor.records import Partition, Record

PARTITION = Partition("events", 0)
LIMIT_SECONDS = 20.0
"""What a waiting thread gets before the test fails; nothing here waits so long."""


def records(count: int, *, size: int = 10, first: int = 0) -> list[Item]:
    offsets = range(first, first + count)
    return [Item(Record(PARTITION, offset, 0, None, b"x" * size, [], 1), None) for offset in offsets]


def take(handoff: Handoff, count: int = 100, *, size: int = 1_000_000, wait_seconds: float = 0.0) -> list[int]:
    return [
        one.record.offset for one in handoff.take_batch(records_max=count, bytes_max=size, wait_seconds=wait_seconds)
    ]


def in_thread(work: Callable[[], Any]) -> Callable[[], Any]:
    """Begin work in another thread; the function given back waits for its result."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(work()), daemon=True)
    thread.start()

    def result() -> Any:
        thread.join(LIMIT_SECONDS)
        assert not thread.is_alive(), "the thread still waits"
        return found[0]

    return result


@pytest.fixture
def handoff() -> Handoff:
    return Handoff(records_max=5, bytes_max=100)


def test_records_come_out_in_their_order_and_bounded_in_number(handoff: Handoff) -> None:
    handoff.put_items(records(5))
    assert take(handoff, 2) == [0, 1]
    assert take(handoff, 2) == [2, 3]
    assert take(handoff, 2) == [4]
    assert take(handoff, 2) == []


def test_a_batch_is_bounded_in_bytes_but_never_empty_for_that(handoff: Handoff) -> None:
    handoff.put_items(records(5))
    assert take(handoff, size=25) == [0, 1, 2]
    assert take(handoff, size=1) == [3]


def test_there_is_room_until_records_or_bytes_are_at_their_limit(handoff: Handoff) -> None:
    assert handoff.room() == 5
    handoff.put_items(records(2))
    assert handoff.room() == 3
    handoff.put_items(records(4))
    assert handoff.room() == 0
    assert not handoff.wait_for_room(0.0)
    take(handoff)
    handoff.put_items(records(1, size=100))
    assert handoff.room() == 0
    take(handoff)
    assert handoff.room() == 5
    assert handoff.wait_for_room(0.0)


def test_waiting_for_room_ends_when_a_batch_is_taken(handoff: Handoff) -> None:
    handoff.put_items(records(5))
    waited = in_thread(lambda: handoff.wait_for_room(LIMIT_SECONDS))
    assert take(handoff, 1) == [0]
    assert waited() is True


def test_waiting_for_room_ends_when_a_command_comes(handoff: Handoff) -> None:
    """Else a paused consumer would not hear that it must begin to read another partition."""
    handoff.put_items(records(5))
    waited = in_thread(lambda: handoff.wait_for_room(LIMIT_SECONDS))
    handoff.put_command(Renew(PARTITION))
    assert waited() is True
    assert handoff.room() == 0


def test_waiting_for_records_ends_when_they_come(handoff: Handoff) -> None:
    waited = in_thread(lambda: take(handoff, wait_seconds=LIMIT_SECONDS))
    handoff.put_items(records(1))
    assert waited() == [0]


def test_waiting_for_records_ends_without_any_when_the_time_is_over(handoff: Handoff) -> None:
    begun = time.monotonic()
    assert take(handoff, wait_seconds=0.05) == []
    assert time.monotonic() - begun >= 0.05


def test_a_notice_comes_before_the_records(handoff: Handoff) -> None:
    """What a notice says may make the records worthless, so no batch is taken past it."""
    handoff.put_items(records(1))
    notice = Revoked(PARTITION, lost=True)
    handoff.put_notice(notice)
    assert take(handoff) == []
    assert handoff.take_notices() == [notice]
    assert handoff.take_notices() == []
    assert take(handoff) == [0]


def test_a_notice_ends_the_wait_for_records(handoff: Handoff) -> None:
    waited = in_thread(lambda: take(handoff, wait_seconds=LIMIT_SECONDS))
    handoff.put_notice(Revoked(PARTITION, lost=False))
    assert waited() == []


def test_commands_are_taken_all_at_once_in_their_order(handoff: Handoff) -> None:
    commands: list[Command] = [Renew(PARTITION), Done({PARTITION: 5}), Renew(PARTITION, prove=True, next_offset=5)]
    for command in commands:
        handoff.put_command(command)
    assert handoff.take_commands() == commands
    assert handoff.take_commands() == []


def test_the_consumer_waits_until_the_batch_in_hand_is_finished(handoff: Handoff) -> None:
    assert handoff.wait_until_idle(0.0)
    handoff.put_items(records(1))
    take(handoff)
    assert not handoff.wait_until_idle(0.0)
    waited = in_thread(lambda: handoff.wait_until_idle(LIMIT_SECONDS))
    handoff.finish_batch()
    assert waited() is True


def test_taking_nothing_leaves_the_worker_idle(handoff: Handoff) -> None:
    take(handoff)
    assert handoff.wait_until_idle(0.0)


def test_waking_changes_nothing(handoff: Handoff) -> None:
    handoff.put_items(records(1))
    handoff.wake()
    assert take(handoff) == [0]


def test_two_threads_pass_many_records_without_loss_or_swap() -> None:
    handoff = Handoff(records_max=50, bytes_max=300)
    count = 5_000

    def consume() -> None:
        sent = 0
        while sent < count:
            if handoff.wait_for_room(LIMIT_SECONDS):
                some = records(handoff.room(), first=sent)
                some = some[: count - sent]
                handoff.put_items(some)
                sent += len(some)

    done = in_thread(consume)
    got: list[int] = []
    limit_at = time.monotonic() + LIMIT_SECONDS
    while len(got) < count and time.monotonic() < limit_at:
        batch = take(handoff, 7, size=60, wait_seconds=1.0)
        assert len(batch) <= 7
        got.extend(batch)
        handoff.finish_batch()
    done()
    assert got == list(range(count))
    assert handoff.room() == 50
