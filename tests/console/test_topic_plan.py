"""The difference between wished and found topics, and what would be done about it."""

from __future__ import annotations

from dataclasses import replace

from onceflow.settings_model import TopicSettings
from onceflow.topic_plan import Difference, LanesFound, TopicFound, TopicPlan, plan_topics, topic_wishes

EVENTS, OUTCOMES = "stripe.events.v1", "stripe.outcomes.v1"
GOOD = {
    "cleanup.policy": "delete",
    "retention.ms": "3024000000",
    "retention.bytes": "-1",
    "max.message.bytes": "1048588",
    "min.insync.replicas": "1",
}


def found(name: str, *, topic_id: str = "id-1", partitions: int = 6, copies: int = 1, **config: str) -> TopicFound:
    values = {**GOOD, **{key.replace("_", "."): value for key, value in config.items()}}
    return TopicFound(name, topic_id, partitions, copies, values)


def plan(*topics: TopicFound, settings: TopicSettings | None = None, lanes: LanesFound | None = None) -> TopicPlan:
    wishes = topic_wishes(settings or TopicSettings(), brokers=1)
    return plan_topics(wishes, {one.name: one for one in topics}, lanes=lanes, outcome_topic=OUTCOMES)


def test_everything_is_right() -> None:
    assert plan(found(EVENTS), found(OUTCOMES), lanes=LanesFound(6, frozenset({"id-1"}))) == TopicPlan(
        (), 0, {EVENTS: found(EVENTS), OUTCOMES: found(OUTCOMES)}
    )


def test_an_empty_cluster_gets_topics_and_lanes() -> None:
    planned = plan(lanes=LanesFound(0))
    assert [(one.subject, one.what, one.found, one.action) for one in planned.differences] == [
        (EVENTS, "topic", "missing", "create"),
        (OUTCOMES, "topic", "missing", "create"),
        ("onceflow.lane", "lanes", "0", "create"),
    ]
    assert planned.new_lanes == 6


def test_new_lanes_follow_the_topic_that_is_there() -> None:
    twelve = TopicSettings(partitions=12)
    assert (
        plan(
            found(EVENTS, partitions=12), found(OUTCOMES, partitions=12), settings=twelve, lanes=LanesFound(0)
        ).new_lanes
        == 12
    )


def test_an_outcome_topic_that_is_gone_is_made_anew_only_by_decision_and_with_a_partition_for_each_lane() -> None:
    def decided(lanes: int, *, make_anew: bool) -> list[tuple[str, str, str]]:
        planned = plan_topics(
            topic_wishes(TopicSettings(), brokers=1),
            {EVENTS: found(EVENTS)},
            lanes=LanesFound(lanes, frozenset({"id-of-old"})),
            outcome_topic=OUTCOMES,
            make_anew=make_anew,
        )
        assert planned.new_lanes == 0
        return [(one.subject, one.what, one.action) for one in planned.differences]

    created = (OUTCOMES, "topic", "create")
    assert decided(6, make_anew=False) == [created, ("onceflow.lane", "topic", "refused")]
    assert decided(6, make_anew=True) == [created]
    assert decided(5, make_anew=True) == [created, ("onceflow.lane", "partitions", "refused")]


def test_a_dead_letter_topic_takes_records_with_what_is_said_about_them() -> None:
    *_, dead = topic_wishes(TopicSettings(dead_letters="dead"), brokers=1)
    assert (dead.name, dead.foreign, dead.at_least["max.message.bytes"]) == ("dead", False, 1_048_588 + 65_536)
    planned = plan(found(EVENTS), found(OUTCOMES), settings=TopicSettings(dead_letters="dead"))
    assert [(one.subject, one.action) for one in planned.differences] == [("dead", "create")]


def test_another_partition_count_is_refused() -> None:
    planned = plan(found(EVENTS, partitions=3), found(OUTCOMES))
    assert [(one.subject, one.what, one.wanted, one.found) for one in planned.refused] == [
        (EVENTS, "partitions", "6", "3")
    ]


def test_lower_limits_are_raised_and_higher_ones_left() -> None:
    low = found(
        EVENTS, retention_ms="604800000", retention_bytes="1000", max_message_bytes="900000", cleanup_policy="compact"
    )
    high = found(OUTCOMES, retention_ms="-1", max_message_bytes="9000000", min_insync_replicas="1")
    assert [(one.what, one.wanted, one.found, one.action) for one in plan(low, high).differences] == [
        ("cleanup.policy", "delete", "compact", "configure"),
        ("retention.ms", "3024000000", "604800000", "configure"),
        ("retention.bytes", "-1", "1000", "configure"),
        ("max.message.bytes", "1048588", "900000", "configure"),
    ]


def test_a_config_that_may_not_be_read_counts_as_a_difference() -> None:
    unknown = replace(found(EVENTS), config={})
    assert {one.found for one in plan(unknown, found(OUTCOMES)).differences} == {"unknown"}


def test_copies_are_checked_only_when_they_are_asked_for() -> None:
    three = TopicSettings(replication_factor=3)
    planned = plan(found(EVENTS), found(OUTCOMES, copies=3, min_insync_replicas="2"), settings=three)
    assert planned.differences == (
        Difference(EVENTS, "replication factor", "3", "1", "by_hand", "move the copies with kafka-reassign-partitions"),
    )


def test_new_topics_have_three_copies_where_there_are_brokers() -> None:
    one, two, five = (topic_wishes(TopicSettings(), brokers=count)[0] for count in (1, 2, 5))
    assert [(wish.replication_factor, wish.at_least["min.insync.replicas"]) for wish in (one, two, five)] == [
        (1, 1),
        (2, 1),
        (3, 2),
    ]


def test_topics_of_others_are_neither_made_nor_changed() -> None:
    two = TopicSettings(events=(EVENTS, "billing.stripe"))
    compacted = found("billing.stripe", partitions=50, cleanup_policy="compact")
    assert plan(found(EVENTS), compacted, found(OUTCOMES), settings=two).differences == ()
    (missing,) = plan(found(EVENTS), found(OUTCOMES), settings=two).differences
    assert (missing.subject, missing.action) == ("billing.stripe", "by_hand")


def test_lanes_of_another_topic_are_refused() -> None:
    other = plan(found(EVENTS), found(OUTCOMES, topic_id="id/2"), lanes=LanesFound(6, frozenset({"id+1"})))
    assert [(one.what, one.wanted, one.found) for one in other.refused] == [("topic id", "id-1", "id_2")]
    assert plan(found(EVENTS), found(OUTCOMES, topic_id="id+1"), lanes=LanesFound(6, frozenset({"id+1"}))).refused == ()
    gone = plan(found(EVENTS), lanes=LanesFound(6, frozenset({"id-1"})))
    assert [one.what for one in gone.refused] == ["topic"]
    fewer = plan(found(EVENTS), found(OUTCOMES), lanes=LanesFound(5, frozenset({"id-1"})))
    assert [(one.what, one.wanted, one.found) for one in fewer.refused] == [("lanes", "6", "5")]
    assert (other.new_lanes, gone.new_lanes, fewer.new_lanes) == (0, 0, 0)
