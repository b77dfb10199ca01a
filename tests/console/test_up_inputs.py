"""``onceflow up`` with topics of others: they are made on its broker, read, and told to commands beside it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import psycopg
from confluent_kafka import Producer

from onceflow.demo.running_system import RunningSystem
from onceflow.settings import environment_for_child, process_environment
from tests.checker.waiting import wait_for
from tests.processor.conftest import event_body
from tests.processor.inputs.foreign_records import WRAP

INPUTS = [
    {"topic": "stripe.events.v1"},
    {"topic": "bus.eventbridge", "format": "eventbridge", "trust": "transport"},
]
STATE_SECONDS_MAX = 60.0


def test_topics_of_others_are_read_beside_the_bridges(tmp_path: Path) -> None:
    environment = environment_for_child(process_environment(), {}, overrides={"inputs": INPUTS})
    with RunningSystem(tmp_path, environment=environment) as system:
        ready = system.start()
        subject = {"id": "pi_1", "object": "payment_intent", "amount": 5, "currency": "eur"}
        body = event_body("evt_up", "payment_intent.succeeded", subject, created=int(time.time()))
        producer = Producer({"bootstrap.servers": ready.kafka_bootstrap})
        producer.produce("bus.eventbridge", WRAP["eventbridge"](body).value)
        assert producer.flush(20) == 0

        def state() -> list[tuple[str]]:
            with psycopg.connect(ready.database_url) as connection:
                query = "SELECT state FROM onceflow.inbox WHERE event_id = 'evt_up'"
                return connection.execute(query).fetchall()

        wait_for(lambda: bool(state()), limit_seconds=STATE_SECONDS_MAX, what="a state of the event")
        assert state() == [("processed",)]
        beside = {**environment, **json.loads((tmp_path / "ready.json").read_text())["environment"]}
        shown = onceflow("progress", "show", "--json", environment=beside, folder=tmp_path)
        assert {row["topic"] for row in map(json.loads, shown.splitlines())} == {one["topic"] for one in INPUTS}
        said = onceflow("doctor", "--json", environment=beside, folder=tmp_path)
        assert "whoever may write to it can forge events" in said


def test_up_refuses_inputs_that_leave_its_bridge_out(tmp_path: Path) -> None:
    environment = environment_for_child(process_environment(), {}, overrides={"inputs": INPUTS[1:]})
    arguments = [sys.executable, "-m", "onceflow", "up", "--data", str(tmp_path / "data")]
    ended = subprocess.run(
        arguments, check=False, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 3
    assert "topics.events names stripe.events.v1, which no [[inputs]] reads" in ended.stderr


def onceflow(*arguments: str, environment: dict[str, str], folder: Path) -> str:
    command = [sys.executable, "-m", "onceflow", *arguments]
    ended = subprocess.run(
        command, check=False, env=environment, cwd=folder, capture_output=True, text=True, timeout=120
    )
    return ended.stdout
