"""From flags, environment and files to checked settings: precedence, all faults at once, no secret in any text."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from onceflow.settings import (
    LoadedSettings,
    SettingSources,
    demo_environment,
    environment_for_child,
    forget_libpq_variables,
    load_settings,
    process_environment,
    read_settings,
    user_cache_folder,
)
from onceflow_schemas.failure import Misconfigured

KEY = "k1=" + "s" * 43
CANARIES = ("whsec_CANARY1", "sk_live_CANARY2", "CANARY3", "CANARY4", "CANARY5")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def load(
    environment: dict[str, str] | None = None, *, needs: tuple[str, ...] = (), **sources: object
) -> LoadedSettings:
    return load_settings(SettingSources(**sources), needs=needs, environment=environment or {})  # type: ignore[arg-type]


def faults(
    environment: dict[str, str] | None = None, *, needs: tuple[str, ...] = (), **sources: object
) -> tuple[str, ...]:
    with pytest.raises(Misconfigured) as refused:
        load(environment, needs=needs, **sources)
    assert refused.value.code == "settings_invalid"
    return refused.value.faults


def test_without_any_source_there_are_defaults() -> None:
    settings = load().settings
    assert settings.topics.events == ("stripe.events.v1",)
    assert settings.topics.outcomes == "stripe.outcomes.v1"
    assert settings.topics.partitions == 6
    assert settings.stripe.mode == "test"
    assert settings.processor.horizon_days == 35
    assert settings.bridge.tolerance_seconds == 300
    assert settings.database.prepared is True


def test_flags_win_over_environment_over_kafka_config_over_file(folder: Path) -> None:
    (folder / "onceflow.toml").write_text(
        '[bridge]\nhost = "file"\nport = 1\ntolerance_seconds = 11\n[kafka]\n"client.id" = "file"\nlinger.ms = 1\n"debug" = "all"\n'
    )
    properties = folder / "client.properties"
    properties.write_text("client.id=properties\nlinger.ms=2\n")
    loaded = load(
        {"ONCEFLOW_BRIDGE_HOST": "environment", "ONCEFLOW_BRIDGE_PORT": "2", "ONCEFLOW_KAFKA_CLIENT_ID": "environment"},
        kafka_config=properties,
        flags={"bridge.host": ("--host", "flag")},
    )
    assert loaded.settings.bridge.host == "flag"
    assert loaded.settings.bridge.port == 2
    assert loaded.settings.bridge.tolerance_seconds == 11
    assert loaded.settings.kafka.properties == {"client.id": "environment", "linger.ms": "2", "debug": "all"}
    assert {name: str(given.origin) for name, given in loaded.given.items()} == {
        "bridge.host": "flag --host",
        "bridge.port": "environment ONCEFLOW_BRIDGE_PORT",
        "bridge.tolerance_seconds": "file onceflow.toml",
        "kafka.client.id": "environment ONCEFLOW_KAFKA_CLIENT_ID",
        "kafka.linger.ms": f"file {properties}",
        "kafka.debug": "file onceflow.toml",
    }


def test_the_file_may_be_another_one_and_must_then_exist(folder: Path) -> None:
    (folder / "onceflow.toml").write_text("[bridge]\nport = 1\n")
    (folder / "other.toml").write_text("[bridge]\nport = 2\n")
    assert load(config=folder / "other.toml").settings.bridge.port == 2
    assert load({"ONCEFLOW_CONFIG": str(folder / "other.toml")}).settings.bridge.port == 2
    assert load({"ONCEFLOW_CONFIG": os.devnull}).settings.bridge.port == 8080
    assert "missing.toml cannot be read: No such file" in faults(config=Path("missing.toml"))[0]
    assert "missing.conf of --kafka-config cannot be read" in faults(kafka_config=Path("missing.conf"))[0]


def test_a_file_that_is_no_toml_is_told_with_its_place(folder: Path) -> None:
    (folder / "onceflow.toml").write_text("[bridge]\nport = = CANARY5\n")
    (fault,) = faults()
    assert "onceflow.toml is not TOML" in fault
    assert "line 2" in fault
    (folder / "onceflow.toml").write_bytes(b"\xff\xfe")
    assert "not UTF-8" in faults()[0]


NEEDS = ("deployment.id", "stripe.account", "stripe.webhook_secret", "kafka.bootstrap.servers", "database.url")


def test_a_file_that_cannot_be_read_is_the_only_fault_besides_those_of_others(folder: Path) -> None:
    environment = {"STRIPE_API_KEY": "sk_live_1", "ONCEFLOW_KAFKA_SASL_USERNAME": "u", "ONCEFLOW_BRIDGE_PORT": "x"}
    unreadable, port = faults(environment, needs=NEEDS, config=Path("missing.toml"))
    assert "missing.toml cannot be read" in unreadable
    assert port.startswith("bridge.port (environment ONCEFLOW_BRIDGE_PORT)")
    (folder / "onceflow.toml").write_text("[bridge\n")
    assert len(faults(needs=NEEDS)) == 1


@pytest.mark.parametrize(
    ("environment", "file"),
    [
        ({"STRIPE_WEBHOOK_SECRET_FILE": "/does/not/exist"}, ""),
        ({"ONCEFLOW_STRIPE_WEBHOK_SECRET": "whsec_A"}, ""),
        ({}, "[stripe]\nwebhook_secrets = 'whsec_A'\n"),
        ({}, "[strip]\nwebhook_secret = 'whsec_A'\n"),
        ({}, "stripe = 'whsec_A'\n"),
    ],
)
def test_what_only_follows_from_a_fault_is_none_of_its_own(
    environment: dict[str, str], file: str, folder: Path
) -> None:
    (folder / "onceflow.toml").write_text(file)
    (fault,) = faults(environment, needs=("stripe.webhook_secret",))
    assert "is not set" not in fault


def test_kafka_properties_that_cannot_be_read_or_are_misspelt_are_told_once(folder: Path) -> None:
    (folder / "onceflow.toml").write_text('[kafka]\n"bootstrap.servers" = " "\n')
    (empty,) = faults({}, needs=("kafka.bootstrap.servers",))
    assert empty.endswith("is empty; a good value is 127.0.0.1:9092")
    (folder / "onceflow.toml").unlink()
    needs = ("kafka.bootstrap.servers", "deployment.id")
    unreadable, missing = faults(needs=needs, kafka_config=Path("missing.conf"))
    assert "missing.conf of --kafka-config cannot be read" in unreadable
    assert missing.startswith("deployment.id is not set")
    (misspelt,) = faults({"ONCEFLOW_KAFKA_BOOTSTRAP_SERVER": "127.0.0.1:9"}, needs=("kafka.bootstrap.servers",))
    assert misspelt.endswith("did you mean bootstrap.servers?")


def test_every_fault_is_told_at_once(folder: Path) -> None:
    (folder / "onceflow.toml").write_text("[bridge]\nprot = 1\n[briddge]\nport = 1\n[relay]\npoll_seconds = 5.0\n")
    found = faults(
        {
            "ONCEFLOW_BRIDGE_TOLERANCE_SECONDS": "0",
            "ONCEFLOW_PROCESSOR_HORIZON_DAYS": "-1",
            "ONCEFLOW_KAFKA_ACKS": "1",
            "ONCEFLOW_RELAY_LEASE_TTL": "3",
            "STRIPE_WEBHOOK_SECRET": "",
        },
        needs=("stripe.webhook_secret", "kafka.bootstrap.servers"),
        flags={"topics.partition": ("--set topics.partition", "3")},
    )
    assert [fault.split(" ")[0].rstrip(":") for fault in found] == [
        "bridge.prot",
        "[briddge]",
        "ONCEFLOW_RELAY_LEASE_TTL",
        "topics.partition",
        "bridge.tolerance_seconds",
        "processor.horizon_days",
        "kafka.acks",
        "relay.lease_ttl_seconds",
        "stripe.webhook_secret",
        "kafka.bootstrap.servers",
    ]
    text = "\n".join(found)
    for meant in ("port?", "bridge?", "ONCEFLOW_RELAY_LEASE_TTL_SECONDS?", "topics.partitions?"):
        assert f"did you mean {meant}" in text
    assert (
        "bridge.tolerance_seconds (environment ONCEFLOW_BRIDGE_TOLERANCE_SECONDS): input should be greater than 0"
        in text
    )
    assert "(it is '0'); a good value is 300" in text
    assert "set STRIPE_WEBHOOK_SECRET, or [stripe] webhook_secret in onceflow.toml; a good value is whsec_..." in text


def test_no_text_and_no_repr_holds_a_secret(folder: Path) -> None:
    (folder / "onceflow.toml").write_text('[stripe]\naccount = "sk_live_CANARY2"\napi_keys = {acct_A = "CANARY3"}\n')
    environment = {
        "STRIPE_WEBHOOK_SECRET": "whsec_CANARY1, whsec_CANARY1,sk_live_CANARY2",
        "STRIPE_API_KEY": "sk_live_CANARY2",
        "ONCEFLOW_ATTESTATION_KEYS": "k=CANARY3",
        "DATABASE_URL": "postgres//u:CANARY4@host/db",
        "ONCEFLOW_KAFKA_SASL_PASSWORD": "CANARY5",
        "ONCEFLOW_KAFKA_SASL_JAAS_CONFIG": "x password=CANARY5",
    }
    with pytest.raises(Misconfigured) as refused:
        load(environment, needs=("database.url", "kafka.bootstrap.servers"))
    told = f"{refused.value!r} {refused.value} {refused.value.faults}"
    loaded = read_settings(SettingSources(), environment=environment)
    told += f"{loaded!r} {loaded.settings!r} {loaded.settings} {loaded.faults} {loaded.given}"
    assert len(refused.value.faults) >= 7
    assert not [canary for canary in CANARIES if canary in told]


def test_good_secrets_do_not_show_either() -> None:
    loaded = load(
        {
            "STRIPE_WEBHOOK_SECRET": "main=whsec_CANARY1",
            "STRIPE_API_KEY": "sk_test_CANARY2",
            "ONCEFLOW_ATTESTATION_KEYS": "k=" + "CANARY3" * 7,
            "DATABASE_URL": "postgres://u:CANARY4@host/db",
            "ONCEFLOW_KAFKA_SASL_PASSWORD": "CANARY5",
        }
    )
    told = f"{loaded!r} {loaded.settings!r} {loaded.settings}"
    assert "CANARY" not in told
    assert loaded.settings.database.url.get_secret_value() == "postgres://u:CANARY4@host/db"
    assert loaded.settings.kafka.for_producer() == {"sasl.password": "CANARY5"}


def test_what_white_space_and_files_do_to_secrets(folder: Path) -> None:
    secret = folder / "secret"
    secret.write_text(" whsec_fromfile\n")
    loaded = load({"STRIPE_WEBHOOK_SECRET_FILE": str(secret), "ONCEFLOW_KAFKA_SASL_PASSWORD_FILE": str(secret)})
    assert [one.secret for one in loaded.settings.stripe.webhook_secret] == [b"whsec_fromfile"]
    assert loaded.settings.kafka.properties == {"sasl.password": "whsec_fromfile"}
    trimmed = load({"STRIPE_WEBHOOK_SECRET": "whsec_A\n"})
    assert [one.secret for one in trimmed.settings.stripe.webhook_secret] == [b"whsec_A"]
    both = faults({"STRIPE_WEBHOOK_SECRET_FILE": str(secret), "STRIPE_WEBHOOK_SECRET": "whsec_A"})
    assert both == (
        "stripe.webhook_secret: both STRIPE_WEBHOOK_SECRET and STRIPE_WEBHOOK_SECRET_FILE are set; keep one of them",
    )
    (missing,) = faults({"DATABASE_URL_FILE": "/does/not/exist"})
    assert missing.startswith("database.url: the file /does/not/exist that DATABASE_URL_FILE names cannot be read")


@pytest.mark.parametrize(
    ("secret", "text"),
    [("sk_test_abc", "an API key"), ("we_123", "the id of a webhook endpoint"), ("abc", "does not begin with whsec_")],
)
def test_what_is_no_signing_secret_is_refused_by_name(secret: str, text: str) -> None:
    (fault,) = faults({"STRIPE_WEBHOOK_SECRET": secret})
    assert text in fault
    assert secret not in fault


def test_the_database_address_goes_to_libpq_untouched() -> None:
    odd = " host=/tmp  dbname='a b' "
    assert load({"DATABASE_URL": odd}, needs=("database.url",)).settings.database.url.get_secret_value() == odd
    assert load({"PGHOST": "db"}, needs=("database.url",)).settings.database.url.get_secret_value() == ""
    assert (
        load({"DATABASE_URL": "a=1", "ONCEFLOW_DATABASE_URL": "b=2"}).settings.database.url.get_secret_value() == "b=2"
    )
    assert "database.url is not set" in faults(needs=("database.url",))[0]


def test_live_keys_need_the_flag() -> None:
    live, test = {"STRIPE_API_KEY": "rk_live_1"}, {"STRIPE_API_KEY": "sk_test_1"}
    assert "is a live key (rk_live_***) and stripe.mode is test" in faults(live)[0]
    in_file = {**live, "ONCEFLOW_STRIPE_MODE": "live"}
    assert "real money moves only with the flag --live" in faults(in_file)[0]
    assert load(live, live=True).settings.stripe.mode == "live"
    assert "is a test key (sk_test_***) and stripe.mode is live" in faults(test, live=True)[0]
    per_account = {"ONCEFLOW_STRIPE_API_KEYS": "acct_A=sk_live_1"}
    assert faults(per_account)[0].startswith("stripe.api_keys.acct_A is a live key")


def test_libraries_are_asked_only_for_what_the_command_uses() -> None:
    unknown = {"ONCEFLOW_KAFKA_SASL_PASWORD": "x"}
    assert load(unknown).settings.kafka.properties == {"sasl.pasword": "x"}
    needs = ("kafka.bootstrap.servers",)
    (fault,) = faults({**unknown, "ONCEFLOW_KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:9"}, needs=needs)
    assert "is not a property of librdkafka; did you mean sasl.password?" in fault


def test_a_child_gets_these_settings_and_no_others(folder: Path) -> None:
    (folder / "onceflow.toml").write_text(
        f'[stripe]\naccounts = ["acct_A", "acct_B"]\n[attestation]\nkeys = [{{id = "a", secret = "{"s" * 43}", '
        'retired_at = 2030-01-01T00:00:00Z}]\n[kafka]\n"sasl.username" = "other"\n[database]\nprepared = false\n'
    )
    base = {
        "PATH": "/bin",
        "MY_OWN": "1",
        "ONCEFLOW_BRIDGE_HOST": "h",
        "DATABASE_URL": "host=other",
        "STRIPE_WEBHOOK_SECRET_FILE": "/dev/null",
        "ONCEFLOW_KAFKA_CLIENT_ID": "other",
    }
    loaded = read_settings(SettingSources(), environment=base)
    child = environment_for_child(
        base,
        loaded.given,
        overrides={
            "database.url": "host=mine",
            "kafka.bootstrap.servers": "127.0.0.1:9092",
            "stripe.webhook_secret": "whsec_A",
            "runtime.parent_pid": 7,
            "runtime.state_file": None,
        },
    )
    assert "ONCEFLOW_RUNTIME_STATE_FILE" not in child
    assert "ONCEFLOW_KAFKA_SASL_USERNAME" not in child
    assert "ONCEFLOW_DATABASE_PREPARED" not in child
    assert {name: child[name] for name in ("PATH", "MY_OWN", "DATABASE_URL", "STRIPE_WEBHOOK_SECRET")} == {
        "PATH": "/bin",
        "MY_OWN": "1",
        "DATABASE_URL": "host=mine",
        "STRIPE_WEBHOOK_SECRET": "whsec_A",
    }
    again = load_settings(SettingSources(), environment=child).settings
    assert again.stripe.accounts == ("acct_A", "acct_B")
    assert again.attestation.keys == loaded.settings.attestation.keys
    assert again.attestation.keys[0].retired_at is not None
    assert again.kafka.properties == {"bootstrap.servers": "127.0.0.1:9092"}
    assert again.bridge.host == "h"
    assert again.runtime.parent_pid == 7


def test_the_process_s_own_environment_is_the_default(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setenv("ONCEFLOW_BRIDGE_PORT", "4711")
    monkeypatch.setenv("ONCEFLOW_RUNTIME_CACHE_FOLDER", "/cache")
    monkeypatch.setenv("PGSSLMODE", "verify-full")
    assert load_settings(SettingSources()).settings.bridge.port == 4711
    forget_libpq_variables()
    assert "PGSSLMODE" not in process_environment()
    assert demo_environment()["ONCEFLOW_RUNTIME_CACHE_FOLDER"] == "/cache"
    assert "ONCEFLOW_BRIDGE_PORT" not in demo_environment()
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    assert user_cache_folder() == folder / "onceflow"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", "/home/someone")
    assert user_cache_folder() == Path("/home/someone/.cache/onceflow")
