"""What the parts of `onceflow up` are told, and what the ready file says."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from onceflow.embedded import EmbeddedServices
from onceflow.local_identity import LocalIdentity
from onceflow.local_system import LocalSystem, claim_all_ports
from onceflow.settings import SettingSources, load_settings, read_settings

IDENTITY = LocalIdentity("local-1", "whsec_own", "s" * 43)
PORTS = {
    "bridge": 21_000,
    "simulator": 21_005,
    "bridge_metrics": 21_001,
    "processor_metrics": 21_002,
    "relay_metrics": 21_003,
    "operator_metrics": 21_004,
}


def system(
    folder: Path, environment: dict[str, str] | None = None, *, live: bool = False, simulated: bool = True
) -> LocalSystem:
    services = SimpleNamespace(
        folder=SimpleNamespace(root=folder, logs=folder / "logs"),
        database_url="host=127.0.0.1 dbname=own",
        kafka_bootstrap="127.0.0.1:9",
    )
    return LocalSystem(
        loaded=read_settings(
            SettingSources(live=live), environment={"ONCEFLOW_CONFIG": "/dev/null", **(environment or {})}
        ),
        live=live,
        services=cast("EmbeddedServices", services),
        identity=IDENTITY,
        ports=PORTS,
        folder=folder,
        simulated=simulated,
    )


@pytest.mark.parametrize("part", ["bridge", "processor", "operator", "relay"])
def test_a_part_can_start_with_what_it_is_told(part: str, tmp_path: Path) -> None:
    environment = system(tmp_path).environment(part)
    needs = ("deployment.id", "stripe.account", "stripe.webhook_secret", "attestation.keys", "database.url")
    settings = load_settings(
        SettingSources(), needs=(*needs, "kafka.bootstrap.servers"), environment=environment
    ).settings
    assert settings.deployment.id == "local-1"
    assert settings.stripe.account == "acct_embedded"
    assert [one.id for one in settings.stripe.webhook_secret] == ["local"]
    assert settings.database.url.get_secret_value() == "host=127.0.0.1 dbname=own"
    assert settings.kafka.properties == {"bootstrap.servers": "127.0.0.1:9"}
    assert settings.bridge.port == 21_000
    assert settings.metrics.port == PORTS[f"{part}_metrics"]
    assert settings.processor.handlers == "onceflow.examples.payments:handlers"
    assert settings.runtime.parent_pid == os.getpid()
    assert settings.runtime.state_file == tmp_path / f"{part}.state.json"


def test_settings_of_the_user_reach_the_parts_but_other_systems_do_not(tmp_path: Path) -> None:
    environment = system(
        tmp_path,
        {
            "DATABASE_URL": "host=production",
            "ONCEFLOW_KAFKA_SASL_PASSWORD": "CANARY",
            "STRIPE_WEBHOOK_SECRET": "mine=whsec_own,whsec_listen",
            "ONCEFLOW_STRIPE_ACCOUNT": "acct_mine",
            "ONCEFLOW_TOPICS_REPLICATION_FACTOR": "3",
            "ONCEFLOW_RELAY_POLL_SECONDS": "0.5",
            "ONCEFLOW_ATTESTATION_KEYS": "mine=" + "t" * 43,
        },
    ).environment("bridge")
    assert "production" not in str(environment)
    assert "CANARY" not in str(environment)
    settings = load_settings(SettingSources(), environment=environment).settings
    assert [one.secret for one in settings.stripe.webhook_secret] == [b"whsec_own", b"whsec_listen"]
    assert settings.stripe.account == "acct_mine"
    assert settings.relay.poll_seconds == 0.5
    assert [key.id for key in settings.attestation.keys] == ["mine"]


def test_one_broker_makes_one_copy(tmp_path: Path) -> None:
    topics = system(tmp_path, {"ONCEFLOW_TOPICS_REPLICATION_FACTOR": "3"}).topics
    assert (topics.replication_factor, topics.min_insync_replicas) == (None, None)


def test_live_is_passed_on_as_the_flag_that_it_is(tmp_path: Path) -> None:
    live = system(tmp_path, {"STRIPE_API_KEY": "sk_live_1"}, live=True)
    environment = live.environment("bridge")
    assert load_settings(SettingSources(live=True), environment=environment).settings.stripe.mode == "live"
    assert live.part("bridge")._arguments[-2:] == ["bridge", "--live"]
    assert system(tmp_path).part("processor")._arguments[-1] == "process"


def test_the_simulator_stands_for_stripe_and_no_real_key_reaches_it(tmp_path: Path) -> None:
    given = {"STRIPE_API_KEY": "sk_test_CANARY", "ONCEFLOW_STRIPE_API_KEYS": "acct_B=rk_test_CANARY"}
    simulated = system(tmp_path, given)
    assert simulated.names == ("bridge", "processor", "operator", "relay", "simulator")
    settings = load_settings(SettingSources(), environment=simulated.environment("operator")).settings
    assert settings.stripe.api_base == "http://127.0.0.1:21005"
    assert settings.stripe.api_key is not None
    assert settings.stripe.api_key.get_secret_value() == "sk_test_simulator"
    assert settings.stripe.api_keys == {}
    for name in simulated.names:
        part = simulated.part(name)
        assert "CANARY" not in str(part._arguments)
        assert "CANARY" not in str(part._environment())
        assert "whsec" not in str(part._arguments)
    assert [name for name in simulated.environment("simulator") if name.startswith(("ONCEFLOW_", "STRIPE_"))] == [
        "ONCEFLOW_CONFIG"
    ]


def test_without_the_simulator_the_users_key_is_used_or_nothing_is_called(tmp_path: Path) -> None:
    real = system(tmp_path, {"STRIPE_API_KEY": "sk_test_mine"}, simulated=False)
    assert real.names == ("bridge", "processor", "operator", "relay")
    settings = load_settings(SettingSources(), environment=real.environment("operator")).settings
    assert settings.stripe.api_base == "https://api.stripe.com"
    assert settings.stripe.api_key is not None
    assert settings.stripe.api_key.get_secret_value() == "sk_test_mine"
    assert system(tmp_path, simulated=False).names == ("bridge", "processor", "relay")


def test_the_ready_file(tmp_path: Path) -> None:
    states: dict[str, dict[str, Any]] = {
        "postgres": {"pid": 1},
        "kafka": {"pid": 2},
        "bridge": {"pid": 3, "url": "http://127.0.0.1:21000", "metrics_url": "m1"},
        "processor": {"pid": 4, "metrics_url": "m2"},
        "relay": {"pid": 5, "metrics_url": "m3"},
        "operator": {"pid": 6, "metrics_url": "m4"},
        "simulator": {"pid": 7, "url": "http://127.0.0.1:21005", "api_key": "sk_test_x", "secret": "whsec_x"},
    }
    expected = {
        "version": 1,
        "webhook_url": "http://127.0.0.1:21000/webhooks/stripe",
        "webhook_secret": "whsec_own",
        "kafka_bootstrap": "127.0.0.1:9",
        "database_url": "host=127.0.0.1 dbname=own",
        "event_topic": "stripe.events.v1",
        "outcome_topic": "stripe.outcomes.v1",
        "metrics_urls": {"bridge": "m1", "processor": "m2", "relay": "m3", "operator": "m4"},
        "pids": {"postgres": 1, "kafka": 2, "bridge": 3, "processor": 4, "relay": 5, "operator": 6, "simulator": 7},
    }
    stripe = {"stripe_api_base": "http://127.0.0.1:21005", "stripe_api_key": "sk_test_simulator"}
    for simulated in (True, False):
        ready = system(tmp_path, simulated=simulated).ready(states)
        assert ready.pop("environment") == system(tmp_path, simulated=simulated).environment_beside()
        assert ready == expected | (stripe if simulated else {})


def test_a_command_beside_it_is_told_all_but_the_users_own_secrets(tmp_path: Path) -> None:
    given = {
        "STRIPE_API_KEY": "sk_test_CANARY",
        "STRIPE_WEBHOOK_SECRET": "whsec_CANARY",
        "DATABASE_URL": "host=CANARY",
        "ONCEFLOW_KAFKA_SASL_PASSWORD": "CANARY",
        "ONCEFLOW_MAIL_PASSWORD": "CANARY",
        "ONCEFLOW_OPERATIONS_SAFE_WINDOW_HOURS": "7",
        "ONCEFLOW_METRICS_PORT": "21000",
        "ONCEFLOW_TOPICS_REPLICATION_FACTOR": "3",
        "PGSSLMODE": "verify-full",
    }
    for simulated in (True, False):
        beside = system(tmp_path, given, simulated=simulated).environment_beside()
        assert "CANARY" not in str(beside)
        assert {name.partition("_")[0] for name in beside} == {"ONCEFLOW", "STRIPE", "DATABASE"}
        key = {} if simulated else {"STRIPE_API_KEY": "sk_test_mine"}
        needs = ("deployment.id", "stripe.account", "processor.handlers", "kafka.bootstrap.servers", "database.url")
        settings = load_settings(SettingSources(), needs=needs, environment=beside | key).settings
        assert (settings.deployment.id, settings.operations.safe_window_hours) == ("local-1", 7)
        assert (settings.bridge.port, settings.metrics.port) == (0, 0)
        assert (settings.runtime.parent_pid, settings.topics.replication_factor) == (None, None)
        assert settings.stripe.api_key is not None
        assert settings.stripe.api_base == ("http://127.0.0.1:21005" if simulated else "https://api.stripe.com")


def test_ports_stay_with_the_folder_and_a_chosen_one_is_not_remembered(tmp_path: Path) -> None:
    services = system(tmp_path).services
    first = claim_all_ports(services, bridge_port=None)
    assert sorted(first) == sorted(PORTS)
    assert claim_all_ports(services, bridge_port=0) == first
    assert claim_all_ports(services, bridge_port=8080) == {**first, "bridge": 8080}
    assert claim_all_ports(services, bridge_port=None) == first
