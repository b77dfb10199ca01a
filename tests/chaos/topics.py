"""What an operator, or an accident, does to topics and groups."""

from __future__ import annotations

from confluent_kafka import TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)

from tests.chaos.world import World
from tests.checker.waiting import wait_for

ANSWER_SECONDS = 15.0


def admin(world: World) -> AdminClient:
    """Return a client of the broker itself."""
    return AdminClient({"bootstrap.servers": world.bootstrap, "log_level": 0})


def set_topic(world: World, topic: str, name: str, value: str) -> str:
    """Set one property of a topic; return the former value."""
    client = admin(world)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    former = str(client.describe_configs([resource])[resource].result(ANSWER_SECONDS)[name].value)
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    change = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    client.incremental_alter_configs([change])[change].result(ANSWER_SECONDS)
    return former


def has_topic(world: World, topic: str) -> bool:
    """Say whether the topic exists."""
    return topic in admin(world).list_topics(timeout=ANSWER_SECONDS).topics


def topic_id(world: World, topic: str) -> str:
    """Return the id that the broker has given to a topic, as it is written in tables."""
    client = admin(world)
    described = client.describe_topics(TopicCollection([topic]))[topic].result(ANSWER_SECONDS)
    return str(described.topic_id)


def add_partitions(world: World, topic: str, total: int) -> None:
    """Raise the number of partitions."""
    client = admin(world)  # It must outlive its answers.
    client.create_partitions([NewPartitions(topic, total)])[topic].result(ANSWER_SECONDS)


def make_again(world: World, topic: str, partitions: int) -> None:
    """Delete a topic and make it anew under the same name."""
    client = admin(world)
    client.delete_topics([topic])[topic].result(ANSWER_SECONDS)
    wait_for(lambda: not has_topic(world, topic), limit_seconds=ANSWER_SECONDS, what=f"{topic} is gone")

    def made() -> bool:
        # A deletion is finished a moment after the topic has vanished from the metadata.
        try:
            client.create_topics([NewTopic(topic, partitions, 1)])[topic].result(ANSWER_SECONDS)
        except Exception:  # noqa: BLE001 - asked again until the limit
            return False
        return True

    wait_for(made, limit_seconds=ANSWER_SECONDS, what=f"{topic} is made again")


def delete_group(world: World, group: str) -> None:
    """Delete a consumer group and its offsets; it must have no members."""
    client = admin(world)
    client.delete_consumer_groups([group])[group].result(ANSWER_SECONDS)


def delete_records(world: World, topic: str, ends: dict[int, int]) -> None:
    """Delete everything before these offsets."""
    places = [TopicPartition(topic, partition, offset) for partition, offset in ends.items()]
    client = admin(world)
    for answer in client.delete_records(places).values():
        answer.result(ANSWER_SECONDS)
