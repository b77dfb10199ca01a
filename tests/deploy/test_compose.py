"""docker-compose.yml: no daemon is needed to know that its form, commands, settings, ports, files and versions are right."""

from __future__ import annotations

import importlib
import re
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

import pytest
from fastapi.routing import APIRoute

from onceflow.embedded.kafka_jars import KAFKA_VERSION
from onceflow.embedded.postgres_cluster import find_program
from onceflow.settings import SettingSources, read_settings
from onceflow.settings_sources import ALIASES, PREFIX, setting_of
from onceflow_producer.health import build_app
from tests.deploy.compose import FILE, ROOT, Compose, examples, load

FILLED = {
    "ONCEFLOW_STRIPE_ACCOUNT": "acct_1",
    "STRIPE_WEBHOOK_SECRET": "whsec_one,second=whsec_two",
    "STRIPE_API_KEY": "rk_test_1",
    "ONCEFLOW_ATTESTATION_KEYS": "2026a=" + "5e" * 32,
    "POSTGRES_PASSWORD": "secret",
}
OF_COMPOSE = {"POSTGRES_PASSWORD", "HANDLERS_FOLDER", "BRIDGE_PORT", "KAFKA_PORT"}
SERVICES = {"bridge", "processor", "operator", "relay", "reconciler"}
ONE_SHOT = {"migrate", "topics"}
URL = re.compile(r"http://127\.0\.0\.1:(\d+)(/\w+)")


@pytest.fixture(scope="module")
def compose() -> Compose:
    return load({name: one.value for name, one in examples().items()} | FILLED)


def schema_check(path: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(path)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_the_form_is_that_of_the_compose_specification(tmp_path: Path) -> None:
    done = schema_check(FILE)
    assert done.returncode == 0, done.stdout + done.stderr
    broken = tmp_path / "docker-compose.yml"
    broken.write_text(
        FILE.read_text("utf-8")
        .replace("    read_only: true", "    readonly: true")
        .replace("healthcheck:", "healtcheck:")
    )
    assert schema_check(broken).returncode == 1, "a mistyped key is seen"


def test_docker_compose_itself_reads_it(tmp_path: Path) -> None:
    """Where a `docker compose` is installed; its `config` needs no daemon."""
    docker = shutil.which("docker")
    known = docker is not None and subprocess.run([docker, "compose", "version"], capture_output=True, check=False)
    if docker is None or not known or known.returncode != 0:
        return  # Nobody promised one: the schema above is the check that always runs.
    filled = tmp_path / "filled.env"
    filled.write_text("".join(f"{name}={value}\n" for name, value in FILLED.items()))
    command = [docker, "compose", "--file", str(FILE), "--env-file", str(filled), "config", "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_every_command_exists(compose: Compose, tmp_path: Path) -> None:
    commands = {tuple(one["command"]) for one in compose.ours().values()} - {("--help",)}
    assert commands == {
        ("migrate",),
        ("topics", "apply"),
        ("bridge",),
        ("process",),
        ("operate",),
        ("relay",),
        ("reconcile",),
    }
    for command in commands:
        done = subprocess.run(
            [sys.executable, "-m", "onceflow", *command, "--help"],
            cwd=tmp_path,
            capture_output=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, command


def test_every_command_has_the_settings_that_it_needs(
    compose: Compose, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, service in compose.ours().items():
        module = importlib.import_module(f"onceflow.commands.{service['command'][0]}") if name != "command" else None
        needs = getattr(module, "NEEDS", ("database.url",))
        environment = compose.environment(name)
        assert all(variable.startswith(PREFIX) or variable in ALIASES for variable in environment), name
        assert read_settings(SettingSources(), needs=needs, environment=environment).faults == (), name


def test_the_bridge_has_no_way_to_the_database(compose: Compose) -> None:
    assert "DATABASE_URL" not in compose.environment("bridge")
    assert not set(compose.services["bridge"]["networks"]) & set(compose.services["postgres"]["networks"])


def test_the_example_environment_names_exactly_what_is_used(compose: Compose) -> None:
    found = examples()
    assert set(found) == set(compose.used)
    for name, default in compose.used.items():
        assert found[name].value == (default or ""), f"{name}: the example says what the file takes by itself"
        assert len(found[name].comment) > 20, f"{name} is explained"
        assert name in OF_COMPOSE or setting_of(name) is not None, name


def test_ports_are_those_on_which_something_listens(compose: Compose) -> None:
    bridge, kafka = compose.environment("bridge"), compose.environment("kafka")
    assert compose.services["bridge"]["ports"] == [f"127.0.0.1:8080:{bridge['ONCEFLOW_BRIDGE_PORT']}"]
    listeners = dict(re.findall(r"(\w+)://[\w.]*:(\d+)", kafka["KAFKA_LISTENERS"]))
    advertised = dict(re.findall(r"(\w+)://([\w.]+:\d+)", kafka["KAFKA_ADVERTISED_LISTENERS"]))
    assert listeners == {"CONTROLLER": "29093", "PLAINTEXT": "19092", "PLAINTEXT_HOST": "9092"}
    assert advertised == {"PLAINTEXT": "kafka:19092", "PLAINTEXT_HOST": "localhost:9092"}
    assert compose.services["kafka"]["ports"] == [f"127.0.0.1:9092:{listeners['PLAINTEXT_HOST']}"]
    assert kafka["KAFKA_CONTROLLER_QUORUM_VOTERS"] == f"{kafka['KAFKA_NODE_ID']}@kafka:{listeners['CONTROLLER']}"
    for name in SERVICES | {"topics"}:
        assert compose.environment(name)["ONCEFLOW_KAFKA_BOOTSTRAP_SERVERS"] == advertised["PLAINTEXT"]
    for service in compose.services.values():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))


def test_healthchecks_ask_what_is_served(compose: Compose) -> None:
    app = build_app(cast("Any", None), why_not_ready=tuple)
    routes = {route.path for route in app.routes if isinstance(route, APIRoute)}
    asked = {name: URL.findall(str(compose.services[name]["healthcheck"]["test"])) for name in SERVICES}
    bridge = compose.environment("bridge")
    assert asked["bridge"] == [(bridge["ONCEFLOW_BRIDGE_PORT"], "/readyz")]
    assert "/readyz" in routes
    for name in ("processor", "operator", "relay", "reconciler"):
        assert asked[name] == [(compose.environment(name)["ONCEFLOW_METRICS_PORT"], "/metrics")]


def test_the_order_of_the_start(compose: Compose) -> None:
    """`up --wait` takes the end of a one-shot service for a failure unless another one waits for it."""
    waits = {
        (name, other): condition["condition"]
        for name, service in compose.services.items()
        for other, condition in service.get("depends_on", {}).items()
    }
    assert waits == {
        ("migrate", "postgres"): "service_healthy",
        ("topics", "kafka"): "service_healthy",
        ("topics", "migrate"): "service_completed_successfully",
        ("bridge", "topics"): "service_completed_successfully",
        ("processor", "topics"): "service_completed_successfully",
        ("operator", "topics"): "service_completed_successfully",
        ("relay", "topics"): "service_completed_successfully",
        ("reconciler", "topics"): "service_completed_successfully",
    }


def test_services_are_hardened_and_kept_alive(compose: Compose) -> None:
    assert "version" not in compose.document
    for name, service in compose.services.items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["user"] not in {"", "root", "0", "0:0"}, name
        if name in SERVICES | {"kafka", "postgres"}:
            assert service["restart"] == "unless-stopped", name
            assert set(service["healthcheck"]) == {"test", "interval", "timeout", "retries", "start_period"}, name
        else:
            assert "restart" not in service, name
            assert name in ONE_SHOT or service["profiles"] == ["tools"], name


def test_every_mounted_file_and_volume_exists(compose: Compose) -> None:
    for service in compose.services.values():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert source in compose.document["volumes"] or (ROOT / source).is_dir(), source
        for network in service["networks"]:
            assert network in compose.document["networks"]
    handlers = compose.environment("processor")["ONCEFLOW_PROCESSOR_HANDLERS"].partition(":")[0]
    for name in ("ONCEFLOW_PROCESSOR_HANDLERS", "DATABASE_URL"):
        assert compose.environment("operator")[name] == compose.environment("processor")[name]
    assert compose.services["operator"]["volumes"] == compose.services["processor"]["volumes"]
    assert sorted(one for one in SERVICES if "STRIPE_API_KEY" in compose.environment(one)) == ["operator", "reconciler"]
    folder = examples()["HANDLERS_FOLDER"].value
    assert (ROOT / folder / f"{handlers}.py").is_file()


def test_versions_are_those_that_are_tested(compose: Compose) -> None:
    images = {service["image"] for service in compose.services.values()}
    said = subprocess.run([str(find_program("postgres")), "--version"], capture_output=True, text=True, check=True)
    postgres = re.search(r"(\d+\.\d+)", said.stdout)
    assert postgres is not None
    assert images == {f"apache/kafka:{KAFKA_VERSION}", f"postgres:{postgres[1]}", f"onceflow:{version('onceflow')}"}
