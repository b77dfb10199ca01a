"""Settings become the options of each service; names that services share are the same in all of them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from onceflow.service_options import accesses, bridge_options, operator_options, owner, processor_options, relay_options
from onceflow.settings import SettingSources, load_settings
from onceflow.settings_model import API_VERSION, Settings
from onceflow_processor.handlers import Handlers
from onceflow_processor.operations import request
from onceflow_schemas.failure import Misconfigured

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


def settings(**more: str) -> Settings:
    return load_settings(SettingSources(), environment={**ENVIRONMENT, **more}).settings


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


def test_the_workers_of_operations() -> None:
    given = settings(
        STRIPE_API_KEY="rk_test_platform",
        ONCEFLOW_OPERATIONS_SAFE_WINDOW_HOURS="10",
        ONCEFLOW_OPERATIONS_CALL_SECONDS_MAX="3",
        ONCEFLOW_OPERATIONS_CREDENTIALS="resend=re_1",
        ONCEFLOW_MAIL_HOST="127.0.0.1",
    )
    options = operator_options(given, handlers=Handlers())
    assert options.accounts == ("acct_A", "acct_B")
    assert (options.outcome_topic, options.relay_group) == ("o", "onceflow.shop.relay")
    assert options.kafka == {"bootstrap.servers": "127.0.0.1:9", "fetch.min.bytes": "1"}
    assert (options.concurrency, options.requests_per_second, options.burst) == (32, 20, 20)
    assert options.limits.safe_window == timedelta(hours=10)
    assert options.limits.absence_wait == timedelta(minutes=15)
    assert sorted(options.senders) == ["http", "mail", "stripe"]
    assert options.call_seconds_max == 3 + 1 + 1
    assert options.owner != operator_options(given, handlers=Handlers()).owner
    for secret in ("rk_test_platform", "re_1"):
        assert secret not in repr(options)


def test_all_workers_together_stay_below_the_accounts_limit() -> None:
    """Stripe's is 100 requests a second live and 25 in test mode."""
    live = SettingSources(live=True)
    environment = {**ENVIRONMENT, "STRIPE_API_KEY": "rk_live_1"}
    for given, rate in (({}, 80), ({"ONCEFLOW_OPERATIONS_REQUESTS_PER_SECOND": "7"}, 7)):
        options = operator_options(load_settings(live, environment=environment | given).settings, handlers=Handlers())
        assert (options.mode, options.requests_per_second) == ("live", rate)


def test_without_a_mail_server_no_mail_is_sent_here() -> None:
    options = operator_options(settings(STRIPE_API_KEY="rk_test_1"), handlers=Handlers())
    assert sorted(options.senders) == ["http", "stripe"]


def test_accounts_are_reached_by_their_own_key_or_through_the_platform() -> None:
    found = accesses(settings(STRIPE_API_KEY="rk_test_platform", ONCEFLOW_STRIPE_API_KEYS="acct_C=rk_test_c"))
    assert [(one.account, one.mode, one.api_key, one.connected) for one in found] == [
        ("acct_A", "test", "rk_test_platform", False),
        ("acct_B", "test", "rk_test_platform", True),
    ]
    found = accesses(settings(ONCEFLOW_STRIPE_API_KEYS="acct_A=rk_test_a,acct_B=rk_test_b"))
    assert [(one.account, one.api_key, one.connected) for one in found] == [
        ("acct_A", "rk_test_a", False),
        ("acct_B", "rk_test_b", False),
    ]


def test_an_account_without_a_key_is_named() -> None:
    with pytest.raises(Misconfigured) as caught:
        accesses(settings(ONCEFLOW_STRIPE_API_KEYS="acct_A=rk_test_a"))
    [fault] = caught.value.faults
    assert fault.startswith("stripe.api_keys has no key for acct_B")


def test_the_api_version_is_the_one_that_requests_are_frozen_with() -> None:
    assert settings().stripe.api_version == API_VERSION == request.API_VERSION
    assert processor_options(settings(), handlers=Handlers()).api_version == API_VERSION
