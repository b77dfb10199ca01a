"""Offsets for lag tools: told rarely, and never in the way."""

from __future__ import annotations

from typing import Any, cast

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from onceflow_processor import group_offsets
from onceflow_processor.group_offsets import GroupOffsets
from onceflow_processor.records import Partition
from tests.processor.processor_process import MakeRoad, end, wait_until

FIRST, SECOND = Partition("stripe.events.v1", 0), Partition("stripe.events.v1", 1)


class Listener:
    """Takes commits as a consumer does (the tests of the service commit to the real one)."""

    def __init__(self, error: KafkaException | None = None) -> None:
        self.error = error
        self.told: list[dict[int, int]] = []

    def commit(self, *, offsets: list[TopicPartition], asynchronous: bool) -> None:
        assert asynchronous
        if self.error is not None:
            raise self.error
        self.told.append({place.partition: place.offset for place in offsets})

    @property
    def consumer(self) -> Consumer:
        return cast("Consumer", cast("Any", self))


def test_they_are_told_once_a_second_unless_at_once() -> None:
    counted: list[str] = []
    offsets, listener = GroupOffsets(counted.append), Listener()
    offsets.commit(listener.consumer)
    offsets.note({FIRST: 5, SECOND: 7})
    offsets.note({FIRST: 6})
    offsets.commit(listener.consumer)
    offsets.note({FIRST: 8})
    offsets.commit(listener.consumer)
    assert listener.told == [{0: 6, 1: 7}]
    offsets.commit(listener.consumer, at_once=True)
    offsets.commit(listener.consumer, at_once=True)
    assert listener.told == [{0: 6, 1: 7}, {0: 8}]
    assert counted == []


def test_they_are_told_again_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member that slept may have told the group less meanwhile, and without new records nobody else would tell it."""
    offsets, listener = GroupOffsets(lambda _: None), Listener()
    offsets.note({FIRST: 5, SECOND: 7})
    offsets.commit(listener.consumer)
    offsets.forget(SECOND)
    offsets.commit(listener.consumer, at_once=True)
    monkeypatch.setattr(group_offsets, "TELL_AGAIN_SECONDS", 0.0)
    offsets.commit(listener.consumer, at_once=True)
    assert listener.told == [{0: 5, 1: 7}, {0: 5}]


def test_what_is_no_longer_ours_is_not_told() -> None:
    offsets, listener = GroupOffsets(lambda _: None), Listener()
    offsets.note({FIRST: 5, SECOND: 7})
    offsets.forget(FIRST)
    offsets.forget(FIRST)
    offsets.commit(listener.consumer)
    offsets.note({FIRST: 9})
    offsets.forget_all()
    offsets.commit(listener.consumer, at_once=True)
    assert listener.told == [{1: 7}]


def test_a_commit_that_fails_is_counted_and_told_again_with_what_is_newer_and_still_ours() -> None:
    counted: list[str] = []
    offsets, listener = GroupOffsets(counted.append), Listener()
    refusing = Listener(KafkaException(KafkaError(KafkaError._STATE)))
    offsets.note({FIRST: 5, SECOND: 7})
    offsets.commit(refusing.consumer)
    offsets.commit(listener.consumer, at_once=True)
    assert listener.told == [{0: 5, 1: 7}]
    offsets.note({FIRST: 6})
    failed = [TopicPartition(FIRST.topic, 0, 5), TopicPartition(SECOND.topic, 1, 7)]
    offsets.forget(SECOND)
    # What the client says of a member that came too late: the group has changed since.
    offsets.on_commit(KafkaError(KafkaError.ILLEGAL_GENERATION), failed)
    offsets.on_commit(None, [])
    offsets.commit(listener.consumer, at_once=True)
    offsets.commit(listener.consumer, at_once=True)
    assert listener.told == [{0: 5, 1: 7}, {0: 6}]
    assert counted == ["commit_failed"] * 2


def test_a_member_that_is_stopped_before_it_read_anything_has_nothing_to_tell(make_road: MakeRoad) -> None:
    """R42: a commit with nothing consumed is an error to the client; one member is idle, one has no partition at all."""
    road = make_road(partitions=1)
    with road.processor() as first, road.processor() as second:
        wait_until(lambda: road.rows("SELECT FROM onceflow.progress WHERE owner IS NOT NULL"), "one has the partition")
        assert [end(member) for member in (first, second)] == [0, 0]
    lines = [line for path in road.folder.glob("processor-*.log") for line in path.read_text().splitlines()]
    told = [line for line in lines if "group_commit_failed" in line or '"level": "error"' in line]
    assert (told, any('"level": "info"' in line for line in lines)) == ([], True)
    with road.processor() as third:
        road.publish(["evt_a"])
        road.wait_for_events(1)
        assert end(third) == 0
