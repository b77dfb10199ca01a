"""The configuration text of the broker."""

from __future__ import annotations

import pytest

from onceflow.embedded.broker_properties import ExtraListener, broker_properties, log4j_text, property_text

PORTS = {"CLIENT": 21001, "CONTROLLER": 21002, "PROXY": 21003}


def test_one_node_listens_on_the_loopback_interface_only() -> None:
    properties = broker_properties(PORTS, extra={})
    assert properties["listeners"] == "CLIENT://127.0.0.1:21001,CONTROLLER://127.0.0.1:21002"
    assert properties["advertised.listeners"] == "CLIENT://127.0.0.1:21001"
    assert properties["controller.quorum.voters"] == "1@127.0.0.1:21002"
    assert properties["log.dirs"] == "log"


def test_a_proxy_may_stand_before_a_listener() -> None:
    properties = broker_properties(PORTS, listeners=[ExtraListener("PROXY", advertised_port=29999)], extra={})
    assert properties["listeners"] == "CLIENT://127.0.0.1:21001,PROXY://127.0.0.1:21003,CONTROLLER://127.0.0.1:21002"
    assert properties["advertised.listeners"] == "CLIENT://127.0.0.1:21001,PROXY://127.0.0.1:29999"
    assert properties["listener.security.protocol.map"] == "CLIENT:PLAINTEXT,PROXY:PLAINTEXT,CONTROLLER:PLAINTEXT"


def test_a_listener_without_a_proxy_advertises_its_own_port() -> None:
    properties = broker_properties(PORTS, listeners=[ExtraListener("PROXY")], extra={})
    assert properties["advertised.listeners"] == "CLIENT://127.0.0.1:21001,PROXY://127.0.0.1:21003"


def test_what_the_caller_sets_wins() -> None:
    properties = broker_properties(PORTS, extra={"message.max.bytes": "2000000", "min.insync.replicas": "2"})
    assert properties["message.max.bytes"] == "2000000"
    assert properties["min.insync.replicas"] == "2"


@pytest.mark.parametrize("name", ["client", "CLIENT", "CONTROLLER", "A-B", ""])
def test_a_listener_with_a_bad_name_is_a_bug(name: str) -> None:
    with pytest.raises(AssertionError):
        ExtraListener(name)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain", "a=plain\n"),
        ("back\\slash", "a=back\\\\slash\n"),
        ("two\nlines", "a=two\\nlines\n"),
        ("größe", "a=gr\\u00f6\\u00dfe\n"),
        ("\U0001f600", "a=\\ud83d\\ude00\n"),
    ],
)
def test_values_are_written_as_java_reads_them(value: str, text: str) -> None:
    assert property_text({"a": value}) == text


def test_the_log_is_rolled() -> None:
    lines = log4j_text().splitlines()
    assert "appender.file.fileName=../logs/broker.log" in lines
    assert "appender.file.policies.size.size=10MB" in lines
    assert "appender.file.strategy.max=3" in lines
