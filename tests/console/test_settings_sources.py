"""Names and origins of raw values, source by source."""

from __future__ import annotations

import pytest

from onceflow.settings_sources import (
    from_environment,
    from_flags,
    from_table,
    is_secret_setting,
    likely_setting,
    setting_of,
    variable_of,
)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("ONCEFLOW_BRIDGE_SERVICE_HOST", "10.0.0.1"),
        ("ONCEFLOW_BRIDGE_SERVICE_PORT", "8080"),
        ("ONCEFLOW_BRIDGE_SERVICE_PORT_HTTP", "8080"),
        ("ONCEFLOW_BRIDGE_PORT", "tcp://10.0.0.1:8080"),
        ("ONCEFLOW_BRIDGE_PORT_8080_TCP", "tcp://10.0.0.1:8080"),
        ("ONCEFLOW_BRIDGE_PORT_8080_TCP_ADDR", "10.0.0.1"),
        ("ONCEFLOW_KAFKA_PORT", "tcp://10.0.0.1:9092"),
        ("ONCEFLOW_KAFKA_SERVICE_HOST", "10.0.0.1"),
        ("ONCEFLOW_PORT", "tcp://10.0.0.1:80"),
        ("ONCEFLOW_SERVICE_HOST", "10.0.0.1"),
        ("KAFKA_BOOTSTRAP_SERVERS", "127.0.0.1:1"),
        ("ONCEFLOW_CONFIG", "/dev/null"),
        ("ONCEFLOW_BRIDGE_HOST", "  "),
    ],
)
def test_what_is_not_meant_for_us_is_left_alone(variable: str, value: str) -> None:
    found = from_environment({variable: value})
    assert (found.values, found.faults) == ({}, [])


@pytest.mark.parametrize(
    ("variable", "name"),
    [
        ("ONCEFLOW_BRIDGE_PORT", "bridge.port"),
        ("ONCEFLOW_PROCESSOR_HANDLER_DEADLINE_SECONDS", "processor.handler_deadline_seconds"),
        ("STRIPE_API_KEY", "stripe.api_key"),
        ("ONCEFLOW_STRIPE_API_KEY", "stripe.api_key"),
        ("ONCEFLOW_KAFKA_SASL_USERNAME", "kafka.sasl.username"),
        ("ONCEFLOW_KAFKA_LOG__LEVEL", "kafka.log_level"),
        ("ONCEFLOW_KAFKA_CONSUMER_FETCH_MIN_BYTES", "kafka.consumer.fetch.min.bytes"),
        ("ONCEFLOW_KAFKA", None),
        ("ONCEFLOW_BRIDGE", None),
        ("ONCEFLOW_BRIDGE_PROT", None),
    ],
)
def test_which_setting_a_variable_means(variable: str, name: str | None) -> None:
    assert setting_of(variable) == name


def test_values_are_trimmed_but_the_database_address_is_not() -> None:
    found = from_environment({"ONCEFLOW_BRIDGE_HOST": " h\n", "DATABASE_URL": " x "})
    assert {name: given.value for name, given in found.values.items()} == {"bridge.host": "h", "database.url": " x "}


def test_our_prefix_wins_over_the_shared_name() -> None:
    found = from_environment({"STRIPE_API_KEY": "a", "ONCEFLOW_STRIPE_API_KEY": "b"})
    assert found.values["stripe.api_key"].value == "b"
    assert "'b'" not in repr(found)


def test_only_secrets_may_come_from_files() -> None:
    found = from_environment({"ONCEFLOW_BRIDGE_HOST_FILE": "/dev/null"})
    assert found.faults == [
        "ONCEFLOW_BRIDGE_HOST_FILE (environment) is not a setting; did you mean ONCEFLOW_BRIDGE_HOST?"
    ]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("bridge.prot", "bridge.port"),
        ("bridge.foo", None),
        ("bridge.", None),
        ("brigde.port", "bridge.port"),
        ("foo.", None),
        ("foo.bar", None),
        ("relay.lease_ttl", "relay.lease_ttl_seconds"),
        ("databse.url", "database.url"),
        ("kafka.bootstrap", None),
    ],
)
def test_a_setting_is_suggested_only_when_it_is_near_enough(name: str, meant: str | None) -> None:
    assert likely_setting(name) == meant


def test_variables_get_the_name_of_a_variable_as_suggestion() -> None:
    faults = from_environment({"ONCEFLOW_FOO": "1", "ONCEFLOW_DATABSE_URL": "1", "ONCEFLOW_BRIDGE_FOO": "1"}).faults
    assert faults == [
        "ONCEFLOW_BRIDGE_FOO (environment) is not a setting",
        "ONCEFLOW_DATABSE_URL (environment) is not a setting; did you mean ONCEFLOW_DATABASE_URL?",
        "ONCEFLOW_FOO (environment) is not a setting",
    ]


def test_a_fault_names_what_it_is_about() -> None:
    assert from_table({"bridge": {"prot": 1}, "relay": 3, "strpe": {}, "zzz": {}}, place="f").blamed == {
        "bridge.port",
        "relay.",
        "stripe.",
    }
    assert from_environment({"STRIPE_WEBHOOK_SECRET_FILE": "/does/not/exist"}).blamed == {"stripe.webhook_secret"}
    assert from_flags({"stripe.acount": ("--set stripe.acount", "x")}).blamed == {"stripe.account"}


def test_sections_and_names_of_a_file() -> None:
    found = from_table(
        {"bridge": {"port": 1, "hots": 2}, "kafka": {"bootstrap": {"servers": "b"}, "a.b": 1}, "relay": 3, "zzz": {}},
        place="f",
    )
    assert {name: given.value for name, given in found.values.items()} == {
        "bridge.port": 1,
        "kafka.bootstrap.servers": "b",
        "kafka.a.b": 1,
    }
    assert found.faults == [
        "bridge.hots (f) is not a setting; did you mean host?",
        "relay (f) must be a section: write [relay] and its settings below",
        "[zzz] (f) is not a section",
    ]


def test_flags_take_any_setting_and_any_kafka_property() -> None:
    found = from_flags(
        {"kafka.client.id": ("--set kafka.client.id", "x"), "bridge.port": ("--port", 1), "x.y": ("--set x.y", 1)}
    )
    assert {name: str(given.origin) for name, given in found.values.items()} == {
        "kafka.client.id": "flag --set kafka.client.id",
        "bridge.port": "flag --port",
    }
    assert found.faults == ["x.y (--set x.y) is not a setting"]


def test_which_settings_are_secret() -> None:
    secret = ("database.url", "stripe.webhook_secret", "stripe.api_key", "attestation.keys", "kafka.sasl.password")
    assert all(
        is_secret_setting(name) for name in (*secret, "kafka.ssl.key.pem", "kafka.producer.ssl.keystore.password")
    )
    assert not any(is_secret_setting(name) for name in ("bridge.port", "kafka.sasl.username", "kafka.ssl.ca.location"))
    assert variable_of("bridge.port") == "ONCEFLOW_BRIDGE_PORT"
