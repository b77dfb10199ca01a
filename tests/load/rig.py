"""One running ``onceflow up`` with everything that was ever sent to it, and the checker's verdict on demand.

Rule: the system is reached only as an outsider reaches it: through the ready file, HTTP, the raw topics and tables.
What a test sends or plants is kept here, so that each verdict is about everything since the beginning.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import psycopg

from onceflow.demo.running_system import Ready, RunningSystem
from onceflow.settings import environment_for_child, process_environment
from tests.checker.judge import Verdict, judge, judge_pair
from tests.checker.reading import System, take_snapshot
from tests.checker.snapshot import Delivery, Position, Snapshot
from tests.checker.violation import Violation
from tests.checker.waiting import wait_for
from tests.load.counted_payments import EFFECT_TABLE
from tests.load.steady_load import SteadyLoad

HANDLERS_FILE = Path(__file__).with_name("counted_payments.py")
PER_SECOND = 150.0
PART_READY_SECONDS = 60.0
PART_STOP_SECONDS = 40.0
SEED_STEP = 100_000
"""Loads of one session must not share events."""


class ExtraPart:
    """A second processor or relay beside those of ``up``, under the same settings; a context manager."""

    def __init__(self, command: str, *, environment: Mapping[str, str], folder: Path, name: str) -> None:
        self.state_file = folder / f"{name}.state.json"
        self.log = folder / f"{name}.log"
        self._argv = [sys.executable, "-P", "-m", "onceflow", command]
        self._environment = environment
        self._folder = folder
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it is ready."""
        self.state_file.unlink(missing_ok=True)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self._argv,
                env=dict(self._environment),
                cwd=self._folder,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )
        wait_for(self.state_file.exists, limit_seconds=PART_READY_SECONDS, what=f"{self.log.name}: ready")

    def stop(self) -> int:
        """End it by SIGTERM; return its exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)
        self.process.terminate()
        try:
            return self.process.wait(PART_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise

    def kill(self) -> None:
        """End it by SIGKILL; harmless when it has ended."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class Rig:
    """The system under test.

    Args:
        folder: for its data and logs; must be new.
        seed: of everything random; printed by the fixture.
        settings: overrides by ``section.name``.
    """

    def __init__(self, folder: Path, *, seed: int, settings: Mapping[str, Any] | None = None) -> None:
        self.folder = folder
        self.seed = seed
        self.deliveries: list[Delivery] = []
        self.planted: dict[Position, frozenset[str]] = {}
        self.canaries: list[str] = []
        self._previous: Snapshot | None = None
        self._told: set[Violation] = set()
        self._loads = 0
        self._extras = 0
        cache = process_environment().get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
        self._overrides = {"runtime.cache_folder": f"{cache}/onceflow"} | dict(settings or {})
        (folder / HANDLERS_FILE.name).write_bytes(HANDLERS_FILE.read_bytes())
        self._handlers = f"{HANDLERS_FILE.stem}:handlers"
        environment = environment_for_child(process_environment(), {}, overrides=self._overrides)
        self.system = RunningSystem(folder, environment=environment, handlers=self._handlers)

    def start(self) -> None:
        """Start everything and make the table that the handlers write to."""
        ready = self.system.start()
        schema = EFFECT_TABLE.partition(".")[0]
        with psycopg.connect(ready.database_url) as connection:
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
            connection.execute(f"CREATE TABLE IF NOT EXISTS {EFFECT_TABLE} (event_id text NOT NULL)")

    def stop(self) -> None:
        """Stop everything."""
        self.system.stop()

    @property
    def ready(self) -> Ready:
        """The ready file as it is now."""
        return self.system.ready

    def target(self) -> tuple[str, str]:
        """Where webhooks go."""
        ready = self.ready
        return ready.webhook_url, ready.webhook_secret

    @contextmanager
    def load(self, per_second: float = PER_SECOND) -> Iterator[SteadyLoad]:
        """Webhooks on their way while the block runs; afterwards all are answered, and kept for the verdict."""
        self._loads += 1
        load = SteadyLoad(self.target, seed=self.seed + self._loads * SEED_STEP, per_second=per_second)
        try:
            with load:
                load.wait_for_answers(20)
                yield load
        finally:
            self.deliveries += load.deliveries()
        assert load.sender.given_up == [], "webhooks that were never answered with 200"

    def signal(self, part: str, number: signal.Signals) -> int:
        """Send a signal to a part of ``up``; return its process id."""
        pid = self.ready.pids[part]
        os.kill(pid, number)
        return pid

    def identity(self) -> dict[str, str]:
        """The data folder's deployment id and secrets."""
        found: dict[str, str] = json.loads((self.system.data_folder / "identity.json").read_text())
        return found

    def part(self, command: str, **overrides: Any) -> ExtraPart:
        """A further part with the settings of those of ``up``; keyword arguments ``section__name`` override them."""
        self._extras += 1
        name = f"{command}-{self._extras}"
        ready, identity = self.ready, self.identity()
        settings = {
            **self._overrides,
            "deployment.id": identity["deployment"],
            "stripe.account": "acct_embedded",
            "attestation.keys": f"local={identity['attestation_secret']}",
            "database.url": ready.database_url,
            "kafka.bootstrap.servers": ready.kafka_bootstrap,
            "processor.handlers": self._handlers,
            "logs.format": "json",
            "runtime.state_file": self.folder / f"{name}.state.json",
            "runtime.parent_pid": os.getpid(),
        }
        settings |= {key.replace("__", "."): value for key, value in overrides.items()}
        environment = environment_for_child(process_environment(), {}, overrides=settings)
        return ExtraPart(command, environment=environment, folder=self.folder, name=name)

    def checker_system(self) -> System:
        """Where the checker reads."""
        ready = self.ready
        return System(
            bootstrap=ready.kafka_bootstrap,
            database_url=ready.database_url,
            event_topic=ready.event_topic,
            outcome_topic=ready.outcome_topic,
            log_folder=self.system.data_folder / "logs",
            effect_table=EFFECT_TABLE,
        )

    def verdict(self) -> Verdict:
        """Wait until the system is quiet and judge everything since the beginning, against the verdict before too.

        What an earlier verdict has told is not told again, so that one fault fails one test.
        """
        began = time.monotonic()
        canaries = [self.ready.webhook_secret, self.identity()["attestation_secret"], *self.canaries]
        snapshot = take_snapshot(self.checker_system(), self.deliveries, planted=self.planted, canaries=canaries)
        verdict = judge(snapshot)
        if self._previous is not None:
            verdict = Verdict((*verdict.violations, *judge_pair(self._previous, snapshot)), verdict.counts)
        self._previous = snapshot
        fresh = tuple(violation for violation in verdict.violations if violation not in self._told)
        self._told |= set(fresh)
        verdict = Verdict(fresh, verdict.counts)
        print(f"judged within {time.monotonic() - began:.1f} s: {verdict.counts}")
        return verdict
