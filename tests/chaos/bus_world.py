"""The running system with a second input: a topic on which a gateway of somebody else puts what Stripe sent, with its header.

Rule: the gateway keeps neither order nor keys, and repeats itself; the checker reads its topic as it reads the bridge's own.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from onceflow.demo.delivery import signature_header
from tests.chaos.sending import produce_all
from tests.chaos.world import World
from tests.checker.reading import ForeignTopic, System
from tests.checker.snapshot import Position
from tests.checker.topics import shown_partition

BUS = "payments.webhooks"
BUS_PARTITIONS = 3
BUS_SECRET = "whsec_of_the_gateway"
ACCOUNT = "acct_embedded"
ANSWER_SECONDS = 15.0


class BusWorld(World):
    """See the module."""

    def __init__(self, folder: Path, *, seed: int) -> None:
        super().__init__(folder, seed=seed)
        gateway = {
            "topic": BUS,
            "format": "stripe-json",
            "trust": "stripe-signature",
            "secrets": [f"gateway={BUS_SECRET}"],
        }
        self._settings["inputs"] = [{"topic": self.topics.events[0]}, gateway]
        self.canaries.append(BUS_SECRET)

    def _prepare(self) -> None:
        super()._prepare()
        client = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        client.create_topics([NewTopic(BUS, BUS_PARTITIONS, 1)])[BUS].result(ANSWER_SECONDS)

    def checker_system(self) -> System:
        """Where the checker reads: both topics."""
        return replace(super().checker_system(), foreign=(ForeignTopic(BUS, ACCOUNT),))

    def gateway_record(self, body: bytes, **changes: Any) -> dict[str, Any]:
        """Return the record that the gateway makes of a webhook, as arguments of ``Producer.produce``."""
        signed = signature_header(body, BUS_SECRET, at=int(time.time()))
        return {"value": body, "headers": [("Stripe-Signature", signed.encode())]} | changes

    def put(self, records: list[dict[str, Any]]) -> list[Position]:
        """Put records on the gateway's topic; return their places as the checker names them."""
        placed = produce_all(Producer({"bootstrap.servers": self.bootstrap}), BUS, records)
        return [(shown_partition(1, number), offset) for number, offset in placed]
