"""One bridge over the session's Kafka, for every test that only talks to it over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import create_topic
from tests.producer.bridge_process import BridgeProcess


@pytest.fixture(scope="package")
def bridge(kafka_bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BridgeProcess]:
    topic = create_topic(kafka_bootstrap, prefix="bridge")
    folder = tmp_path_factory.mktemp("bridge")
    with BridgeProcess(folder, kafka={"bootstrap.servers": kafka_bootstrap}, topic=topic) as running:
        yield running


@pytest.fixture(scope="package")
def two_endpoints(kafka_bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BridgeProcess]:
    """A bridge with two endpoints, the secret of one of them being rolled."""
    topic = create_topic(kafka_bootstrap, prefix="endpoints")
    folder = tmp_path_factory.mktemp("endpoints")
    secrets = "shop=whsec_old,shop=whsec_new,other=whsec_other"
    kafka = {"bootstrap.servers": kafka_bootstrap}
    with BridgeProcess(folder, kafka=kafka, topic=topic, secrets=secrets) as running:
        yield running


@pytest.fixture(scope="package")
def quick_bridge(kafka_bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BridgeProcess]:
    """A bridge whose read deadline is half a second."""
    topic = create_topic(kafka_bootstrap, prefix="quick")
    folder = tmp_path_factory.mktemp("quick")
    kafka = {"bootstrap.servers": kafka_bootstrap}
    with BridgeProcess(folder, kafka=kafka, topic=topic, read_deadline_seconds=0.5) as running:
        yield running


@pytest.fixture
def slow_rate(kafka_bootstrap: str, tmp_path: Path) -> Iterator[BridgeProcess]:
    """A bridge that answers five invalid requests of one address, then hardly any."""
    topic = create_topic(kafka_bootstrap, prefix="rate")
    kafka = {"bootstrap.servers": kafka_bootstrap}
    with BridgeProcess(tmp_path, kafka=kafka, topic=topic, rate_per_second=0.01, rate_burst=5) as running:
        yield running
