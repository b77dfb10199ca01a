"""Kafka properties: names, files of Java's form, and what may not be set."""

from __future__ import annotations

from typing import Any

import pytest

from onceflow.kafka_settings import (
    flat_properties,
    is_secret_property,
    likely_property,
    property_fault,
    property_name,
    property_text,
    read_properties,
    variable_rest,
)


@pytest.mark.parametrize(
    ("rest", "name"),
    [
        ("BOOTSTRAP_SERVERS", "bootstrap.servers"),
        ("LOG__LEVEL", "log_level"),
        ("SASL_OAUTHBEARER_CLIENT_ID", "sasl.oauthbearer.client.id"),
        ("PRODUCER_LINGER_MS", "producer.linger.ms"),
    ],
)
def test_variables_and_properties_are_each_others_reverse(rest: str, name: str) -> None:
    assert property_name(rest) == name
    assert variable_rest(name) == rest


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("acks", "1"),
        ("request.required.acks", "0"),
        ("enable.idempotence", "false"),
        ("consumer.enable.auto.commit", "true"),
        ("enable.auto.offset.store", "True"),
        ("consumer.auto.offset.reset", "latest"),
        ("isolation.level", "read_uncommitted"),
        ("producer.partitioner", "consistent"),
        ("allow.auto.create.topics", "true"),
        ("consumer.partition.assignment.strategy", "range"),
    ],
)
def test_unsafe_values_are_refused_with_the_reason(name: str, value: str) -> None:
    fault = property_fault(name, value)
    assert fault is not None
    assert fault.startswith("must stay ")
    assert "\n" not in fault
    assert len(fault) > 30


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("acks", "ALL"),
        ("acks", "-1"),
        ("enable.auto.commit", "false"),
        ("auto.offset.reset", "error"),
        ("linger.ms", "5"),
    ],
)
def test_safe_values_pass(name: str, value: str) -> None:
    assert property_fault(name, value) is None


@pytest.mark.parametrize(
    "name", ["group.id", "transactional.id", "message.max.bytes", "message.timeout.ms", "group.protocol"]
)
def test_what_follows_from_other_settings_is_refused(name: str) -> None:
    fault = property_fault(name, "x")
    assert fault is not None
    assert fault.startswith("is set by onceflow itself: ")


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("sasl.jaas.config", "sasl.username and sasl.password"),
        ("ssl.truststore.location", "ssl.ca.location (a PEM file)"),
        ("key.serializer", "drop it, it needs nothing"),
        ("producer.max.request.size", "topics.message_bytes_max"),
    ],
)
def test_names_of_java_are_answered_with_the_right_ones(name: str, answer: str) -> None:
    fault = property_fault(name, "x")
    assert fault is not None
    assert fault.startswith("is a name that only Java clients know")
    assert answer in fault


def test_values_of_a_file_become_text() -> None:
    values: list[Any] = [True, False, 5, 0.5, " x ", None, [1], {}]
    assert [property_text(value) for value in values] == [
        "true", "false", "5", "0.5", "x", None, None, None,
    ]  # fmt: skip


def test_secret_properties() -> None:
    names = [
        "sasl.password",
        "ssl.key.pem",
        "ssl.key.password",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.config",
    ]
    assert all(is_secret_property(name) for name in names)
    assert not any(
        is_secret_property(name) for name in ("sasl.username", "sasl.oauthbearer.token.endpoint.url", "client.id")
    )


def test_a_likely_name() -> None:
    assert likely_property("bootstrap.server") == "bootstrap.servers"
    assert likely_property("consumer.fetch.min.byte") == "fetch.min.bytes"
    assert likely_property("zzz") is None


def test_dotted_names_of_a_table() -> None:
    assert flat_properties({"a": {"b": {"c": 1}, "d": 2}, "e.f": 3}) == {"a.b.c": 1, "a.d": 2, "e.f": 3}


def test_a_properties_file_is_read_as_java_reads_it() -> None:
    text = r"""# a comment = 1
! another : 2

bootstrap.servers=a:1,b:2
  security.protocol : SASL_SSL
sasl.username user with blanks
sasl.password=p\=q\:r\\s\u00e9=t
ssl.ca.pem=first\n\
    second\
    \ third
odd\ name=x\\
empty=
alone
acks=all
acks=-1"""
    assert read_properties(text) == {
        "bootstrap.servers": "a:1,b:2",
        "security.protocol": "SASL_SSL",
        "sasl.username": "user with blanks",
        "sasl.password": "p=q:r\\sé=t",
        "ssl.ca.pem": "first\nsecond third",
        "odd name": "x\\",
        "empty": "",
        "alone": "",
        "acks": "-1",
    }


def test_a_properties_file_that_ends_in_a_continuation() -> None:
    assert read_properties("a=1\\") == {"a": "1"}
    assert read_properties("") == {}
