"""The doctor's look at Kafka.

Rule: it describes and changes nothing; a cluster that is away costs one bounded wait, not one per question.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any

from confluent_kafka import KafkaException, TopicCollection

from onceflow.doctor.checked import Checked, Part, crosses, tick
from onceflow.doctor.judgements import judge_limits, judge_operations, judge_topics
from onceflow.exit_codes import DEPENDENCY
from onceflow.kafka_acls import AclRule, acl_rules
from onceflow.kafka_admin import KafkaAdmin
from onceflow.settings_model import Settings
from onceflow.topic_plan import TopicFound, plan_topics, topic_wishes
from onceflow.topics import read_topics
from onceflow_schemas.failure import Failure

ASK_SECONDS_MAX = 10.0
_ROLES: Mapping[Part, str] = {
    "bridge": "bridge",
    "process": "processor",
    "operate": "worker",
    "relay": "relay",
    "reconcile": "reconciler",
    "operator": "operator",
}


class BrokerLook:
    """What was found; ``topics`` is None unless Kafka answered."""

    def __init__(self) -> None:
        self.lines: list[Checked] = []
        self.topics: Mapping[str, TopicFound] | None = None

    def run(self, settings: Settings, *, parts: Sequence[Part]) -> None:
        """Look; never raises for what it finds."""
        try:
            self.lines.extend(self._look(settings, parts=parts))
        except Failure as failure:
            self.lines.extend(crosses("kafka", failure, status=DEPENDENCY))

    def _look(self, settings: Settings, *, parts: Sequence[Part]) -> Iterator[Checked]:
        admin = KafkaAdmin(settings.kafka.properties)
        brokers = admin.brokers()
        yield tick("kafka", f"{brokers} brokers answer")
        names = _topics_of(settings, parts)
        read = tuple(dict.fromkeys((*settings.input_topics, *(names & set(settings.topics.events)))))
        wishes = [wish for wish in topic_wishes(settings.topics, brokers=brokers, inputs=read) if wish.name in names]
        found = read_topics(admin, [wish.name for wish in wishes])
        self.topics = found
        plan = plan_topics(wishes, found, lanes=None, outcome_topic=settings.topics.outcomes)
        yield from judge_topics(plan, settings)
        own = found.get(settings.topics.events[0])
        if "bridge" in parts and own is not None:
            yield judge_limits(own, body_bytes_max=settings.bridge.body_bytes_max)
        if settings.deployment.id is not None:
            yield from _rights(admin, settings, parts=parts, topics=found)


def _topics_of(settings: Settings, parts: Sequence[Part]) -> set[str]:
    """Return the topics that these parts need: the others may be none of this role's business."""
    topics = settings.topics
    names = set[str]()
    if "bridge" in parts:
        names.add(topics.events[0])
    if "process" in parts or "operator" in parts:
        names.update(settings.input_topics)
    if topics.dead_letters is not None and {"process", "operator"} & set(parts):
        names.add(topics.dead_letters)
    if set(parts) != {"bridge"}:
        names.add(topics.outcomes)
    return names


def _rights(
    admin: KafkaAdmin, settings: Settings, *, parts: Sequence[Part], topics: Mapping[str, TopicFound]
) -> Iterator[Checked]:
    """Ask what we may do with each topic and group that the parts need; a transactional id cannot be asked about."""
    roles = {_ROLES[part] for part in parts}
    rules = [rule for rule in acl_rules(settings, principals={}) if rule.role in roles]
    needed: dict[tuple[str, str], set[str]] = {}
    for rule in rules:
        if rule.resource_type == "group" or (rule.resource_type == "topic" and rule.name in topics):
            needed.setdefault((rule.resource_type, rule.name), set()).update(_operations(rule))
    granted = _granted(admin, list(needed))
    for (kind, name), operations in sorted(needed.items()):
        yield judge_operations(name, kind=kind, needed=operations, granted=granted[kind, name])


def _operations(rule: AclRule) -> tuple[str, ...]:
    return rule.operations


def _granted(admin: KafkaAdmin, asked: Sequence[tuple[str, str]]) -> dict[tuple[str, str], set[str] | None]:
    options: dict[str, Any] = {"include_authorized_operations": True, "request_timeout": ASK_SECONDS_MAX}
    topics = [name for kind, name in asked if kind == "topic"]
    groups = [name for kind, name in asked if kind == "group"]
    answers: dict[tuple[str, str], Future[Any]] = {}
    if topics:
        found = admin.client.describe_topics(TopicCollection(topics), **options)
        answers |= {("topic", name): future for name, future in found.items()}
    if groups:
        described: Mapping[str, Future[Any]] = admin.client.describe_consumer_groups(groups, **options)
        answers |= {("group", name): future for name, future in described.items()}
    return {key: _names(future) for key, future in answers.items()}


def _names(answer: Future[Any]) -> set[str] | None:
    """Return the operations; empty when even describing is refused, None when the broker does not say."""
    try:
        operations = answer.result(ASK_SECONDS_MAX).authorized_operations
    except KafkaException as error:
        return set() if "AUTHORIZATION" in error.args[0].name() else None
    except FutureTimeout:
        return None
    return None if operations is None else {operation.name for operation in operations}
