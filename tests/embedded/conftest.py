"""Services of these tests alone, since they are killed, and a warm cache."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from onceflow.embedded.data_folder import DataFolder
from onceflow.embedded.kafka_jars import KAFKA_VERSION, ensure_jars


@pytest.fixture(scope="session")
def jar_folder(cache_dir: Path) -> Path:
    """The folder of the user's cache with every jar in it; the very first run fetches them."""
    ensure_jars(cache_dir, progress=lambda _line: None)
    return cache_dir / "kafka" / KAFKA_VERSION


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[DataFolder]:
    """A claimed data folder."""
    claimed = DataFolder(tmp_path / "data")
    claimed.claim()
    yield claimed
    claimed.release()
