"""Topics and lanes on a real broker and a real database."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import psycopg
import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewPartitions

from onceflow.database import connect
from onceflow.kafka_admin import KafkaAdmin
from onceflow.migrations import migrate
from onceflow.settings_model import TopicSettings
from onceflow.topic_plan import TopicPlan, plan_topics, topic_wishes
from onceflow.topics import apply_topics, read_lanes, read_topics
from onceflow_schemas.failure import Misconfigured, Unavailable
from tests.waiting import wait_until


class World:
    """Two topics of unique names and a database of its own."""

    def __init__(self, bootstrap: str, url: str) -> None:
        mark = uuid.uuid4().hex[:12]
        self.settings = TopicSettings(events=(f"events.{mark}",), outcomes=f"outcomes.{mark}", partitions=3)
        self.url = url
        self.bootstrap = bootstrap
        self.admin = KafkaAdmin({"bootstrap.servers": bootstrap})

    @property
    def names(self) -> list[str]:
        return [*self.settings.events, self.settings.outcomes]

    def plan(self, *, make_anew: bool = False) -> TopicPlan:
        with connect(self.url, role="test") as connection:
            lanes = read_lanes(connection)
        wishes = topic_wishes(self.settings, brokers=self.admin.brokers())
        return plan_topics(
            wishes,
            read_topics(self.admin, self.names),
            lanes=lanes,
            outcome_topic=self.settings.outcomes,
            make_anew=make_anew,
        )

    def apply(self, *, make_anew: bool = False) -> None:
        plan = self.plan(make_anew=make_anew)
        wishes = topic_wishes(self.settings, brokers=1)
        with connect(self.url, role="test") as connection:
            apply_topics(plan, wishes, admin=self.admin, connection=connection, outcome_topic=self.settings.outcomes)


def wait_for(condition: Callable[[], bool]) -> None:
    """The broker that is asked learns of a change a moment after it was made."""
    wait_until(condition, within_seconds=20, why="the change shows up")


@pytest.fixture
def world(kafka_bootstrap: str, empty_database: str) -> World:
    with connect(empty_database, role="test") as connection:
        migrate(connection)
    return World(kafka_bootstrap, empty_database)


def test_apply_makes_topics_and_lanes_and_then_nothing_differs(world: World) -> None:
    assert [one.action for one in world.plan().differences] == ["create", "create", "create"]
    world.apply()
    topics = read_topics(world.admin, world.names)
    assert [topics[name].partitions for name in world.names] == [3, 3]
    assert topics[world.settings.outcomes].config["cleanup.policy"] == "delete"
    assert topics[world.settings.outcomes].config["retention.ms"] == "3024000000"
    with psycopg.connect(world.url) as connection:
        rows = connection.execute("SELECT lane, head_seq, topic_id, state FROM onceflow.lane ORDER BY lane").fetchall()
    topic_id = topics[world.settings.outcomes].topic_id
    assert rows == [(0, 0, topic_id, "ok"), (1, 0, topic_id, "ok"), (2, 0, topic_id, "ok")]
    assert world.plan().differences == ()
    world.apply()
    assert world.plan().differences == ()


def test_configuration_that_is_too_low_is_raised(world: World) -> None:
    world.apply()
    world.settings = world.settings.model_copy(update={"retention_days": 100, "message_bytes_max": 2_000_000})
    assert {(one.what, one.action) for one in world.plan().differences} == {
        ("retention.ms", "configure"),
        ("max.message.bytes", "configure"),
    }
    world.apply()
    assert world.plan().differences == ()


def test_a_widened_topic_is_refused_and_nothing_is_changed(world: World) -> None:
    world.apply()
    client = AdminClient({"bootstrap.servers": world.bootstrap})
    client.create_partitions([NewPartitions(world.settings.outcomes, 4)])[world.settings.outcomes].result(20)
    wait_for(lambda: read_topics(world.admin, world.names)[world.settings.outcomes].partitions == 4)
    with pytest.raises(Misconfigured) as refused:
        world.apply()
    assert refused.value.code == "topic_mismatch"
    assert "partitions should be 3 and is 4" in refused.value.message


def test_a_topic_that_was_made_again_is_noticed(world: World) -> None:
    world.apply()
    client = AdminClient({"bootstrap.servers": world.bootstrap})
    client.delete_topics([world.settings.outcomes])[world.settings.outcomes].result(20)
    wait_for(lambda: world.settings.outcomes not in read_topics(world.admin, world.names))
    with pytest.raises(Misconfigured) as gone:
        world.apply()
    assert gone.value.code == "topic_changed"
    assert not read_topics(world.admin, [world.settings.outcomes])
    world.apply(make_anew=True)
    assert read_topics(world.admin, world.names)[world.settings.outcomes].partitions == 3
    # Its lanes still belong to the former one: each waits for a decision.
    assert [one.what for one in world.plan().refused] == ["topic id"]


def test_a_topic_that_is_deleted_between_two_questions_is_not_there() -> None:
    there: Future[Any] = Future()
    there.set_result(SimpleNamespace(topic_id="id", partitions=[]))
    gone: Future[Any] = Future()
    gone.set_exception(KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)))
    client = MagicMock()
    client.describe_topics.return_value = {"outcomes": there}
    client.describe_configs.side_effect = lambda resources, **_: {resources[0]: gone}
    assert read_topics(MagicMock(client=client), ["outcomes"]) == {}


def test_apply_without_schema_is_refused_before_anything_is_made(kafka_bootstrap: str, empty_database: str) -> None:
    world = World(kafka_bootstrap, empty_database)
    wishes = topic_wishes(world.settings, brokers=1)
    plan = plan_topics(wishes, {}, lanes=None, outcome_topic=world.settings.outcomes)
    with connect(world.url, role="test") as connection, pytest.raises(Misconfigured) as refused:
        apply_topics(plan, wishes, admin=world.admin, connection=connection, outcome_topic=world.settings.outcomes)
    assert refused.value.code == "schema_missing"
    assert not read_topics(world.admin, world.names)


def test_two_appliers_at_once_agree(world: World) -> None:
    with ThreadPoolExecutor(2) as pool:
        for running in [pool.submit(world.apply) for _ in range(2)]:
            running.result(60)
    with psycopg.connect(world.url) as connection:
        assert connection.execute("SELECT count(*) FROM onceflow.lane").fetchall() == [(3,)]
    assert world.plan().differences == ()


def test_a_broker_that_is_away_is_told_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onceflow.kafka_admin.METADATA_TIMEOUT_SECONDS", 0.5)
    with pytest.raises(Unavailable) as away:
        KafkaAdmin({"bootstrap.servers": "127.0.0.1:9"}).brokers()
    assert away.value.code == "broker_unavailable"


def test_refused_credentials_are_told_as_such(kafka_bootstrap: str) -> None:
    properties = {"security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN", "sasl.username": "u"}
    with pytest.raises(Misconfigured) as refused:
        KafkaAdmin({"bootstrap.servers": kafka_bootstrap, "sasl.password": "CANARY", **properties}).brokers()
    assert refused.value.code == "broker_refused"
    assert "SASL PLAIN mechanism handshake failed" in refused.value.message
    assert "CANARY" not in refused.value.message


def test_a_wrong_protocol_is_told_in_librdkafka_s_words(kafka_bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onceflow.kafka_admin.METADATA_TIMEOUT_SECONDS", 1.0)
    with pytest.raises(Unavailable) as away:
        KafkaAdmin({"bootstrap.servers": kafka_bootstrap, "security.protocol": "ssl"}).brokers()
    assert "ssl://" in away.value.message


def test_a_property_that_librdkafka_does_not_know_is_refused() -> None:
    with pytest.raises(Misconfigured) as refused:
        KafkaAdmin({"bootstrap.servers": "127.0.0.1:9", "sasl.pasword": "CANARY"})
    assert refused.value.code == "settings_invalid"
    assert "sasl.pasword" in refused.value.message
    assert "CANARY" not in refused.value.message
