"""A simulator for one test or one program: started, steered, ended.

Rule: it is a process of its own, as Stripe is, so that a test may kill or stop its own parts without touching it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from onceflow_simulator.client import SimulatorClient, wait_until

START_SECONDS_MAX = 30.0
STOP_SECONDS_MAX = 10.0


class Simulator(SimulatorClient):
    """A running simulator, as a context manager.

    Args:
        seed: of ids, faults and deliveries; None takes a new one.
        start: let the clock stand at this time (seconds since 1970); None follows the real clock.
        port: 0 takes a free one.
        knobs: settings to begin with, such as ``latency_ms=20``.

    Attributes:
        api_key: a key of the platform in test mode.
        secret: the webhook secret of an endpoint that was given at the start.
        pid: of the process.
    """

    def __init__(self, *, seed: int | None = None, start: float | None = None, port: int = 0, **knobs: Any) -> None:
        super().__init__("")
        self._arguments = ["--port", str(port), "--knobs", json.dumps(knobs), "--parent-pid", str(os.getpid())]
        if seed is not None:
            self._arguments += ["--seed", str(seed)]
        if start is not None:
            self._arguments += ["--start", str(start)]
        self._process: subprocess.Popen[bytes] | None = None
        self.api_key = ""
        self.secret = ""
        self.pid = 0

    def __enter__(self) -> Self:
        """Start it and wait until it answers.

        Raises:
            TimeoutError: it does not in time.
            AssertionError: it ended instead.
        """
        with tempfile.TemporaryDirectory(prefix="onceflow-simulator-") as folder:
            state_file = Path(folder) / "state.json"
            command = [sys.executable, "-m", "onceflow_simulator", "--state-file", str(state_file), *self._arguments]
            self._process = process = subprocess.Popen(command)  # noqa: S603 - our own interpreter and module
            try:
                wait_until(
                    lambda: state_file.exists() or process.poll() is not None,
                    "the simulator is ready",
                    timeout_seconds=START_SECONDS_MAX,
                )
                assert state_file.exists(), f"the simulator ended with exit code {process.returncode}"
                state = json.loads(state_file.read_text("utf-8"))
            except BaseException:
                self.stop()
                raise
        self.url, self.api_key, self.secret, self.pid = state["url"], state["api_key"], state["secret"], state["pid"]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> int:
        """End the process; its exit code."""
        process = self._process
        assert process is not None, "it was never started"
        process.terminate()
        try:
            return process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait(STOP_SECONDS_MAX)
