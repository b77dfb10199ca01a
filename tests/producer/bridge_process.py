"""Starts and ends real bridges, and reads back what they wrote: to the topic, to their log and to their metrics."""

from __future__ import annotations

import hashlib
import hmac
import json
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import requests
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from tests.waiting import wait_until

SECRET = "whsec_test_of_the_bridge"
ATTESTATION_SECRET = bytes(range(32))
ROOT = Path(__file__).parents[2]
START_SECONDS = 60.0
STOP_SECONDS = 40.0
READ_SECONDS = 20.0


def _bounds(consumer: Consumer, place: TopicPartition) -> tuple[int, int] | None:
    """First and next offset; None while the client does not know the partition yet, right after a broker's pause."""
    try:
        return consumer.get_watermark_offsets(place, timeout=READ_SECONDS)
    except KafkaException as error:
        if error.args[0].code() != KafkaError._UNKNOWN_PARTITION:
            raise
        return None


def signed(body: bytes, *, secret: str = SECRET, timestamp: int | None = None) -> str:
    """The Stripe-Signature header of a body."""
    moment = int(time.time()) if timestamp is None else timestamp
    mac = hmac.new(secret.encode(), f"{moment}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={moment},v1={mac}"


def event(event_id: str, **changes: Any) -> bytes:
    """A plain event as Stripe writes it, with changed outermost fields (None takes one out)."""
    fields: dict[str, Any] = {
        "id": event_id,
        "object": "event",
        "api_version": "2025-09-30.clover",
        "created": 1_700_000_000,
        "data": {"object": {"id": f"ch_{event_id}", "object": "charge", "amount": 1099, "currency": "eur"}},
        "livemode": False,
        "type": "charge.succeeded",
    }
    fields.update(changes)
    return json.dumps({name: value for name, value in fields.items() if value is not None}, indent=2).encode()


@dataclass(frozen=True)
class Stored:
    """One record as it lies in the topic."""

    key: bytes
    value: bytes
    headers: dict[str, str]


class BridgeProcess:
    """One bridge; a context manager that waits until it is ready and ends it."""

    def __init__(self, folder: Path, *, kafka: dict[str, Any], topic: str, **options: Any) -> None:
        self.folder = folder
        self.topic = topic
        self.state_file = folder / "bridge.json"
        self._log = folder / "bridge.log"
        self._kafka = kafka
        self._told = {
            "kafka": kafka,
            "topic": topic,
            "secrets": SECRET,
            "attestation_secret": ATTESTATION_SECRET.hex(),
            "deployment": "test",
            "default_account": "acct_test",
            "default_mode": "test",
            "state_file": str(self.state_file),
            "rate_per_second": 1_000.0,
            "rate_burst": 100_000,
            **options,
        }
        self.url = ""
        self.metrics_url = ""

    def start(self) -> Self:
        """Start the process without waiting for anything."""
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.producer.bridge_main", json.dumps(self._told)],
                cwd=ROOT,
                stderr=log,
                stdout=log,
                stdin=subprocess.DEVNULL,
            )
        return self

    def wait_listening(self) -> None:
        """Wait until it listens; it need not be ready."""
        line = wait_until(
            lambda: self.lines("bridge_listening") or self.process.poll(),
            within_seconds=START_SECONDS,
            why="the bridge does not listen",
        )
        assert isinstance(line, list), self.log_text()
        self.url, self.metrics_url = line[0]["url"], line[0]["metrics_url"]

    def wait_ready(self) -> None:
        """Wait for the state file."""
        wait_until(
            lambda: self.state_file.exists() or self.process.poll() is not None,
            within_seconds=START_SECONDS,
            why="the bridge is not ready",
        )
        assert self.state_file.exists(), self.log_text()
        state = json.loads(self.state_file.read_text())
        assert state["pid"] == self.process.pid
        self.url, self.metrics_url = state["url"], state["metrics_url"]

    def exit_code_of_start(self) -> int:
        """Start it and wait for it to end by itself."""
        self.start()
        try:
            return self.process.wait(START_SECONDS)
        finally:
            self.kill()

    def stop(self) -> int:
        """End it cleanly and return its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_SECONDS)

    def __enter__(self) -> Self:
        self.start()
        try:
            self.wait_ready()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def kill(self) -> None:
        """Make sure that it is gone."""
        self.process.kill()
        self.process.wait(STOP_SECONDS)

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def post(
        self, body: bytes, *, header: str | None = None, path: str = "/webhooks/stripe", timeout: float = 15.0
    ) -> requests.Response:
        """Post a body, signed unless a header is given."""
        headers = {"Stripe-Signature": signed(body) if header is None else header, "Content-Type": "application/json"}
        return requests.post(self.url + path, data=body, headers=headers, timeout=timeout)

    def get(self, path: str) -> requests.Response:
        return requests.get(self.url + path, timeout=5)

    def stored(self, answer: requests.Response) -> Stored:
        """The record that a 200 speaks of."""
        assert answer.status_code == 200, answer.text
        place = TopicPartition(self.topic, answer.json()["partition"], answer.json()["offset"])
        consumer = Consumer({**self._kafka, "group.id": "reader", "enable.auto.commit": False})
        try:
            consumer.assign([place])
            message = consumer.poll(READ_SECONDS)
            assert message is not None, "the record is not there"
            assert message.error() is None, message.error()
            assert message.offset() == answer.json()["offset"]
            pairs: list[tuple[str, bytes]] = list(message.headers() or [])  # type: ignore[arg-type]  # bytes in fact
            headers = {name: raw.decode("ascii") for name, raw in pairs}
            return Stored(message.key() or b"", message.value() or b"", headers)
        finally:
            consumer.close()

    def all_values(self) -> list[bytes]:
        """Every value in the topic now."""
        consumer = Consumer({**self._kafka, "group.id": "reader", "enable.auto.commit": False})
        try:
            places, expected = [], 0
            for number in consumer.list_topics(self.topic, timeout=READ_SECONDS).topics[self.topic].partitions:
                place = TopicPartition(self.topic, number)
                known = partial(_bounds, consumer, place)
                low, high = wait_until(known, within_seconds=READ_SECONDS, why="no leader") or (0, 0)
                places.append(TopicPartition(self.topic, number, low))
                expected += high - low
            consumer.assign(places)
            values: list[bytes] = []
            while len(values) < expected:
                messages = consumer.consume(min(1_000, expected - len(values)), timeout=READ_SECONDS)
                assert messages, f"{len(values)} of {expected} records came"
                values.extend(message.value() or b"" for message in messages if message.error() is None)
            return values
        finally:
            consumer.close()

    def log_text(self) -> str:
        return self._log.read_text(errors="replace")

    def lines(self, event_name: str, **fields: Any) -> list[dict[str, Any]]:
        """The log lines of one event whose fields are these."""
        found = []
        for line in self.log_text().splitlines():
            if f'"{event_name}"' not in line or not line.endswith("}"):
                continue
            entry = json.loads(line)
            if entry.get("event") == event_name and all(entry.get(name) == value for name, value in fields.items()):
                found.append(entry)
        return found

    def metric(self, name: str, **labels: str) -> float:
        """The value of one sample now; 0 when there is none."""
        wanted = name + ("{" + ",".join(f'{key}="{value}"' for key, value in labels.items()) + "}" if labels else "")
        for line in requests.get(self.metrics_url, timeout=5).text.splitlines():
            sample, _, value = line.rpartition(" ")
            if sample == wanted:
                return float(value)
        return 0.0
