"""Settings become the options of each service; names that services share are the same in all of them."""

from __future__ import annotations

from onceflow.service_options import bridge_options, owner, processor_options, relay_options
from onceflow.settings import SettingSources, load_settings
from onceflow.settings_model import Settings
from onceflow_processor.handlers import Handlers

ENVIRONMENT = {
    "ONCEFLOW_CONFIG": "/dev/null",
    "DATABASE_URL": "host=db",
    "STRIPE_WEBHOOK_SECRET": "main=whsec_A",
    "ONCEFLOW_DEPLOYMENT_ID": "shop",
    "ONCEFLOW_STRIPE_ACCOUNT": "acct_A",
    "ONCEFLOW_STRIPE_ACCOUNTS": "acct_B,acct_A,acct_B",
    "ONCEFLOW_ATTESTATION_KEYS": "k=" + "s" * 43,
    "ONCEFLOW_KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:9",
    "ONCEFLOW_KAFKA_CONSUMER_FETCH_MIN_BYTES": "1",
    "ONCEFLOW_KAFKA_PRODUCER_LINGER_MS": "5",
    "ONCEFLOW_TOPICS_EVENTS": "a,b",
    "ONCEFLOW_TOPICS_OUTCOMES": "o",
    "ONCEFLOW_DATABASE_PREPARED": "false",
    "ONCEFLOW_METRICS_PORT": "9100",
    "ONCEFLOW_PROCESSOR_START": "2026-01-01T00:00:00Z",
}


def settings() -> Settings:
    return load_settings(SettingSources(), environment=ENVIRONMENT).settings


def test_the_bridge() -> None:
    options = bridge_options(settings())
    assert options.kafka == {"bootstrap.servers": "127.0.0.1:9", "linger.ms": "5"}
    assert (options.topic, options.deployment, options.default_account, options.default_mode) == (
        "a",
        "shop",
        "acct_A",
        "test",
    )
    assert [one.id for one in options.secrets] == ["main"]
    assert (options.port, options.metrics_port, options.tolerance_seconds) == (8080, 9100, 300)
    assert (options.read_deadline_seconds, options.answer_deadline_seconds) == (4.0, 8.0)


def test_the_processor() -> None:
    handlers = Handlers()
    options = processor_options(settings(), handlers=handlers)
    assert options.kafka == {"bootstrap.servers": "127.0.0.1:9", "fetch.min.bytes": "1"}
    assert options.handlers is handlers
    assert options.accounts == ("acct_A", "acct_B")
    assert (options.topics, options.outcome_topic) == (("a", "b"), "o")
    assert (options.group, options.relay_group) == ("onceflow.shop.processor", "onceflow.shop.relay")
    assert list(options.attestation_keys) == ["k"]
    assert options.start == "2026-01-01T00:00:00.000000Z"
    assert (options.database_url, options.prepared) == ("host=db", False)


def test_the_relay() -> None:
    options = relay_options(settings())
    assert options.kafka == {"bootstrap.servers": "127.0.0.1:9", "linger.ms": "5"}
    assert (options.group, options.transactional_id) == ("onceflow.shop.relay", "onceflow.shop.relay.o")
    assert (options.lease_ttl_seconds, options.batch_records_max, options.poll_seconds) == (8.0, 5000, 0.03)
    assert (options.database_url, options.prepared, options.deployment) == ("host=db", False, "shop")


def test_every_process_has_a_name_of_its_own() -> None:
    assert owner() != owner()
    assert owner().count(":") == 2
