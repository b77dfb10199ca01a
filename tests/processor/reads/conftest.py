"""Readers on a real PostgreSQL against the simulator, and what they are asked for."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest
from prometheus_client import CollectorRegistry
from psycopg import Connection
from psycopg.rows import dict_row

from onceflow_processor.attempt import limits_setter
from onceflow_processor.operations.senders.stripe_gateway import StripeAccess
from onceflow_processor.reads.metrics import ReadMetrics
from onceflow_processor.reads.read_store import ReadStore, ReadStoreSettings
from onceflow_processor.reads.reader import Reader
from onceflow_processor.reads.stripe_reads import StripeReads
from onceflow_schemas.object_reads import ReadKind, ReadNeed
from onceflow_schemas.sql import queries
from onceflow_simulator import Simulator
from tests.processor.operations.operator_process import OperationsRoad
from tests.processor.processor_process import wait_until

PLATFORM, CONNECTED, SHOP = "acct_simulator", "acct_C1", "acct_test"
"""The simulator's own account, one that is connected to it, and what the events of a bench call the first."""
VERSION = "2026-10-28.endive"


@dataclass
class Desk:
    """A database in which reads are asked for."""

    url: str
    stripe_url: str
    api_key: str
    running: list[Reader] = field(default_factory=list)
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)

    def __post_init__(self) -> None:
        self.metrics = ReadMetrics(self.registry)

    def ask(self, *needs: ReadNeed) -> None:
        """Ask as a batch does."""
        with psycopg.connect(self.url) as connection:
            given = {
                "accounts": [need.account for need in needs],
                "modes": [need.mode for need in needs],
                "kinds": [need.kind.value for need in needs],
                "object_ids": [need.object_id for need in needs],
                "paths": [need.path for need in needs],
                "api_versions": [need.api_version for need in needs],
            }
            connection.execute(queries("object_reads")["ask"], given)

    def open(self) -> Connection[Any]:
        return psycopg.connect(self.url)

    def open_as_reader(self) -> Connection[Any]:
        return psycopg.connect(self.url, application_name="reader")

    def settings(self, **given: Any) -> ReadStoreSettings:
        with psycopg.connect(self.url) as connection:
            set_limits = limits_setter(
                lock_timeout_ms=5_000, transaction_ms_max=10_000, server_version=connection.info.server_version
            )
        known: dict[str, Any] = {
            "owner": f"reader-{uuid.uuid4().hex[:6]}",
            "accounts": (PLATFORM, CONNECTED, SHOP),
            "lease_seconds": 30.0,
            "requests_per_second": 1_000.0,
            "burst": 1_000,
        }
        return ReadStoreSettings(mode="test", set_limits=set_limits, **{**known, **given})

    def reads(self, *, api_key: str | None = None, base: str | None = None, seconds: float = 5.0) -> StripeReads:
        accesses = [
            StripeAccess(account=account, mode="test", api_key=api_key or self.api_key, connected=account == CONNECTED)
            for account in (PLATFORM, CONNECTED, SHOP)
        ]
        return StripeReads(
            accesses,
            api_base=base or self.stripe_url,
            api_version=VERSION,
            connect_seconds=seconds,
            total_seconds=seconds,
        )

    def reader(self, reads: StripeReads | None = None, **settings: Any) -> Reader:
        """A reader that is not started; ended with the test."""
        made = Reader(
            reads or self.reads(),
            settings=self.settings(**settings),
            open_connection=self.open_as_reader,
            metrics=self.metrics,
        )
        self.running.append(made)
        return made

    def turn(self, reads: StripeReads | None = None, **settings: Any) -> int:
        """One round of a reader; how many reads were in hand."""
        with self.open() as connection, asyncio.Runner() as loop:
            used = reads or self.reads()
            store = ReadStore(connection, settings=self.settings(**settings))
            store.open()
            count = self.reader(used, **settings).turn(store, loop)
            loop.run(used.close())
            return count

    def rows(self) -> dict[str, dict[str, Any]]:
        """The reads by object; ``due_seconds`` is None for never."""
        query = (
            "SELECT *, extract(epoch FROM nullif(due_at, 'infinity') - clock_timestamp())::float8 AS due_seconds"
            " FROM (SELECT account, kind, object_id, path, state, tries, parts, fence, lease_owner, result, body, code, detail,"
            " http_status, nullif(due_at, 'infinity') AS due_at, asked_at, begun_at, read_at, stripe_at"
            " FROM onceflow.object_read) AS read"
        )
        with psycopg.connect(self.url, row_factory=dict_row) as connection:
            return {row["object_id"]: row for row in connection.execute(query.encode()).fetchall()}

    def change(self, query: str, *parameters: Any) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(query.encode(), parameters)

    def make_due(self) -> None:
        self.change("UPDATE onceflow.object_read SET due_at = clock_timestamp() WHERE state = 'asked'")
        self.change("UPDATE onceflow.account_budget SET blocked_until = NULL")

    def wait_for(self, states: Sequence[str], **given: Any) -> None:
        wait_until(lambda: {row["state"] for row in self.rows().values()} <= set(states), f"all are {states}", **given)

    def value(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(name, labels) or 0.0


def object_need(id: str, *, account: str = PLATFORM, kind: str = "customers") -> ReadNeed:
    return ReadNeed(account, "test", ReadKind.OBJECT, id, f"/v1/{kind}/{id}", VERSION)


@pytest.fixture(scope="package")
def simulator_process() -> Iterator[Simulator]:
    with Simulator(seed=8) as running:
        yield running


@pytest.fixture
def simulator(simulator_process: Simulator) -> Iterator[Simulator]:
    simulator_process.reset()
    yield simulator_process
    assert simulator_process.state()["bugs"] == []


@pytest.fixture
def road(kafka_bootstrap: str, fresh_database: str, tmp_path: Path) -> OperationsRoad:
    """The whole road, with workers of operations that read."""
    made = OperationsRoad(kafka_bootstrap, fresh_database, tmp_path)
    made.prepare()
    return made


@pytest.fixture
def desk(fresh_database: str, simulator: Simulator) -> Iterator[Desk]:
    made = Desk(fresh_database, simulator.url, simulator.api_key)
    yield made
    for reader in made.running:
        reader.close()
