"""Which rights in Kafka each part needs: values in, values out.

Rule: the list is exact.  A right that no request of ours asks for is not in it, and a test runs the whole road with
these rights alone.  Kafka's own implications are used: READ and WRITE include DESCRIBE, ALTER_CONFIGS includes
DESCRIBE_CONFIGS, and WRITE on a topic lets an idempotent producer in.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from onceflow.kafka_names import processor_group, reconciler_group, relay_group, replay_group, transactional_id
from onceflow.settings_model import Settings

Role = Literal["bridge", "processor", "relay", "worker", "reconciler", "operator"]
ResourceType = Literal["topic", "group", "transactional_id"]
Operation = Literal["READ", "WRITE", "CREATE", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"]

ROLES: tuple[Role, ...] = ("bridge", "processor", "relay", "worker", "reconciler", "operator")


@dataclass(frozen=True, slots=True)
class AclRule:
    """Rights of one principal on one resource.

    Args:
        role: the part that works under the principal; ``worker`` is ``onceflow operate``, ``operator`` is
            whoever runs ``onceflow topics``.
        principal: in Kafka's form, such as ``User:bridge``.
        resource_type: ``topic``, ``group`` or ``transactional_id``.
        pattern_type: always ``literal``: no right reaches a resource that is not named.
        name: of the resource.
        operations: in Kafka's names.
        why: what would not work without them.
    """

    role: Role
    principal: str
    resource_type: ResourceType
    pattern_type: Literal["literal"]
    name: str
    operations: tuple[Operation, ...]
    why: str


@dataclass(frozen=True, slots=True)
class _Need:
    resource_type: ResourceType
    name: str
    operations: tuple[Operation, ...]
    why: str


def acl_rules(settings: Settings, *, principals: Mapping[Role, str]) -> tuple[AclRule, ...]:
    """Return the rights of all parts, by role in the order of the road.

    Args:
        settings: with a deployment id.
        principals: instead of ``User:<role>``.
    """
    needs: Mapping[Role, Iterable[_Need]] = {
        "bridge": _bridge(settings),
        "processor": _processor(settings),
        "relay": _relay(settings),
        "worker": _outcome_lanes(settings),
        "reconciler": _reconciler(settings),
        "operator": _operator(settings),
    }
    return tuple(
        AclRule(
            role=role,
            principal=principals.get(role, f"User:{role}"),
            resource_type=need.resource_type,
            pattern_type="literal",
            name=need.name,
            operations=need.operations,
            why=need.why,
        )
        for role in ROLES
        for need in needs[role]
    )


def acl_object(rule: AclRule) -> dict[str, Any]:
    """Return the rule as what becomes one JSON object."""
    return asdict(rule)


def acl_command(rule: AclRule, *, brokers: str) -> str:
    """Return the line of Kafka's own tool that grants the rule.

    Args:
        rule: one of ``acl_rules``.
        brokers: for ``--bootstrap-server``.
    """
    resource = {"topic": "--topic", "group": "--group", "transactional_id": "--transactional-id"}[rule.resource_type]
    operations = [word for one in rule.operations for word in ("--operation", _tool_name(one))]
    words = ["--add", "--allow-principal", rule.principal, *operations, resource, rule.name]
    return shlex.join(["kafka-acls.sh", "--bootstrap-server", brokers, "--command-config", "admin.properties", *words])


def _tool_name(operation: Operation) -> str:
    return "".join(word.capitalize() for word in operation.split("_"))


def _bridge(settings: Settings) -> Iterator[_Need]:
    why = "publishes events; asks for the topic's size limit"
    yield _Need("topic", settings.topics.events[0], ("WRITE", "DESCRIBE_CONFIGS"), why)


def _processor(settings: Settings) -> Iterator[_Need]:
    deployment = _deployment(settings)
    for topic in settings.input_topics:
        yield _Need("topic", topic, ("READ", "DESCRIBE_CONFIGS"), "reads events; asks for the topic's size limit")
    why = "shares the partitions with other processors; shows how far it is to lag tools"
    yield _Need("group", processor_group(deployment), ("READ",), why)
    if settings.topics.dead_letters is not None:
        yield _Need("topic", settings.topics.dead_letters, ("WRITE",), "publishes what is quarantined")
    yield from _outcome_lanes(settings)


def _outcome_lanes(settings: Settings) -> Iterator[_Need]:
    """What everybody needs who writes outcomes to lanes of the database."""
    why = "compares the lanes with what is published; asks for the size limit of outcomes"
    yield _Need("topic", settings.topics.outcomes, ("READ", "DESCRIBE_CONFIGS"), why)
    why = "sees how far the relay has come, and cannot change it"
    yield _Need("group", relay_group(_deployment(settings)), ("DESCRIBE",), why)


def _relay(settings: Settings) -> Iterator[_Need]:
    deployment, topic = _deployment(settings), settings.topics.outcomes
    why = "publishes outcomes; reads the last record of each lane; asks for the topic's size limit"
    yield _Need("topic", topic, ("READ", "WRITE", "DESCRIBE_CONFIGS"), why)
    why = "publishes in transactions, and fences the relay before it"
    yield _Need("transactional_id", transactional_id(deployment, topic), ("WRITE",), why)
    yield _Need("group", relay_group(deployment), ("READ",), "keeps its cursors, in the same transactions")
    for events in settings.input_topics:
        yield _Need(
            "topic", events, ("DESCRIBE_CONFIGS",), "asks how long records are kept, before it deletes old markers"
        )


def _reconciler(settings: Settings) -> Iterator[_Need]:
    own = settings.topics.events[0]
    why = "brings events that were missed; looks for them among the records that wait; asks for the topic's size limit"
    yield _Need("topic", own, ("READ", "WRITE", "DESCRIBE_CONFIGS"), why)
    for foreign in settings.input_topics:
        if foreign != own:
            yield _Need("topic", foreign, ("READ", "DESCRIBE_CONFIGS"), "compares records with what was processed")
    why = "compares what is published with the lanes"
    yield _Need("topic", settings.topics.outcomes, ("READ", "DESCRIBE_CONFIGS"), why)
    yield _Need("group", reconciler_group(_deployment(settings)), ("DESCRIBE",), "looks at records")


def _operator(settings: Settings) -> Iterator[_Need]:
    deployment, outcomes = _deployment(settings), settings.topics.outcomes
    own = settings.topics.events[0]
    foreign = [topic for topic in settings.input_topics if topic != own]
    why = "makes the topic and raises what is set too low (topics); looks at records and positions (progress)"
    yield _Need("topic", own, ("READ", "CREATE", "ALTER_CONFIGS"), why)
    for topic in foreign:
        yield _Need("topic", topic, ("READ", "DESCRIBE_CONFIGS"), "looks at records and positions (progress)")
    if settings.topics.dead_letters is not None:
        why = "makes the topic and raises what is set too low (topics)"
        yield _Need("topic", settings.topics.dead_letters, ("CREATE", "DESCRIBE", "ALTER_CONFIGS"), why)
    yield _Need("group", processor_group(deployment), ("DESCRIBE",), "looks at records and positions (progress)")
    yield _Need("group", replay_group(deployment), ("DESCRIBE",), "reads stretches again (replay)")
    yield _Need("group", reconciler_group(deployment), ("DESCRIBE",), "compares records with the ledger (verify)")
    why = "makes the topic and raises what is set too low (topics); compares lanes with it (lanes)"
    yield _Need("topic", outcomes, ("READ", "CREATE", "ALTER_CONFIGS"), why)
    why = "opens a lane again in the relay's place (lanes resume)"
    yield _Need("transactional_id", transactional_id(deployment, outcomes), ("WRITE",), why)
    yield _Need("group", relay_group(deployment), ("READ",), why)


def _deployment(settings: Settings) -> str:
    assert settings.deployment.id is not None, "the command needs deployment.id"
    return settings.deployment.id
