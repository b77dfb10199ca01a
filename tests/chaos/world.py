"""One running system for many faults: real services, each part a process with failpoints, a proxy on each connection.

Rule: the world knows everything that was ever sent to it and planted in it, so each verdict is about all of it.  After
a fault ``heal`` brings everything back by itself: proxies let pass, stopped processes go on, dead ones are started.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from onceflow.embedded import EmbeddedServices, postgres_server
from onceflow.embedded.broker_properties import ExtraListener
from onceflow.embedded.ports import choose_port
from onceflow.kafka_admin import KafkaAdmin
from onceflow.local_identity import LocalIdentity, local_identity
from onceflow.migrations import migrate
from onceflow.settings import environment_for_child, process_environment, user_cache_folder
from onceflow.settings_model import TopicSettings
from onceflow.topics import apply_topics, plan_from_settings
from tests.chaos.part import Part
from tests.chaos.part_process import ROOT
from tests.chaos.shifted_clock import CLOCK_SCRIPT, find_faketime
from tests.chaos.small_disk import SmallDisk
from tests.checker.judge import Verdict, judge, judge_pair
from tests.checker.reading import System, take_snapshot, wait_until_quiet
from tests.checker.snapshot import Delivery, Position, Snapshot
from tests.checker.violation import Violation
from tests.faults.kafka_proxy import KafkaProxy
from tests.faults.proxy import PostgresProxy
from tests.load.counted_payments import EFFECT_TABLE
from tests.load.steady_load import SteadyLoad

HANDLERS_FILE = Path(__file__).parents[1] / "load" / "counted_payments.py"
PER_SECOND = 80.0
SEED_STEP = 100_000
SETTLE_SECONDS = 60.0
LEASE_SECONDS = 2
ANSWER_DEADLINE_SECONDS = 3.0
COMMANDS = {"bridge": "bridge", "processor": "process", "relay": "relay"}
BROKER = {"group.consumer.session.timeout.ms": "3000", "group.consumer.max.session.timeout.ms": "60000"}
POSTGRES = {"log_min_messages": "log"}


class World:
    """See the module.

    Args:
        folder: for its data and logs; must be new.
        seed: of everything that is sent.
        settings: overrides by ``section.name`` for all parts.
        shifted_clock: PostgreSQL runs under libfaketime, where it is installed, and reads its shift from ``clock_file``.
        small_disk: PostgreSQL's folder is a small file system of its own, where this process may mount one.
    """

    commands: Mapping[str, str] = COMMANDS
    handlers = f"{HANDLERS_FILE.stem}:handlers"

    def __init__(
        self,
        folder: Path,
        *,
        seed: int,
        settings: Mapping[str, Any] | None = None,
        shifted_clock: bool = False,
        small_disk: bool = False,
    ) -> None:
        self.folder = folder
        self.disk = SmallDisk(folder / "data" / "postgres") if small_disk else None
        self.clock_file = folder / "clock" if shifted_clock and find_faketime() else None
        self.seed = seed
        self.deliveries: list[Delivery] = []
        self.planted: dict[Position, frozenset[str]] = {}
        self.canaries: list[str] = []
        self.parts: dict[str, Part] = {}
        self.extras: list[Part] = []
        self.brokers = {role: KafkaProxy(self._broker_of(role)) for role in self.commands}
        roles = [role for role in self.commands if role != "bridge"]
        self.databases = {role: PostgresProxy(target=self._database) for role in roles}
        self._settings = {
            "relay.lease_ttl_seconds": LEASE_SECONDS,
            "bridge.answer_deadline_seconds": ANSWER_DEADLINE_SECONDS,
            "bridge.read_deadline_seconds": 1.5,
            "processor.handler_deadline_seconds": 3,
            "processor.batch_seconds_max": 2,
            **(settings or {}),
        }
        self._loads = 0
        self._previous: Snapshot | None = None
        self._told: set[Violation] = set()
        self.load_now: SteadyLoad | None = None
        self.strangers: dict[str, str] = {}
        self.cache_folder = user_cache_folder()
        self.services = EmbeddedServices(
            data_dir=folder / "data",
            cache_dir=self.cache_folder,
            extra_broker_properties=BROKER,
            extra_postgres_settings=POSTGRES,
            kafka_listeners=[ExtraListener(role.upper(), proxy.port) for role, proxy in self.brokers.items()],
        )
        self.bridge_port = 0
        self.topics = TopicSettings()
        self.identity: LocalIdentity | None = None

    def start(self) -> None:
        """Start services and parts; returns when all are ready."""
        (self.folder / "logs").mkdir(parents=True)
        (self.folder / HANDLERS_FILE.name).write_bytes(HANDLERS_FILE.read_bytes())
        if self.disk is not None:
            self.disk.mount()
        with self._clock():
            self.services.start()
        # As late as can be: nobody listens on it until the bridge does, and other worlds choose ports too.
        self.bridge_port = choose_port(taken=[])
        self.identity = local_identity(self.folder / "data")
        self._prepare()
        for name in self.commands:
            self.parts[name] = self.part(name)
            self.parts[name].start()
        for part in self.parts.values():
            part.wait_ready()

    @contextmanager
    def _clock(self) -> Iterator[None]:
        """Let PostgreSQL be started under libfaketime: by a script that becomes the server, and no sooner.

        Whoever loads the library makes a semaphore of his own; the launcher is root, and the server is not.
        """
        module: Any = postgres_server
        former = module.find_program
        if self.clock_file is not None:
            if not self.clock_file.exists():
                self.clock_file.write_text("+0")
                self.clock_file.chmod(0o644)
            script = self.folder / "postgres-with-clock"
            script.write_text(
                CLOCK_SCRIPT.format(library=find_faketime(), clock=self.clock_file, server=former("postgres"))
            )
            script.chmod(0o755)
            module.find_program = lambda _name: script
        try:
            yield
        finally:
            module.find_program = former

    def stop(self) -> None:
        """End everything; what cannot end is killed."""
        for part in [*self.extras, *self.parts.values()]:
            with suppress(ProcessLookupError):
                part.thaw()
            part.kill()
        for name in ("kafka", "postgres"):
            with suppress(ProcessLookupError, AssertionError):
                self.service_signal(name, signal.SIGCONT)
        self.services.stop()
        for proxy in self.proxies():
            proxy.close()
        if self.disk is not None:
            self.disk.unmount()

    def proxies(self) -> list[KafkaProxy | PostgresProxy]:
        """All of them."""
        return [*self.brokers.values(), *self.databases.values()]

    # Parts

    def part(self, name: str, *, role: str | None = None, command: list[str] | None = None, **overrides: Any) -> Part:
        """Make a part with the settings of its role; keyword arguments ``section__name`` override them.

        ``role`` is that of ``name`` unless given; ``command`` are other arguments for ``onceflow``.
        """
        wanted = role or name
        return Part(
            name,
            arguments=command or [self.commands[wanted]],
            environment=lambda: self._environment(name, wanted, overrides),
            folder=self.folder,
        )

    def join(self, role: str, **overrides: Any) -> Part:
        """Start one more part of a role and wait until it is ready; ``heal`` ends it."""
        part = self.part(f"{role}-{len(self.extras) + 1}", role=role, **{"bridge__port": 0, **overrides})
        self.extras.append(part)
        part.start()
        part.wait_ready()
        return part

    def restart(self, name: str) -> None:
        """Start a part again that has ended, and wait until it is ready."""
        self.parts[name].start()
        self.parts[name].wait_ready()

    def _environment(self, name: str, role: str, overrides: Mapping[str, Any]) -> dict[str, str]:
        assert self.identity is not None
        settings: dict[str, Any] = {
            **self._settings,
            "deployment.id": self.identity.deployment,
            "stripe.account": "acct_embedded",
            "stripe.webhook_secret": f"local={self.identity.webhook_secret}",
            "attestation.keys": f"local={self.identity.attestation_secret}",
            "kafka.bootstrap.servers": f"127.0.0.1:{self.brokers[role].port}",
            "processor.handlers": self.handlers,
            "bridge.port": self.bridge_port,
            "logs.format": "json",
            "runtime.parent_pid": os.getpid(),
            "runtime.state_file": self.folder / f"{name}.state.json",
        }
        if role in self.databases:
            proxy = self.databases[role]
            settings["database.url"] = make_conninfo(self.database_url, host="127.0.0.1", port=proxy.port)
        settings |= {key.replace("__", "."): value for key, value in overrides.items()}
        environment = environment_for_child(process_environment(), {}, overrides=settings)
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), environment.get("PYTHONPATH", "")]))
        return environment

    # Services

    @property
    def database_url(self) -> str:
        """PostgreSQL itself, without a proxy."""
        return self.services.database_url

    @property
    def bootstrap(self) -> str:
        """The broker itself, without a proxy."""
        return self.services.kafka_bootstrap

    def _broker_of(self, role: str) -> Any:
        def target() -> tuple[str, int]:
            address = self.strangers.get(role) or self.services.kafka.address(role.upper())
            host, _, port = address.rpartition(":")
            return host, int(port)

        return target

    def _database(self) -> tuple[str, int]:
        parts = conninfo_to_dict(self.services.database_url)
        return str(parts["host"]), int(str(parts["port"]))

    def service_pid(self, name: str) -> int:
        """The process id of ``kafka`` or ``postgres``."""
        service = self.services.kafka if name == "kafka" else self.services.postgres
        assert service.pid is not None
        return service.pid

    def service_signal(self, name: str, number: signal.Signals) -> int:
        """Send a signal to ``kafka`` or ``postgres``; return its process id."""
        pid = self.service_pid(name)
        assert (self.services.kafka if name == "kafka" else self.services.postgres).poll() is None, f"{name} is dead"
        os.kill(pid, number)
        return pid

    def kill_service(self, name: str) -> int:
        """End ``kafka`` or ``postgres`` by SIGKILL; return the process id that it had."""
        service = self.services.kafka if name == "kafka" else self.services.postgres
        pid = self.service_signal(name, signal.SIGKILL)
        while service.poll() is None:
            os.sched_yield()
        return pid

    def start_service(self, name: str) -> None:
        """Start it again and wait until it answers."""
        service = self.services.kafka if name == "kafka" else self.services.postgres
        with self._clock():
            service.start()
            service.wait_ready()

    def _prepare(self) -> None:
        admin = KafkaAdmin({"bootstrap.servers": self.bootstrap})
        schema = EFFECT_TABLE.partition(".")[0]
        topics = self.topics.model_copy(update={"replication_factor": None, "min_insync_replicas": None})
        with psycopg.connect(self.database_url, autocommit=True) as connection:
            migrate(connection, progress=lambda _line: None)
            plan, wishes = plan_from_settings(topics, admin=admin, connection=connection)
            apply_topics(plan, wishes, admin=admin, connection=connection, outcome_topic=topics.outcomes)
            connection.execute(f"CREATE SCHEMA {schema}")
            connection.execute(f"CREATE TABLE {EFFECT_TABLE} (event_id text NOT NULL)")

    # Faults and healing

    def heal(self) -> None:
        """Bring everything back: see the module."""
        self.strangers.clear()
        for proxy in self.proxies():
            proxy.restore()
        for part in self.extras:
            part.thaw()
            if part.alive:
                part.stop()
        self.extras.clear()
        for name in ("kafka", "postgres"):
            service = self.services.kafka if name == "kafka" else self.services.postgres
            if service.poll() is None:
                self.service_signal(name, signal.SIGCONT)
            else:
                self.start_service(name)
        for part in self.parts.values():
            part.disarm()
            part.thaw()
            if not part.alive:
                part.start()
        for part in self.parts.values():
            part.wait_ready()

    def rows(self, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Read or write in the database, without a proxy."""
        with psycopg.connect(self.database_url, autocommit=True, connect_timeout=5) as connection:
            cursor = connection.execute(query, parameters or None)
            return cursor.fetchall() if cursor.description else []

    def value(self, query: str, *parameters: Any) -> Any:
        """The one value of a query."""
        return self.rows(query, *parameters)[0][0]

    # Load and verdict

    @property
    def webhook_url(self) -> str:
        """Of the first bridge; its port stays when it is started again."""
        return f"http://127.0.0.1:{self.bridge_port}/webhooks/stripe"

    @property
    def secret(self) -> str:
        """The secret that signs webhooks."""
        assert self.identity is not None
        return self.identity.webhook_secret

    def target(self) -> tuple[str, str]:
        """Where webhooks go."""
        return self.webhook_url, self.secret

    @property
    def load(self) -> SteadyLoad:
        """The load that runs now."""
        assert self.load_now is not None, "a load runs"
        return self.load_now

    @contextmanager
    def loaded(self, per_second: float = PER_SECOND) -> Iterator[SteadyLoad]:
        """Webhooks on their way while the block runs; afterwards all are answered, and kept for the verdict."""
        self._loads += 1
        load = SteadyLoad(self.target, seed=self.seed + self._loads * SEED_STEP, per_second=per_second)
        self.load_now = load
        try:
            with load:
                load.wait_for_answers(10)
                yield load
        finally:
            self.load_now = None
            self.deliveries += load.deliveries()
            self.note_bodies([one.request.body for one in load.sender.attempts if one.request.kind != "forged"])
        assert load.sender.given_up == [], "webhooks that were never answered with 200"

    def note_bodies(self, bodies: Sequence[bytes]) -> None:
        """Told of all that was signed and sent; a world with a Stripe of its own has it list these events."""

    def proved(self) -> str:
        """What a proof said of this world after it had settled, for the table; nothing where there is none."""
        return ""

    def checker_system(self) -> System:
        """Where the checker reads."""
        return System(
            bootstrap=self.bootstrap,
            database_url=self.database_url,
            event_topic=self.topics.events[0],
            outcome_topic=self.topics.outcomes,
            log_folder=self.folder / "logs",
            effect_table=EFFECT_TABLE,
        )

    def settle(self, limit_seconds: float = SETTLE_SECONDS) -> str | None:
        """Wait until everything is done; return why not, when the limit has passed."""
        return wait_until_quiet(self.checker_system(), limit_seconds=limit_seconds)

    def verdict(self, limit_seconds: float = SETTLE_SECONDS) -> Verdict:
        """Wait until the system is quiet and judge everything since the beginning; what was told is not told again."""
        assert self.identity is not None
        canaries = [self.secret, self.identity.attestation_secret, *self.canaries]
        snapshot = take_snapshot(
            self.checker_system(), self.deliveries, planted=self.planted, canaries=canaries, limit_seconds=limit_seconds
        )
        verdict = judge(snapshot)
        if self._previous is not None:
            verdict = Verdict((*verdict.violations, *judge_pair(self._previous, snapshot)), verdict.counts)
        self._previous = snapshot
        fresh = tuple(violation for violation in verdict.violations if violation not in self._told)
        self._told |= set(fresh)
        return Verdict(fresh, verdict.counts)
