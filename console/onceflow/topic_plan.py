"""What the topics should be, what they are, and the difference: values in, values out.

Rule: nothing here talks to Kafka.  A difference that cannot be mended without moving records (the partition count,
the number of copies) is never planned as a change, only reported.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from onceflow.settings_model import TopicSettings
from onceflow_schemas.topic_ids import shown_topic_id

MS_PER_DAY = 86_400_000
REPLICATION_FACTOR_WANTED = 3
UNLIMITED = -1
DEAD_LETTER_BYTES_MORE = 65_536
"""A dead letter is its record and the headers that say how it failed, a traceback among them."""

Action = Literal["create", "configure", "by_hand", "refused"]


@dataclass(frozen=True, slots=True)
class TopicWish:
    """What a topic should be.

    Args:
        name: of the topic.
        partitions: how many a new one gets.
        replication_factor: how many copies a new one gets.
        strict_replication: an existing one should have as many copies too.
        exact: configuration that must be just so.
        at_least: configuration that must not be lower; -1 counts as unlimited.
        foreign: others write to it and made it; it is neither made nor changed here.
    """

    name: str
    partitions: int
    replication_factor: int
    strict_replication: bool
    exact: Mapping[str, str]
    at_least: Mapping[str, int]
    foreign: bool = False

    @property
    def config(self) -> dict[str, str]:
        """The configuration of a new topic."""
        return {**self.exact, **{name: str(value) for name, value in self.at_least.items()}}


@dataclass(frozen=True, slots=True)
class TopicFound:
    """What a topic is: ``replication_factor`` is that of its partition with the fewest copies."""

    name: str
    topic_id: str
    partitions: int
    replication_factor: int
    config: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class LanesFound:
    """The rows of table ``lane``: how many, and the ids of the topics that they belong to."""

    count: int
    topic_ids: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is not as it should be, and what ``topics apply`` would do about it."""

    subject: str
    what: str
    wanted: str
    found: str
    action: Action
    note: str = ""


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """Everything that differs; ``new_lanes`` is the number of lane rows to make once the topic is there."""

    differences: tuple[Difference, ...]
    new_lanes: int = 0
    found: Mapping[str, TopicFound] = field(default_factory=dict)

    @property
    def refused(self) -> tuple[Difference, ...]:
        """What makes the whole plan impossible."""
        return tuple(one for one in self.differences if one.action == "refused")


def topic_wishes(
    settings: TopicSettings, *, brokers: int, inputs: Sequence[str] | None = None, makes_foreign: bool = False
) -> tuple[TopicWish, ...]:
    """Return the wish for each topic of the settings.

    Args:
        settings: the section ``topics``.
        brokers: how many the cluster has; a new topic cannot have more copies.
        inputs: the topics that are read; ``topics.events`` when left out.
        makes_foreign: others' topics are made too, because there is nobody else on this cluster.
    """
    read = settings.events if inputs is None else tuple(inputs)
    kept = () if settings.dead_letters is None else (settings.dead_letters,)
    copies = settings.replication_factor or min(REPLICATION_FACTOR_WANTED, max(brokers, 1))
    confirm = settings.min_insync_replicas or (2 if copies >= REPLICATION_FACTOR_WANTED else 1)
    return tuple(
        TopicWish(
            name=name,
            partitions=settings.partitions,
            replication_factor=copies,
            strict_replication=settings.replication_factor is not None,
            exact={"cleanup.policy": "delete"},
            at_least={
                "retention.ms": settings.retention_days * MS_PER_DAY,
                "retention.bytes": UNLIMITED,
                "max.message.bytes": settings.message_bytes_max + (DEAD_LETTER_BYTES_MORE if name in kept else 0),
                "min.insync.replicas": confirm,
            },
            foreign=name in read and name != settings.events[0] and not makes_foreign,
        )
        for name in (*read, settings.outcomes, *kept)
    )


def plan_topics(
    wishes: Sequence[TopicWish],
    found: Mapping[str, TopicFound],
    *,
    lanes: LanesFound | None,
    outcome_topic: str,
    make_anew: bool = False,
) -> TopicPlan:
    """Compare wishes with what there is.

    Args:
        wishes: one per topic.
        found: the topics that exist, by name.
        lanes: the rows of table ``lane``; None when nobody looked.
        outcome_topic: the topic that the lanes belong to.
        make_anew: a person has decided that an outcome topic that is gone is made anew; its lanes then wait for a
            decision each.
    """
    differences = [one for wish in wishes for one in _topic_differences(wish, found.get(wish.name))]
    new_lanes = 0
    if lanes is not None:
        outcome = found.get(outcome_topic)
        partitions = next(wish.partitions for wish in wishes if wish.name == outcome_topic)
        if outcome is not None:
            partitions = outcome.partitions
        lane_differences = list(_lane_differences(lanes, outcome, partitions=partitions, make_anew=make_anew))
        differences += lane_differences
        new_lanes = partitions if lanes.count == 0 and not any(one.action == "refused" for one in differences) else 0
    return TopicPlan(tuple(differences), new_lanes, found)


def _topic_differences(wish: TopicWish, found: TopicFound | None) -> Iterator[Difference]:
    if found is None:
        text = f"{wish.partitions} partitions, {wish.replication_factor} copies"
        note = "made by whoever writes to it: is the name right?" if wish.foreign else ""
        yield Difference(wish.name, "topic", text, "missing", "by_hand" if wish.foreign else "create", note)
        return
    if wish.foreign:
        return
    if found.partitions != wish.partitions:
        note = "a key would move to another partition; set topics.partitions to what is there, or name a new topic"
        yield Difference(wish.name, "partitions", str(wish.partitions), str(found.partitions), "refused", note)
    if wish.strict_replication and found.replication_factor != wish.replication_factor:
        wanted, have = str(wish.replication_factor), str(found.replication_factor)
        note = "move the copies with kafka-reassign-partitions"
        yield Difference(wish.name, "replication factor", wanted, have, "by_hand", note)
    yield from _config_differences(wish, found)


def _config_differences(wish: TopicWish, found: TopicFound) -> Iterator[Difference]:
    for name, text in wish.exact.items():
        if found.config.get(name) != text:
            yield Difference(wish.name, name, text, found.config.get(name, "unknown"), "configure")
    for name, value in wish.at_least.items():
        # A copy that does not exist cannot confirm: more than the topic has would stop every write.
        least = min(value, found.replication_factor) if name == "min.insync.replicas" else value
        if not _enough(found.config.get(name), least):
            yield Difference(wish.name, name, str(least), found.config.get(name, "unknown"), "configure")


def _enough(text: str | None, least: int) -> bool:
    try:
        value = int(text or "")
    except ValueError:
        return False
    return value == UNLIMITED or (least != UNLIMITED and value >= least)


def _lane_differences(
    lanes: LanesFound, outcome: TopicFound | None, *, partitions: int, make_anew: bool
) -> Iterator[Difference]:
    if lanes.count == 0:
        yield Difference("onceflow.lane", "lanes", str(partitions), "0", "create")
        return
    if outcome is None and make_anew:
        if lanes.count != partitions:
            note = "a topic that is made anew needs a partition for each lane: set topics.partitions to that"
            yield Difference("onceflow.lane", "partitions", str(lanes.count), str(partitions), "refused", note)
        return
    if outcome is None:
        note = "the topic was deleted, or this is another cluster; if it is gone for good: topics apply --make-anew"
        yield Difference("onceflow.lane", "topic", "the one of the lanes", "missing", "refused", note)
        return
    if lanes.topic_ids != {outcome.topic_id}:
        note = "the topic was deleted and made again, or this is another cluster"
        known = ", ".join(sorted(map(shown_topic_id, lanes.topic_ids)))
        yield Difference("onceflow.lane", "topic id", known, shown_topic_id(outcome.topic_id), "refused", note)
    elif lanes.count != outcome.partitions:
        note = "lanes and partitions belong together for ever"
        yield Difference("onceflow.lane", "lanes", str(outcome.partitions), str(lanes.count), "refused", note)
