"""The system of ``onceflow up``: which parts there are, what each of them is told, and what the ready file says.

Rule: the parts see only what is written here.  Addresses and secrets of other installations, which may stand in the
environment or in a settings file of this folder, never reach them.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from onceflow.embedded import EmbeddedServices
from onceflow.embedded.ports import HOST, claim_ports, comes_free
from onceflow.local_identity import ACCOUNT, KEY_ID, LocalIdentity
from onceflow.settings import LoadedSettings, environment_for_child, process_environment
from onceflow.settings_model import INPUTS, TopicSettings
from onceflow.settings_sources import is_secret_setting
from onceflow.supervisor import ProcessPart
from onceflow_schemas.failure import Misconfigured

HANDLERS = "onceflow.examples.payments:handlers"
WEBHOOK_PATH = "/webhooks/stripe"
READY_VERSION = 1
PORT_GRACE_SECONDS = 2.0
"""How long a part of the last time may still hold its port."""

COMMANDS = {
    "bridge": "bridge",
    "processor": "process",
    "operator": "operate",
    "relay": "relay",
    "reconciler": "reconcile",
}
"""Part to command, in the order in which they are started and ended."""

SIMULATOR = "simulator"
RETRY_SECONDS = (1, 2, 4, 8, 15, 30, 60, 300, 1_800)
"""The simulator repeats webhooks sooner than Stripe does: nobody waits a minute for a bridge that was killed."""


@dataclass(frozen=True, slots=True)
class LocalSystem:
    """What the parts of one ``onceflow up`` have in common.

    Attributes:
        loaded: the user's settings; their Kafka and database are not used.
        live: ``--live`` was given.
        services: started.
        identity: of the data folder.
        ports: by name: ``bridge``, ``simulator``, and ``<part>_metrics``.
        folder: where ``up`` was started, for the user's modules.
        simulated: the simulator stands for Stripe; else the user's API key is used, if there is one.
    """

    loaded: LoadedSettings = field(repr=False)
    live: bool
    services: EmbeddedServices = field(repr=False)
    identity: LocalIdentity
    ports: Mapping[str, int]
    folder: Path
    simulated: bool = True

    @property
    def names(self) -> tuple[str, ...]:
        """The parts that are started: no operator or reconciler without a Stripe that they could call."""
        keyed = {"stripe.api_key", "stripe.api_keys"} & self.loaded.given.keys()
        ours = tuple(name for name in COMMANDS if name not in ("operator", "reconciler") or self.simulated or keyed)
        return (*ours, SIMULATOR) if self.simulated else ours

    @property
    def account(self) -> str:
        """Whose events come from here."""
        return self.loaded.settings.stripe.account or ACCOUNT

    @property
    def stripe_key(self) -> str:
        """An API key of the simulator; it takes any."""
        return "sk_live_simulator" if self.live else "sk_test_simulator"

    @property
    def stripe_url(self) -> str:
        """Where the simulator is."""
        return f"http://{HOST}:{self.ports[SIMULATOR]}"

    @property
    def topics(self) -> TopicSettings:
        """The topics for a single broker."""
        return self.loaded.settings.topics.model_copy(update={"replication_factor": None, "min_insync_replicas": None})

    @property
    def webhook_secrets(self) -> str:
        """The folder's own secret first, then those of the user (of ``stripe listen``, for instance)."""
        given = self.loaded.given.get("stripe.webhook_secret")
        own = self.identity.webhook_secret
        # A shell that was told this folder's own secret, to work with it by hand, gives it once more.
        others = [] if given is None else [one for one in str(given.value).split(",") if not one.strip().endswith(own)]
        return ",".join([f"local={own}", *others])

    def part(self, name: str) -> ProcessPart:
        """Return one of our services, or the simulator, as a part that can be started."""
        python = [sys.executable, "-P", "-m"]
        if name == SIMULATOR:
            arguments = [*python, "onceflow_simulator", *self._simulator_arguments()]
        else:
            arguments = [*python, "onceflow", COMMANDS[name], *(["--live"] if self.live else [])]
        return ProcessPart(
            name,
            arguments=arguments,
            environment=lambda: self.environment(name),
            folder=self.folder,
            state_file=self.state_file(name),
            log=self.services.folder.logs / f"{name}.log",
        )

    def state_file(self, name: str) -> Path:
        """Where a part says that it is ready."""
        return self.services.folder.root / f"{name}.state.json"

    def _simulator_arguments(self) -> list[str]:
        given = {
            "--port": self.ports[SIMULATOR],
            "--state-file": self.state_file(SIMULATOR),
            "--account": self.account,
            "--knobs": json.dumps({"retry_seconds": RETRY_SECONDS}),
            "--parent-pid": os.getpid(),
        }
        return [str(text) for pair in given.items() for text in pair]

    def join_simulator(self) -> None:
        """Have a simulator that was just started send its events to the bridge.

        Not by its arguments: the secret would stand in the list of processes.

        Raises:
            OSError, SimulatorRefused: it did not take it.
        """
        from onceflow_simulator import SimulatorClient  # noqa: PLC0415 - only where there is one

        url = f"http://{HOST}:{self.ports['bridge']}{WEBHOOK_PATH}"
        client = SimulatorClient(self.stripe_url)
        client.add_webhook(url, secrets=[self.identity.webhook_secret], livemode=self.live)

    def environment(self, name: str) -> dict[str, str]:
        """Return the whole environment of a part."""
        if name == SIMULATOR:
            return environment_for_child(process_environment(), {}, overrides={})
        overrides = self._common() | {
            "stripe.webhook_secret": self.webhook_secrets,
            "bridge.port": self.ports["bridge"],
            "metrics.port": self.ports[f"{name}_metrics"],
            "logs.format": "json",
            "runtime.parent_pid": os.getpid(),
            "runtime.state_file": self.state_file(name),
        }
        return environment_for_child(process_environment(), self.loaded.given, overrides=overrides)

    def environment_beside(self) -> dict[str, str]:
        """Return the variables with which a command that is started by hand works on this system, on ports of its own.

        They hold this system's secrets, those of its inputs among them, and none that the user gave for anything else.
        """
        given = {
            name: value for name, value in self.loaded.given.items() if name == INPUTS or not is_secret_setting(name)
        }
        overrides = self._common() | {
            "stripe.webhook_secret": f"{KEY_ID}={self.identity.webhook_secret}",
            "bridge.port": 0,
            "metrics.port": 0,
            # There is one broker, whatever the user's own cluster has.
            "topics.replication_factor": None,
            "topics.min_insync_replicas": None,
        }
        return environment_for_child({}, given, overrides=overrides)

    def _common(self) -> dict[str, Any]:
        """Return what all parts are told, whoever starts them."""
        settings = self.loaded.settings
        common: dict[str, Any] = {
            "deployment.id": settings.deployment.id or self.identity.deployment,
            "deployment.profile": "dev",
            "stripe.account": self.account,
            "database.url": self.services.database_url,
            "kafka.bootstrap.servers": self.services.kafka_bootstrap,
            "processor.handlers": settings.processor.handlers or HANDLERS,
        }
        if "attestation.keys" not in self.loaded.given:
            common["attestation.keys"] = f"{KEY_ID}={self.identity.attestation_secret}"
        if self.live:
            common["stripe.mode"] = "live"
        if self.simulated:
            # Nobody's real key reaches a simulated Stripe.
            common |= {"stripe.api_base": self.stripe_url, "stripe.api_key": self.stripe_key, "stripe.api_keys": None}
        return common

    def ready(self, states: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """Return the content of the ready file.

        Args:
            states: what each part says about itself, by name.
        """
        stripe = {"stripe_api_base": self.stripe_url, "stripe_api_key": self.stripe_key} if self.simulated else {}
        return {
            "version": READY_VERSION,
            "webhook_url": states["bridge"]["url"] + WEBHOOK_PATH,
            "webhook_secret": self.identity.webhook_secret,
            "kafka_bootstrap": self.services.kafka_bootstrap,
            "database_url": self.services.database_url,
            "event_topic": self.topics.events[0],
            "outcome_topic": self.topics.outcomes,
            **stripe,
            "environment": self.environment_beside(),
            "metrics_urls": {name: state["metrics_url"] for name, state in states.items() if "metrics_url" in state},
            "pids": {name: state["pid"] for name, state in states.items()},
        }


def claim_all_ports(services: EmbeddedServices, *, bridge_port: int | None) -> dict[str, int]:
    """Return a port for the bridge and for each part's metrics: those of the last time, as long as they are free.

    Args:
        services: with a claimed folder.
        bridge_port: the user's choice; None or 0 for the remembered one.
    """
    names = ["bridge", SIMULATOR, *(f"{name}_metrics" for name in COMMANDS)]
    ports = claim_ports(services.folder.root / "ports.json", names, grace_seconds=PORT_GRACE_SECONDS)
    return ports | ({"bridge": bridge_port} if bridge_port else {})


def require_bridge_port(loaded: LoadedSettings) -> None:
    """Refuse a port of the user's choice that somebody else listens on, before anything is started for it.

    Raises:
        Misconfigured: ``port_in_use``.
    """
    bridge = loaded.settings.bridge
    if "bridge.port" not in loaded.given or bridge.port == 0:
        return
    if not comes_free(bridge.port, host=bridge.host, within_seconds=PORT_GRACE_SECONDS):
        raise Misconfigured("port_in_use", f"cannot listen on {bridge.host} port {bridge.port}: it is in use")


def prepare(system: LocalSystem, *, say: Callable[[str], None]) -> None:
    """Bring the schema, the topics and the lanes to this release; harmless when they are."""
    from onceflow.database import session  # noqa: PLC0415 - only a start pays for it
    from onceflow.kafka_admin import KafkaAdmin  # noqa: PLC0415
    from onceflow.migrations import migrate  # noqa: PLC0415
    from onceflow.topics import apply_topics, plan_from_settings  # noqa: PLC0415

    admin = KafkaAdmin({"bootstrap.servers": system.services.kafka_bootstrap})
    with session(system.services.database_url, role="up") as connection:
        migrate(connection, progress=say)
        inputs = system.loaded.settings.input_topics
        plan, wishes = plan_from_settings(
            system.topics, admin=admin, connection=connection, inputs=inputs, makes_foreign=True
        )
        outcome_topic = system.topics.outcomes
        apply_topics(plan, wishes, admin=admin, connection=connection, outcome_topic=outcome_topic, progress=say)
