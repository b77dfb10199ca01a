"""What the pages show beside a running `onceflow up` works: other commands on the same system, an operation after its window."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from onceflow_simulator import SimulatorClient
from tests.checker.waiting import wait_for
from tests.docs.test_readme import BLOCK, ROOT, STEP_SECONDS_MAX, tour_environment
from tests.docs.test_readme import blocks as blocks_of_readme

READY_SECONDS_MAX = 240.0
SETTLED_SECONDS_MAX = 60.0


def blocks(page: str, heading: str) -> list[tuple[str, str]]:
    """The blocks of one chapter: language and note, and text."""
    chapter = (ROOT / "docs" / page).read_text("utf-8").split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    return [(f"{language}{note}", text) for language, note, text in BLOCK.findall(chapter)]


class Place:
    """A folder in which `onceflow up` runs with the shop of the README."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = tour_environment()
        [shop] = [block.text for block in blocks_of_readme() if block.file_name == "shop.py"]
        (folder / "shop.py").write_text(shop, "utf-8")
        self.started: list[subprocess.Popen[bytes]] = []
        self.begin("exec onceflow up --handlers shop:handlers", name="up")
        ready = folder / ".onceflow" / "ready.json"
        wait_for(ready.exists, limit_seconds=READY_SECONDS_MAX, what="onceflow up is ready")
        self.ready: dict[str, Any] = json.loads(ready.read_text("utf-8"))

    def begin(self, script: str, *, name: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("wb") as log:
            arguments = ["bash", "-eu", "-c", script]
            self.started.append(
                subprocess.Popen(arguments, cwd=self.folder, env=self.environment, stdout=log, stderr=log)
            )
        return self.started[-1]

    def run(self, script: str) -> str:
        arguments = ["bash", "-eu", "-o", "pipefail", "-c", script]
        done = subprocess.run(
            arguments,
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=STEP_SECONDS_MAX,
            check=False,
        )
        assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def value(self, query: str, *values: object) -> Any:
        with psycopg.connect(self.ready["database_url"]) as connection:
            row = connection.execute(query.encode(), values).fetchone()
        return None if row is None else row[0]

    def stop(self) -> None:
        for process in reversed(self.started):
            process.send_signal(signal.SIGTERM)
            process.wait(60)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    there = Place(tmp_path_factory.mktemp("beside"))
    yield there
    there.stop()


def test_other_commands_work_on_the_same_system(place: Place) -> None:
    (one, commands), (other, worker) = blocks("embedded.md", "Other commands beside `onceflow up`")
    assert (one, other) == ("sh", "sh terminal")
    said = place.run(commands)
    assert re.search(r"^(✗|NO)", said, re.MULTILINE) is None, said
    variables = commands[: commands.index("onceflow doctor")]
    started = place.begin(f"{variables}\nexec {worker.strip()} --json", name="worker")
    log = place.folder / "worker.log"
    wait_for(lambda: '{"ready": true' in log.read_text(), limit_seconds=STEP_SECONDS_MAX, what="the worker is ready")
    # The first worker stands still: what is asked for now is done by the second.
    os.kill(place.ready["pids"]["operator"], signal.SIGSTOP)
    try:
        place.run("onceflow simulate trigger payment_intent.succeeded --add payment_intent:metadata.deposit=chair")
        wait_for(
            lambda: place.value("SELECT state FROM onceflow.operation WHERE subject <> 'aged'") == "succeeded",
            limit_seconds=SETTLED_SECONDS_MAX,
            what="the second worker has carried it out",
        )
    finally:
        os.kill(place.ready["pids"]["operator"], signal.SIGCONT)
    started.send_signal(signal.SIGTERM)
    assert started.wait(60) == 0


def test_an_operation_after_its_window(place: Place) -> None:
    (kind, source), (other, commands) = blocks("simulator.md", "Keys, clocks and the safe window")
    assert (kind, other) == ("python up", "sh up")
    (place.folder / "aged.py").write_text(source, "utf-8")
    operation = place.run(f"{commands}\necho $OPERATION").splitlines()[-1]
    wait_for(
        lambda: place.value("SELECT state FROM onceflow.operation WHERE id = %s", operation) == "succeeded",
        limit_seconds=SETTLED_SECONDS_MAX,
        what="it is settled",
    )
    assert place.value("SELECT count(*) FROM onceflow.attempt WHERE operation_id = %s", operation) == 1
    simulator = SimulatorClient(place.ready["stripe_api_base"])
    assert simulator.ledger().count("refund", operation) == 1
    assert [one["fault"] for one in simulator.journal()] == ["lost_answer"]


def test_webhooks_arrive_after_the_clock_was_moved(place: Place) -> None:
    """Two days, for which `--anyway` is asked: what is signed then is not too old, and not of the future."""
    place.run("onceflow simulate clock --advance 2d --anyway")
    before = time.time()
    place.run("onceflow simulate trigger customer.created")
    query = "SELECT event_created FROM onceflow.inbox WHERE type = 'customer.created'"
    wait_for(lambda: place.value(query) is not None, limit_seconds=SETTLED_SECONDS_MAX, what="its event has arrived")
    assert place.value(query).timestamp() > before + 86_400
