"""Unencrypted ways to other machines are refused in production, all at once, and only there."""

from __future__ import annotations

import pytest

from onceflow.settings import SettingSources, load_settings
from onceflow.settings_model import KafkaSettings
from onceflow.transport_checks import broker_faults, call_faults, database_faults, is_local
from onceflow_schemas.failure import Misconfigured

NEEDS = ("kafka.bootstrap.servers", "database.url")
OPEN = {
    "ONCEFLOW_CONFIG": "/dev/null",
    "ONCEFLOW_KAFKA_BOOTSTRAP_SERVERS": "kafka-1.example.com:9092",
    "DATABASE_URL": "postgresql://onceflow:CANARY@db.example.com/payments?sslmode=disable",
}


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("", True), ("/run/postgresql", True), ("localhost", True), ("127.0.0.1", True), ("127.9.9.9", True),
        ("::1", True), ("10.0.0.1", False), ("kafka", False), ("localhost.example.com", False), ("0.0.0.1", False),
    ],
)  # fmt: skip
def test_what_is_surely_this_machine(host: str, *, local: bool) -> None:
    assert is_local(host) is local


@pytest.mark.parametrize(
    ("brokers", "protocol", "refused"),
    [
        ("kafka-1:9092", None, True),
        ("kafka-1:9092", "plaintext", True),
        ("kafka-1:9092", "SASL_PLAINTEXT", True),
        ("127.0.0.1:9092,kafka-1:9092", None, True),
        ("PLAINTEXT://[2001:db8::1]:9092", None, True),
        ("kafka-1:9093", "SASL_SSL", False),
        ("kafka-1:9093", "ssl", False),
        ("127.0.0.1:9092, localhost:9093,[::1]:9094", None, False),
        ("", None, False),
    ],
)
def test_brokers(brokers: str, protocol: str | None, *, refused: bool) -> None:
    properties = {"bootstrap.servers": brokers} | ({} if protocol is None else {"security.protocol": protocol})
    assert len(broker_faults(KafkaSettings(properties=properties))) == int(refused)


def test_one_role_that_is_not_encrypted_is_enough() -> None:
    properties = {"bootstrap.servers": "kafka:9093", "security.protocol": "SASL_SSL"}
    [fault] = broker_faults(KafkaSettings(properties=properties, consumer={"security.protocol": "PLAINTEXT"}))
    assert fault.startswith("kafka.security.protocol is PLAINTEXT and kafka is not this machine")


@pytest.mark.parametrize(
    ("address", "environment", "refused"),
    [
        ({"host": "db", "sslmode": "disable"}, {}, True),
        ({"host": "db", "sslmode": "allow"}, {}, True),
        ({"hostaddr": "10.0.0.1"}, {"PGSSLMODE": "disable"}, True),
        ({"sslmode": "disable"}, {"PGHOST": "db"}, True),
        ({"host": "db"}, {}, False),
        ({"host": "db", "sslmode": "verify-full"}, {"PGSSLMODE": "disable"}, False),
        ({"host": "127.0.0.1", "sslmode": "disable"}, {}, False),
        ({"sslmode": "disable"}, {}, False),
    ],
)
def test_databases(address: dict[str, str], environment: dict[str, str], *, refused: bool) -> None:
    assert len(database_faults(address, environment=environment)) == int(refused)


def test_production_is_the_default_and_names_all_faults_at_once_with_the_fix() -> None:
    with pytest.raises(Misconfigured) as refused:
        load_settings(SettingSources(), needs=NEEDS, environment=OPEN)
    assert refused.value.code == "settings_invalid"
    assert len(refused.value.faults) == 2
    assert "a good value is SASL_SSL" in refused.value.faults[0]
    assert "a good value is sslmode=verify-full" in refused.value.faults[1]
    assert "CANARY" not in str(refused.value.faults)


def test_dev_takes_them_and_what_a_command_does_not_use_is_not_looked_at() -> None:
    load_settings(SettingSources(), needs=NEEDS, environment={**OPEN, "ONCEFLOW_DEPLOYMENT_PROFILE": "dev"})
    load_settings(SettingSources(), environment=OPEN)


@pytest.mark.parametrize(
    ("api_base", "mail_host", "security", "names"),
    [
        ("https://api.stripe.com", None, "tls", []),
        ("http://127.0.0.1:12111", "localhost", "none", []),
        ("https://proxy.example.com/", "smtp.example.com", "starttls", []),
        ("http://proxy.example.com:80", None, "tls", ["stripe.api_base"]),
        ("http://10.0.0.1", "smtp.example.com", "none", ["stripe.api_base", "mail.security"]),
    ],
)
def test_calls_and_mail(api_base: str, mail_host: str | None, security: str, names: list[str]) -> None:
    faults = call_faults(api_base=api_base, mail_host=mail_host, mail_security=security)
    assert [fault.partition(" ")[0] for fault in faults] == names


def test_they_are_refused_in_production_only() -> None:
    environment = {"ONCEFLOW_CONFIG": "/dev/null", "ONCEFLOW_STRIPE_API_BASE": "http://proxy.example.com"}
    with pytest.raises(Misconfigured, match=r"stripe\.api_base is http"):
        load_settings(SettingSources(), environment=environment)
    load_settings(SettingSources(), environment={**environment, "ONCEFLOW_DEPLOYMENT_PROFILE": "dev"})
