"""The processor's Kafka clients say why they get no answer, through our logs or not at all."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from onceflow_processor.kafka_client import StartClient, admin_client, cluster_id, consumer_properties, kafka_failure
from onceflow_processor.log_view import LogView
from onceflow_schemas.failure import Misconfigured, Unavailable

AWAY = {"bootstrap.servers": "127.0.0.1:1"}


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onceflow_processor.kafka_client.ADMIN_SECONDS_MAX", 1.0)


def test_a_broker_that_is_away_is_told_with_the_reason(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(Unavailable) as away:
        StartClient(AWAY).ask(["a"])
    assert away.value.code == "broker_unavailable"
    assert away.value.message.startswith(
        "Kafka does not answer: 127.0.0.1:1/bootstrap: Connect to ipv4#127.0.0.1:1 failed"
    )
    quiet = admin_client(AWAY)
    with pytest.raises(Unavailable):
        cluster_id(quiet)
    view = LogView(quiet, start=None)
    view.drain()
    assert quiet.poll(0) <= 1, "what the client says does not pile up"
    assert (caplog.records, capfd.readouterr().err) == ([], "")


def test_refused_credentials_end_the_wait(kafka_bootstrap: str) -> None:
    wrong = {
        "bootstrap.servers": kafka_bootstrap, "security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN",
        "sasl.username": "u", "sasl.password": "CANARY",
    }  # fmt: skip
    with pytest.raises(Misconfigured) as refused:
        StartClient(wrong).ask(["a"])
    assert refused.value.code == "broker_refused"
    assert "CANARY" not in refused.value.message


def test_what_the_broker_says(kafka_bootstrap: str, topic: str) -> None:
    client = StartClient({"bootstrap.servers": kafka_bootstrap})
    cluster, topics = client.ask([topic])
    assert cluster
    assert (topics[topic].partitions, topics[topic].message_bytes_max) == (6, 1_048_588)
    with pytest.raises(Misconfigured) as missing:
        client.ask([topic, "no.such.topic"])
    assert missing.value.code == "topic_missing"


def test_failures_are_in_plain_words() -> None:
    text = "the words of the client"
    assert kafka_failure(KafkaException(KafkaError(KafkaError._TRANSPORT, text))).message == (
        f"Kafka does not answer: {text}"
    )
    assert kafka_failure(TimeoutError()).message == "Kafka does not answer"
    refused = kafka_failure(KafkaException(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED, text)))
    assert (refused.code, refused.message) == ("broker_refused", f"Kafka refused: {text}")


def test_a_refused_topic_is_named_with_the_right_that_is_missing() -> None:
    """Kafka's own words say only that some topic is refused."""
    error = KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "Broker: Topic authorization failed"))
    said = kafka_failure(error, topic="events", right="READ")
    assert said.code == "broker_refused"
    assert said.message == ("Kafka refused: Broker: Topic authorization failed: READ on topic events is not granted")
    other = kafka_failure(KafkaException(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED, "x")), topic="events")
    assert other.message == "Kafka refused: x"


def test_the_group_protocol_decides_which_properties_the_consumer_may_have() -> None:
    kafka = {**AWAY, "session.timeout.ms": "9000", "enable.auto.commit": "true"}
    new = consumer_properties(kafka, group="g", protocol="consumer")
    assert (new["group.protocol"], "session.timeout.ms" in new, new["enable.auto.commit"]) == ("consumer", False, False)
    old = consumer_properties(kafka, group="g", protocol="classic")
    assert (old["group.protocol"], old["session.timeout.ms"]) == ("classic", "9000")
