"""The text of the broker's configuration files, from values only.

Rule: every path in them is relative to the broker's working folder ``<data>/kafka``.  A property file is Latin-1,
and the broker splits ``log.dirs`` at commas, so an absolute path of a user could not be written down safely.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from onceflow.embedded.ports import HOST

LOG_FOLDER = "log"
BROKER_LOG = "../logs/broker.log"
CLIENT_LISTENER = "CLIENT"
CONTROLLER_LISTENER = "CONTROLLER"
_PLAIN_FIRST, _PLAIN_LAST = 0x20, 0x7E

# A broker that only waits for its turn on a busy machine must not be fenced: while it has no leader, a committed
# transaction whose markers are still to be written is lost (docs/decisions/0016).  So the session is long, and after
# kill -9 nobody waits for its end, because the former self is fenced first.
_SESSION = {
    "broker.session.timeout.ms": "9000",
    "broker.heartbeat.interval.ms": "300",
}

# A controller without its broker fences it at once.
_FENCING = {
    "process.roles": "controller",
    "broker.session.timeout.ms": "100",
    "broker.heartbeat.interval.ms": "50",
}
_OF_BROKERS = ("advertised.listeners", "inter.broker.listener.name")

# KIP-848 members: the client may not set these, they live here.  A killed member's partitions move after 6 s.
_GROUPS = {
    "group.consumer.min.heartbeat.interval.ms": "300",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.session.timeout.ms": "2000",
    "group.consumer.session.timeout.ms": "6000",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    # A folder that nobody started for some weeks still knows how far the relay had come.
    "offsets.retention.minutes": "525600",
}

_TRANSACTIONS = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}

_ONE_NODE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "log.dirs": LOG_FOLDER,
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "4",
    "auto.create.topics.enable": "false",
    # Twice a second is the default: a record that says nothing costs a tenth of a core, and has no other broker to tell it to.
    "metadata.max.idle.interval.ms": "10000",
    "log.cleaner.dedupe.buffer.size": "2097152",
}


@dataclass(frozen=True, slots=True)
class ExtraListener:
    """A further listener on 127.0.0.1, for example for a proxy that stands between one client and the broker.

    Args:
        name: capital letters; the broker's own are ``CLIENT`` and ``CONTROLLER``.
        advertised_port: the port that the broker tells clients of this listener; the proxy's, or None for its own.
        protocol: Kafka's security protocol; certificates and login of another one than ``PLAINTEXT`` are further
            properties of the broker.
    """

    name: str
    advertised_port: int | None = None
    protocol: str = "PLAINTEXT"

    def __post_init__(self) -> None:
        assert self.name.isalpha()
        assert self.name.isupper(), "a listener's name has capital letters only"
        assert self.name not in (CLIENT_LISTENER, CONTROLLER_LISTENER), "this listener exists already"


def broker_properties(
    ports: Mapping[str, int], *, listeners: Sequence[ExtraListener] = (), extra: Mapping[str, str]
) -> dict[str, str]:
    """Return all properties of the broker.

    Args:
        ports: one per listener name, with ``CLIENT`` and ``CONTROLLER``.
        listeners: further ones.
        extra: what the caller wants otherwise; it wins.
    """
    names = [CLIENT_LISTENER, *(listener.name for listener in listeners)]
    advertised = {listener.name: listener.advertised_port or ports[listener.name] for listener in listeners}
    advertised[CLIENT_LISTENER] = ports[CLIENT_LISTENER]
    protocols = {CLIENT_LISTENER: "PLAINTEXT", **{listener.name: listener.protocol for listener in listeners}}
    protocols[CONTROLLER_LISTENER] = "PLAINTEXT"
    controller = ports[CONTROLLER_LISTENER]
    network = {
        "listeners": ",".join(f"{name}://{HOST}:{ports[name]}" for name in [*names, CONTROLLER_LISTENER]),
        "advertised.listeners": ",".join(f"{name}://{HOST}:{advertised[name]}" for name in names),
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in protocols.items()),
        "inter.broker.listener.name": CLIENT_LISTENER,
        "controller.listener.names": CONTROLLER_LISTENER,
        "controller.quorum.voters": f"1@{HOST}:{controller}",
    }
    return {**_ONE_NODE, **_SESSION, **_GROUPS, **_TRANSACTIONS, **network, **extra}


def fencing_properties(ports: Mapping[str, int]) -> dict[str, str]:
    """Return the properties of the same node as a controller only; see ``former_self``."""
    controller = {
        "listeners": f"{CONTROLLER_LISTENER}://{HOST}:{ports[CONTROLLER_LISTENER]}",
        "listener.security.protocol.map": f"{CONTROLLER_LISTENER}:PLAINTEXT",
    }
    whole = {**broker_properties(ports, extra={}), **controller, **_FENCING}
    return {name: value for name, value in whole.items() if name not in _OF_BROKERS}


def property_text(properties: Mapping[str, str]) -> str:
    """Return the property file: backslashes and letters outside of ASCII are escaped as Java reads them."""
    return "".join(f"{name}={_escaped(value)}\n" for name, value in properties.items())


def log4j_text(file: str = BROKER_LOG) -> str:
    """Return the logging configuration: one file that is rolled at 10 MB, three old ones kept."""
    return property_text(
        {
            "rootLogger.level": "INFO",
            "rootLogger.appenderRef.file.ref": "FILE",
            "appender.file.type": "RollingFile",
            "appender.file.name": "FILE",
            "appender.file.fileName": file,
            "appender.file.filePattern": f"{file}.%i",
            "appender.file.layout.type": "PatternLayout",
            "appender.file.layout.pattern": "%d{ISO8601} %p %c{1} %m%n",
            "appender.file.policies.type": "Policies",
            "appender.file.policies.size.type": "SizeBasedTriggeringPolicy",
            "appender.file.policies.size.size": "10MB",
            "appender.file.strategy.type": "DefaultRolloverStrategy",
            "appender.file.strategy.max": "3",
        }
    )


def _escaped(value: str) -> str:
    units = value.replace("\\", "\\\\").replace("\n", "\\n").encode("utf-16-be")
    codes = [int.from_bytes(units[index : index + 2], "big") for index in range(0, len(units), 2)]
    return "".join(chr(code) if _PLAIN_FIRST <= code <= _PLAIN_LAST else f"\\u{code:04x}" for code in codes)
