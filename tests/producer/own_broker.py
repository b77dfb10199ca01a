"""A broker that a test may pause, kill and start again, on the same ports."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from onceflow.embedded.data_folder import DataFolder
from onceflow.embedded.kafka_broker import KafkaBroker


class OwnBroker:
    """One broker; every method leaves it in a state that the next one can go on from."""

    def __init__(self, broker: KafkaBroker) -> None:
        self._broker = broker

    @property
    def bootstrap(self) -> str:
        return self._broker.bootstrap

    def kill(self) -> None:
        pid = self._broker.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        while self._broker.poll() is None:
            os.sched_yield()

    def start(self) -> None:
        self._broker.start()
        self._broker.wait_ready()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stop it without closing its connections."""
        pid = self._broker.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)


@contextmanager
def own_broker(folder: Path, *, cache_dir: Path) -> Iterator[OwnBroker]:
    data = DataFolder(folder)
    data.claim()
    broker = KafkaBroker(data, cache_dir=cache_dir, progress=lambda _line: None)
    try:
        running = OwnBroker(broker)
        running.start()
        yield running
    finally:
        broker.stop()
        data.release()
