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
PORTS = {"bridge": 21_000, "bridge_metrics": 21_001, "processor_metrics": 21_002, "relay_metrics": 21_003}


def system(folder: Path, environment: dict[str, str] | None = None, *, live: bool = False) -> LocalSystem:
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
    )


@pytest.mark.parametrize("part", ["bridge", "processor", "relay"])
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
            "STRIPE_WEBHOOK_SECRET": "whsec_listen",
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


def test_the_ready_file(tmp_path: Path) -> None:
    states: dict[str, dict[str, Any]] = {
        "postgres": {"pid": 1},
        "kafka": {"pid": 2},
        "bridge": {"pid": 3, "url": "http://127.0.0.1:21000", "metrics_url": "m1"},
        "processor": {"pid": 4, "metrics_url": "m2"},
        "relay": {"pid": 5, "metrics_url": "m3"},
    }
    assert system(tmp_path).ready(states) == {
        "version": 1,
        "webhook_url": "http://127.0.0.1:21000/webhooks/stripe",
        "webhook_secret": "whsec_own",
        "kafka_bootstrap": "127.0.0.1:9",
        "database_url": "host=127.0.0.1 dbname=own",
        "event_topic": "stripe.events.v1",
        "outcome_topic": "stripe.outcomes.v1",
        "metrics_urls": {"bridge": "m1", "processor": "m2", "relay": "m3"},
        "pids": {"postgres": 1, "kafka": 2, "bridge": 3, "processor": 4, "relay": 5},
    }


def test_ports_stay_with_the_folder_and_a_chosen_one_is_not_remembered(tmp_path: Path) -> None:
    services = system(tmp_path).services
    first = claim_all_ports(services, bridge_port=None)
    assert sorted(first) == ["bridge", "bridge_metrics", "processor_metrics", "relay_metrics"]
    assert claim_all_ports(services, bridge_port=0) == first
    assert claim_all_ports(services, bridge_port=8080) == {**first, "bridge": 8080}
    assert claim_all_ports(services, bridge_port=None) == first
