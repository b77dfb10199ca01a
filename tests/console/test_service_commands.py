"""Bridge, processor, operator and relay as commands: what they say when they are ready, and while their broker is away."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.every_run import mostly_long

AWAY = "127.0.0.1:1"
WAIT_SECONDS_MAX = 90.0
LINES_MAX = 30
COMMANDS = {
    "bridge": ("bridge", "--port", "0"),
    "process": ("process", "--handlers", "onceflow.examples.payments:handlers"),
    "operate": ("operate", "--handlers", "onceflow.examples.payments:handlers"),
    "relay": ("relay",),
}


@dataclass
class Service:
    """One command that runs, its output going to files."""

    process: subprocess.Popen[bytes]
    out: Path
    err: Path

    def logged(self) -> list[dict[str, Any]]:
        """Every line on standard error; a line that is no JSON fails the test."""
        complete = self.err.read_text("utf-8").rpartition("\n")[0]
        return [json.loads(line) for line in complete.splitlines()]

    def wait(self, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + WAIT_SECONDS_MAX
        while not condition():
            assert self.process.poll() is None, self.err.read_text("utf-8")
            assert time.monotonic() < end, self.err.read_text("utf-8")
            threading.Event().wait(0.05)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(WAIT_SECONDS_MAX)


def settings(kafka_bootstrap: str, database_url: str, *, mark: str) -> dict[str, str]:
    return {
        "DATABASE_URL": database_url,
        "STRIPE_WEBHOOK_SECRET": "whsec_CANARY",
        "STRIPE_API_KEY": "sk_test_CANARY",
        "ONCEFLOW_ATTESTATION_KEYS": "k=" + "CANARY" * 8,
        "ONCEFLOW_DEPLOYMENT_ID": "shop",
        "ONCEFLOW_STRIPE_ACCOUNT": "acct_A",
        "ONCEFLOW_KAFKA_BOOTSTRAP_SERVERS": kafka_bootstrap,
        "ONCEFLOW_TOPICS_EVENTS": f"events.{mark}",
        "ONCEFLOW_TOPICS_OUTCOMES": f"outcomes.{mark}",
        "ONCEFLOW_TOPICS_PARTITIONS": "1",
    }


def environment(given: dict[str, str]) -> dict[str, str]:
    return {**{name: os.environ[name] for name in ("PATH", "HOME", "PYTHONPATH") if name in os.environ}, **given}


@contextmanager
def running(command: str, *options: str, folder: Path, given: dict[str, str]) -> Iterator[Service]:
    out, err = folder / f"{command}.out", folder / f"{command}.err"
    argv = [sys.executable, "-m", "onceflow", *COMMANDS[command], *options]
    with out.open("wb") as stdout, err.open("wb") as stderr:
        process = subprocess.Popen(argv, cwd=folder, env=environment(given), stdout=stdout, stderr=stderr)
    try:
        yield Service(process, out, err)
    finally:
        process.kill()
        process.wait(WAIT_SECONDS_MAX)


@pytest.mark.parametrize("command", mostly_long(COMMANDS, every_run=["process"]))
def test_a_service_whose_broker_is_away_says_so_in_few_lines_of_our_own(
    command: str, fresh_database: str, tmp_path: Path
) -> None:
    with running(command, folder=tmp_path, given=settings(AWAY, fresh_database, mark="x")) as service:
        service.wait(lambda: "broker_unavailable" in [line.get("code") for line in service.logged()])
        assert service.stop() == 0
    logged = service.logged()
    assert len(logged) < LINES_MAX, "the client's complaints are limited"
    (told, *_) = [line for line in logged if line.get("code") == "broker_unavailable"]
    assert told["level"] == "warning"
    assert "Kafka" in json.dumps(told)
    assert [line for line in logged if line["level"] not in ("info", "warning")] == []
    assert service.out.read_text("utf-8") == ""
    assert "CANARY" not in service.err.read_text("utf-8")


def test_with_json_a_service_says_that_it_is_ready(kafka_bootstrap: str, fresh_database: str, tmp_path: Path) -> None:
    given = settings(kafka_bootstrap, fresh_database, mark=tmp_path.name.replace("_", "-"))
    made = subprocess.run(
        [sys.executable, "-m", "onceflow", "topics", "apply"],
        cwd=tmp_path, env=environment(given), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    for command, names in {"bridge": {"url"}, "process": set(), "operate": set(), "relay": set()}.items():
        with running(command, "--json", folder=tmp_path, given=given) as service:
            service.wait(lambda service=service: service.out.read_text("utf-8").endswith("\n"))  # type: ignore[misc]
            ready = json.loads(service.out.read_text("utf-8"))
            assert set(ready) == {"ready", "pid", "metrics_url"} | names, command
            assert (ready["ready"], ready["pid"]) == (True, service.process.pid)
            with urllib.request.urlopen(ready["metrics_url"], timeout=10) as page:
                assert b"onceflow_" in page.read()
            assert service.stop() == 0
        assert len(service.out.read_text("utf-8").splitlines()) == 1


@pytest.mark.parametrize("command", COMMANDS)
def test_with_json_a_service_that_cannot_start_answers_with_one_object(command: str, tmp_path: Path) -> None:
    with running(command, "--json", folder=tmp_path, given={}) as service:
        assert service.process.wait(WAIT_SECONDS_MAX) == 3
    assert json.loads(service.out.read_text("utf-8"))["error"]["code"] == "settings_invalid"
