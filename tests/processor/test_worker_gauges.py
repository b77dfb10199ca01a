"""What the worker's gauges show when something has passed: an alert that stays after its cause is soon ignored."""

from typing import Any, cast
from unittest.mock import MagicMock

import pytest
from prometheus_client import CollectorRegistry

from onceflow_processor.batch_runner import BatchEnd
from onceflow_processor.metrics import ProcessorMetrics
from onceflow_processor.position import Stop
from onceflow_processor.records import Partition
from onceflow_processor.worker import Worker

PLACE = Partition("events", 3)


@pytest.fixture(name="registry")
def a_registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture(name="closed")
def lanes_that_are_closed() -> list[int]:
    return [2]


@pytest.fixture(name="worker")
def a_worker(registry: CollectorRegistry, closed: list[int]) -> Worker:
    return Worker(
        MagicMock(),
        settings=MagicMock(),
        open_database=MagicMock(),
        check_lanes=lambda _connection: closed[0],
        deadline=MagicMock(),
        metrics=ProcessorMetrics(registry),
        stopping=lambda: False,
        wait=lambda _seconds: None,
    )


def test_a_stopped_partition_that_another_processor_has_now_is_not_ours_to_show(
    worker: Worker, registry: CollectorRegistry
) -> None:
    labels = {"topic": "events", "partition": "3", "code": "tail_lost"}
    partitions = worker._partitions
    partitions._tell_stop(PLACE, Stop("tail_lost", "the log ends before the position"))
    partitions._stopped[PLACE] = ("id", "tail_lost")
    assert registry.get_sample_value("onceflow_processor_partition_stopped", labels) == 1
    partitions._give_up(MagicMock(), PLACE, lost=False)
    assert registry.get_sample_value("onceflow_processor_partition_stopped", labels) == 0


def test_closed_lanes_stay_shown_while_other_partitions_go_on(
    worker: Worker, registry: CollectorRegistry, closed: list[int]
) -> None:
    worker._hold(BatchEnd(closed_lanes={1: "behind", 4: "behind"}))
    worker._hold(BatchEnd())
    assert registry.get_sample_value("onceflow_processor_lanes_closed") == 2
    closed[0] = 0
    worker._lane_check_at = 0.0
    worker._check_lanes_due(cast("Any", None))
    assert registry.get_sample_value("onceflow_processor_lanes_closed") == 0
