"""Lanes over the session's services; a test that kills a service starts its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import create_topic
from tests.relay.lanes import Lanes


@pytest.fixture
def lanes(kafka_bootstrap: str, fresh_database: str, tmp_path: Path) -> Iterator[Lanes]:
    """Three lanes and their topic; relays started by them are ended."""
    topic = create_topic(kafka_bootstrap, prefix="outcomes", partitions=3)
    made = Lanes(kafka_bootstrap, fresh_database, topic, count=3, folder=tmp_path)
    made.create()
    yield made
    made.stop_all()
