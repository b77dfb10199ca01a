"""The processor's look before it hands out sequences, alone and beside a relay at work."""

from __future__ import annotations

import psycopg
import pytest
from confluent_kafka import Consumer, TopicPartition
from psycopg.pq import TransactionStatus

from onceflow_processor.relay.lane_check import LaneVerdict, check_lanes
from onceflow_schemas.failure import Misconfigured, Unavailable
from tests.processor.operations.looked_up import LOOKED_UP, STILL
from tests.relay.lanes import Lanes, header, run_dry, term, wait_for


def look(lanes: Lanes, *, deadline_seconds: float = 30.0, autocommit: bool = False) -> list[LaneVerdict]:
    with psycopg.connect(lanes.database_url, autocommit=autocommit) as connection:
        found = check_lanes(
            connection,
            kafka={"bootstrap.servers": lanes.bootstrap},
            outcome_topic=lanes.topic,
            group=lanes.group,
            deadline_seconds=deadline_seconds,
        )
        assert connection.info.transaction_status == TransactionStatus.IDLE
        return found


def publish(lanes: Lanes, *, lane: int, rows: int) -> None:
    lanes.add(lane, rows)
    with term(lanes) as session:
        run_dry(session)


def restore(lanes: Lanes, *, lane: int, head: int) -> None:
    """Put a lane back as an older backup of the database would."""
    lanes.sql("DELETE FROM onceflow.outcome WHERE lane = %s AND seq > %s", [lane, head])
    lanes.sql("UPDATE onceflow.lane SET head_seq = %s, published_seq = %s WHERE lane = %s", [head, head, lane])


@pytest.mark.parametrize("autocommit", [True, False])
def test_new_lanes_and_lanes_in_use_are_open(lanes: Lanes, *, autocommit: bool) -> None:
    assert [one.open for one in look(lanes, autocommit=autocommit)] == [True, True, True]
    publish(lanes, lane=0, rows=10)
    lanes.add(0, 5)
    assert look(lanes) == [LaneVerdict(number, "ok", "") for number in range(3)]


def test_a_restored_lane_is_closed_and_opens_when_its_head_is_right(lanes: Lanes) -> None:
    publish(lanes, lane=0, rows=10)
    publish(lanes, lane=1, rows=10)
    restore(lanes, lane=0, head=7)
    first = look(lanes)
    assert [one.state for one in first] == ["behind", "ok", "ok"]
    assert not first[0].open
    assert lanes.state(0)[2:] == ("behind", "the topic has sequence 10, the database has handed out 7")
    lanes.add(0, 3)
    assert look(lanes)[0] == LaneVerdict(0, "ok", "")
    assert lanes.state(0)[2:] == ("ok", "")


def test_a_restore_is_counted_once_for_the_operations(lanes: Lanes) -> None:
    lanes.sql(
        "INSERT INTO onceflow.deployment (id, accounts, mode, system_id, timeline)"
        " VALUES ('test', '{acct_test}', 'test', '1', 1)"
    )
    publish(lanes, lane=0, rows=10)
    lanes.sql(LOOKED_UP)
    look(lanes)
    assert lanes.sql("SELECT restores FROM onceflow.deployment") == [(0,)]
    assert lanes.sql(STILL) == [("failed",), ("review",), ("unknown",)]
    restore(lanes, lane=0, head=7)
    look(lanes)
    look(lanes)
    assert lanes.sql("SELECT restores FROM onceflow.deployment") == [(1,)]
    assert lanes.sql(STILL) == [("failed",)], "what a look-up did not find may have been sent since"


def test_a_restore_that_the_relay_notices_first_is_counted_once_too(lanes: Lanes) -> None:
    """Whoever looks after it finds the lanes closed already."""
    lanes.sql(
        "INSERT INTO onceflow.deployment (id, accounts, mode, system_id, timeline)"
        " VALUES ('test', '{acct_test}', 'test', '1', 1)"
    )
    publish(lanes, lane=0, rows=10)
    publish(lanes, lane=1, rows=10)
    lanes.sql(LOOKED_UP)
    restore(lanes, lane=0, head=7)
    restore(lanes, lane=1, head=7)
    with term(lanes) as session:
        run_dry(session)
    assert [lanes.state(lane)[2] for lane in range(3)] == ["behind", "behind", "ok"]
    assert [one.state for one in look(lanes)] == ["behind", "behind", "ok"]
    assert lanes.sql("SELECT restores FROM onceflow.deployment") == [(1,)]
    assert lanes.sql(STILL) == [("failed",)], "what a look-up did not find may have been sent since"


def test_either_of_cursor_and_record_is_enough(lanes: Lanes) -> None:
    publish(lanes, lane=0, rows=10)
    lanes.commit_cursor(0, 3)
    restore(lanes, lane=0, head=7)
    assert look(lanes)[0].state == "behind"


def test_an_unpublishable_lane_hands_out_unless_it_is_behind(lanes: Lanes) -> None:
    publish(lanes, lane=0, rows=10)
    publish(lanes, lane=1, rows=10)
    lanes.sql("UPDATE onceflow.lane SET state = 'stopped:unpublishable', detail = 'd' WHERE lane < 2")
    restore(lanes, lane=1, head=7)
    found = look(lanes)
    assert (found[0].state, found[0].open) == ("stopped:unpublishable", True)
    assert (found[1].state, found[1].open) == ("behind", False)


def test_states_of_others_are_kept(lanes: Lanes) -> None:
    publish(lanes, lane=0, rows=10)
    restore(lanes, lane=0, head=7)
    lanes.sql("UPDATE onceflow.lane SET state = 'recovering' WHERE lane = 0")
    lanes.sql("UPDATE onceflow.lane SET state = 'stopped:diverged' WHERE lane = 1")
    assert [one.state for one in look(lanes)] == ["recovering", "stopped:diverged", "ok"]


def test_another_id_at_the_end_is_a_divergence(lanes: Lanes) -> None:
    publish(lanes, lane=0, rows=10)
    lanes.sql("UPDATE onceflow.outcome SET ce_id = gen_random_uuid() WHERE lane = 0 AND seq = 10")
    lanes.add(0, 5)
    assert look(lanes)[0].state == "stopped:diverged"


def test_another_topic_of_the_same_name(lanes: Lanes) -> None:
    lanes.sql("UPDATE onceflow.lane SET topic_id = 'another'")
    assert {one.state for one in look(lanes)} == {"stopped:topic_changed"}


@pytest.mark.long
def test_an_open_transaction_counts_as_if_it_were_committed(lanes: Lanes) -> None:
    """A relay that still works from the database of before may yet commit what the restored one does not know."""
    publish(lanes, lane=0, rows=10)
    message = lanes.records()[0][9]
    former = lanes.transactional_producer(lanes.transactional_id)
    former.begin_transaction()
    headers = [("ce_id", header(message, "ce_id")), ("onceflow_lane", "0"), ("onceflow_sequence", "12")]
    former.produce(lanes.topic, b"{}", b"k", 0, headers=headers)  # type: ignore[arg-type]
    former.flush(20)
    with pytest.raises(Unavailable):
        look(lanes, deadline_seconds=3.0)
    lanes.add(0, 1)
    with pytest.raises(Unavailable):
        look(lanes, deadline_seconds=3.0)
    lanes.add(0, 1)
    assert look(lanes)[0].state == "ok", "what it may commit has been handed out"
    restore(lanes, lane=0, head=10)
    reader = Consumer({"bootstrap.servers": lanes.bootstrap, "group.id": lanes.group})
    former.send_offsets_to_transaction(
        [TopicPartition(lanes.topic, 0, 12, metadata=f"12 {header(message, 'ce_id')}")],
        reader.consumer_group_metadata(),
        20,
    )
    reader.close()
    with pytest.raises(Unavailable):
        look(lanes, deadline_seconds=3.0)
    former.commit_transaction(20)
    assert look(lanes)[0].state == "behind"


def test_beside_a_relay_at_work(lanes: Lanes) -> None:
    lanes.start_ready(batch_records_max=200)
    for _ in range(6):
        for number in range(3):
            lanes.add(number, 1_000)
        assert [one.state for one in look(lanes)] == ["ok", "ok", "ok"]
    wait_for(lanes.all_published, "everything is published")


def test_lanes_that_do_not_fit_and_topics_that_are_not_there(lanes: Lanes) -> None:
    lanes.sql("DELETE FROM onceflow.lane WHERE lane = 2")
    with pytest.raises(Misconfigured, match="topic_mismatch"):
        look(lanes)
    lanes.topic = "no.such.topic"
    with pytest.raises(Misconfigured, match="topic_missing"):
        look(lanes)
    lanes.bootstrap = "127.0.0.1:1"
    with pytest.raises(Unavailable):
        look(lanes, deadline_seconds=1.0)
