"""Reads topics and lanes, and makes them what the plan says.

Rule: what exists is only changed in its configuration; a topic is made, never deleted and never widened.  Lane rows
are made once, when there are none, and carry the id of their topic, so that another topic of the same name is noticed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import psycopg
from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)
from psycopg.rows import tuple_row

from onceflow.kafka_admin import KafkaAdmin, failure_of
from onceflow.settings_model import TopicSettings
from onceflow.topic_plan import Difference, LanesFound, TopicFound, TopicPlan, TopicWish, plan_topics, topic_wishes
from onceflow_processor.schema_check import check_schema
from onceflow_producer.failpoint import hit
from onceflow_schemas.failure import Misconfigured, Unavailable
from onceflow_schemas.sql import queries

REQUEST_TIMEOUT_SECONDS = 20.0
VISIBLE_TIMEOUT_SECONDS = 20.0
VISIBLE_POLL_SECONDS = 0.1


def read_topics(admin: KafkaAdmin, names: Sequence[str]) -> dict[str, TopicFound]:
    """Return those of the named topics that exist.

    Raises:
        Unavailable: ``broker_unavailable``.
        Misconfigured: ``broker_refused``: the right to describe topics is missing.
    """
    described = admin.client.describe_topics(TopicCollection(list(names)), request_timeout=REQUEST_TIMEOUT_SECONDS)
    found: dict[str, TopicFound] = {}
    for name, answer in described.items():
        try:
            topic = answer.result(REQUEST_TIMEOUT_SECONDS)
            # A topic may be deleted between the two questions.
            config = _read_config(admin.client, name)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                continue
            raise failure_of(error, about=f"topic {name}") from None
        found[name] = TopicFound(
            name=name,
            topic_id=str(topic.topic_id),
            partitions=len(topic.partitions),
            replication_factor=min((len(one.replicas) for one in topic.partitions), default=0),
            config=config,
        )
    return found


def read_lanes(connection: psycopg.Connection[Any]) -> LanesFound:
    """Return what table ``lane`` holds."""
    with connection.transaction(), connection.cursor(row_factory=tuple_row) as cursor:
        rows = cursor.execute(queries("lane_setup")["lanes"]).fetchall()
    return LanesFound(len(rows), frozenset(topic_id for _, topic_id in rows))


def plan_from_settings(
    settings: TopicSettings,
    *,
    admin: KafkaAdmin,
    connection: psycopg.Connection[Any],
    inputs: Sequence[str] | None = None,
    makes_foreign: bool = False,
    make_anew: bool = False,
) -> tuple[TopicPlan, tuple[TopicWish, ...]]:
    """Compare topics and lanes with the settings; returns the plan and the wishes it was made from.

    Args:
        settings: what is wanted.
        admin: of the cluster.
        connection: to the database.
        inputs: see ``topic_wishes``.
        makes_foreign: see ``topic_wishes``.
        make_anew: see ``plan_topics``.

    Raises:
        Misconfigured: ``broker_refused``, or the database schema is not that of this release.
        Unavailable: ``broker_unavailable``.
    """
    check_schema(connection)
    wishes = topic_wishes(settings, brokers=admin.brokers(), inputs=inputs, makes_foreign=makes_foreign)
    found = read_topics(admin, [wish.name for wish in wishes])
    lanes = read_lanes(connection)
    plan = plan_topics(wishes, found, lanes=lanes, outcome_topic=settings.outcomes, make_anew=make_anew)
    return plan, wishes


def apply_topics(
    plan: TopicPlan,
    wishes: Sequence[TopicWish],
    *,
    admin: KafkaAdmin,
    connection: psycopg.Connection[Any],
    outcome_topic: str,
    progress: Callable[[str], None] = lambda _line: None,
) -> None:
    """Do what the plan says.

    Raises:
        Misconfigured: ``topic_mismatch`` or ``topic_changed`` before anything is changed; a schema fault.
        Unavailable: ``broker_unavailable`` or ``database_unavailable``.
    """
    refuse(plan)
    check_schema(connection)
    missing = {one.subject for one in plan.differences if one.action == "create"}
    for wish in wishes:
        if wish.name in missing:
            _create(admin.client, wish)
            progress(f"topics: made {wish.name} with {wish.partitions} partitions")
    for one in plan.differences:
        if one.action == "configure":
            _configure(admin.client, one)
            progress(f"topics: set {one.what}={one.wanted} on {one.subject}")
    hit("topics.before_lanes")
    topics = _wait_visible(admin, [wish.name for wish in wishes if not wish.foreign])
    if plan.new_lanes:
        _make_lanes(connection, topics[outcome_topic])
        progress(f"topics: made {topics[outcome_topic].partitions} lanes for {outcome_topic}")


def refuse(plan: TopicPlan) -> None:
    """Raise when the plan holds what cannot be mended here.

    Raises:
        Misconfigured: ``topic_mismatch`` or, for lanes of another topic, ``topic_changed``.
    """
    if plan.refused:
        texts = tuple(
            f"{one.subject}: {one.what} should be {one.wanted} and is {one.found}: {one.note}" for one in plan.refused
        )
        code = "topic_changed" if any(one.what in ("topic", "topic id") for one in plan.refused) else "topic_mismatch"
        raise Misconfigured(code, texts[0], faults=texts)


def _read_config(client: AdminClient, name: str) -> dict[str, str]:
    resource = ConfigResource(ConfigResource.Type.TOPIC, name)
    answer = client.describe_configs([resource], request_timeout=REQUEST_TIMEOUT_SECONDS)[resource]
    entries: Mapping[str, Any] = answer.result(REQUEST_TIMEOUT_SECONDS)
    return {key: str(entry.value) for key, entry in entries.items()}


def _create(client: AdminClient, wish: TopicWish) -> None:
    topic = NewTopic(
        wish.name,
        num_partitions=wish.partitions,
        replication_factor=wish.replication_factor,
        config=wish.config,
    )
    answer = client.create_topics([topic], request_timeout=REQUEST_TIMEOUT_SECONDS)[wish.name]
    try:
        answer.result(REQUEST_TIMEOUT_SECONDS)
    except KafkaException as error:
        # Another applier was faster; the plan that it followed came from the same settings or will be refused next.
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise failure_of(error) from None


def _configure(client: AdminClient, difference: Difference) -> None:
    entry = ConfigEntry(difference.what, difference.wanted, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, difference.subject, incremental_configs=[entry])
    answer = client.incremental_alter_configs([resource], request_timeout=REQUEST_TIMEOUT_SECONDS)[resource]
    try:
        answer.result(REQUEST_TIMEOUT_SECONDS)
    except KafkaException as error:
        raise failure_of(error) from None


def _wait_visible(admin: KafkaAdmin, names: Sequence[str]) -> dict[str, TopicFound]:
    """A topic is known to every broker only a moment after it was made."""
    give_up_at = time.monotonic() + VISIBLE_TIMEOUT_SECONDS
    while True:
        found = read_topics(admin, names)
        if len(found) == len(names):
            return found
        if time.monotonic() >= give_up_at:
            raise Unavailable("broker_unavailable", "a topic that was just made does not show up", "Run it again.")
        time.sleep(VISIBLE_POLL_SECONDS)


def _make_lanes(connection: psycopg.Connection[Any], topic: TopicFound) -> None:
    sql = queries("lane_setup")
    with connection.transaction(), connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(sql["lock_limit"])
        cursor.execute(sql["lanes_locked"])
        rows = cursor.execute(sql["lanes"]).fetchall()
        if not rows:
            cursor.execute(sql["make_lanes"], {"count": topic.partitions, "topic_id": topic.topic_id})
        elif {topic_id for _, topic_id in rows} != {topic.topic_id} or len(rows) != topic.partitions:
            raise Misconfigured("topic_changed", "another process made lanes for another topic meanwhile")
