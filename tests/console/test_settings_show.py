"""What `config show` prints: every setting, its source, and no secret."""

from __future__ import annotations

from onceflow.settings import SettingSources, read_settings
from onceflow.settings_show import ShownSetting, shown_settings


def shown(environment: dict[str, str]) -> dict[str, ShownSetting]:
    loaded = read_settings(SettingSources(), environment={"ONCEFLOW_CONFIG": "/dev/null", **environment})
    return {row.name: row for row in shown_settings(loaded)}


def test_values_and_sources() -> None:
    rows = shown({"ONCEFLOW_BRIDGE_PORT": "9", "ONCEFLOW_KAFKA_CLIENT_ID": "me", "ONCEFLOW_DATABASE_PREPARED": "no"})
    assert rows["bridge.port"] == ("bridge.port", "9", "environment ONCEFLOW_BRIDGE_PORT", False)
    assert rows["kafka.client.id"] == ("kafka.client.id", "me", "environment ONCEFLOW_KAFKA_CLIENT_ID", False)
    assert rows["topics.events"] == ("topics.events", "stripe.events.v1", "default", False)
    assert rows["database.prepared"].value == "no"
    assert rows["processor.handlers"] == ("processor.handlers", "", "not set", False)
    assert rows["stripe.api_key"] == ("stripe.api_key", "", "not set", True)
    assert rows["kafka.bootstrap.servers"] == ("kafka.bootstrap.servers", "", "not set", False)
    given = shown({"ONCEFLOW_KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:9"})["kafka.bootstrap.servers"]
    assert (given.value, given.source) == ("127.0.0.1:9", "environment ONCEFLOW_KAFKA_BOOTSTRAP_SERVERS")


def test_secrets_are_masked() -> None:
    rows = shown(
        {
            "STRIPE_WEBHOOK_SECRET": "whsec_CANARY",
            "STRIPE_API_KEY": "sk_test_CANARY",
            "ONCEFLOW_ATTESTATION_KEYS": "k=" + "CANARY" * 8,
            "DATABASE_URL": "postgresql://me:CANARY@db:5432/shop?sslpassword=CANARY",
            "ONCEFLOW_KAFKA_SASL_PASSWORD": "CANARY",
            "ONCEFLOW_BRIDGE_HOST": "whsec_CANARY",
        }
    )
    assert "CANARY" not in str(rows)
    for name in ("stripe.webhook_secret", "stripe.api_key", "attestation.keys", "kafka.sasl.password"):
        assert (rows[name].value, rows[name].secret) == ("***", True)
    assert rows["stripe.api_keys"].value == ""
    assert set(rows["database.url"].value.split(" ")) == {
        "user=me", "password=***", "host=db", "port=5432", "dbname=shop", "sslpassword=***",
    }  # fmt: skip


def test_an_address_that_cannot_be_read_is_masked_as_a_whole() -> None:
    assert shown({"DATABASE_URL": "postgres//u:CANARY@h"})["database.url"].value == "***"


def test_what_cannot_be_used_is_shown_as_it_was_given() -> None:
    assert shown({"ONCEFLOW_BRIDGE_PORT": "abc"})["bridge.port"].value == "abc"
