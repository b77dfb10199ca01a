"""The topic's own limit."""

from __future__ import annotations

import gc

import pytest
from confluent_kafka.admin import AdminClient

from onceflow_producer.topic_limit import read_topic_bytes
from tests.conftest import create_topic


def test_the_limit_of_a_topic(kafka_bootstrap: str) -> None:
    kafka = {"bootstrap.servers": kafka_bootstrap}
    assert read_topic_bytes(kafka, create_topic(kafka_bootstrap)) == 1_048_588
    small = create_topic(kafka_bootstrap, config={"max.message.bytes": "12345"})
    assert read_topic_bytes(kafka, small) == 12_345


def test_what_cannot_be_read_is_unknown_and_the_client_says_why_through_our_logs(
    kafka_bootstrap: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    assert read_topic_bytes({"bootstrap.servers": kafka_bootstrap}, "no.such.topic") is None
    assert read_topic_bytes({"bootstrap.servers": "127.0.0.1:1"}, "x") is None
    assert {one.name for one in caplog.records if "Connection refused" in one.getMessage()} == {"onceflow.bridge.kafka"}
    assert "FAIL" not in capfd.readouterr().err


def test_the_client_ends_with_the_question_and_is_not_left_to_the_garbage_collector(kafka_bootstrap: str) -> None:
    """Collected inside its own callback thread, it would end the process."""
    gc.collect()
    gc.disable()
    try:
        before = clients()
        assert read_topic_bytes({"bootstrap.servers": kafka_bootstrap}, "no.such.topic") is None
        assert clients() == before
    finally:
        gc.enable()


def clients() -> int:
    return sum(isinstance(one, AdminClient) for one in gc.get_objects())
