"""One term, step by step: what it finds, what it publishes, what stops a lane and what opens it again."""

from __future__ import annotations

import uuid

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from onceflow_processor.relay.session import RECOMMIT_SECONDS
from onceflow_processor.relay.withhold import withhold
from onceflow_schemas.failure import LeaseLost, Misconfigured, Unavailable
from tests.relay.lanes import Clock, Lanes, check_exactly_once, header, run_dry, sequence, term


def publish_all(lanes: Lanes) -> None:
    with term(lanes) as session:
        run_dry(session)


def delete_group(lanes: Lanes) -> None:
    admin = AdminClient({"bootstrap.servers": lanes.bootstrap})
    admin.delete_consumer_groups([lanes.group])[lanes.group].result(20)


def test_each_lane_in_order_and_all_of_it(lanes: Lanes) -> None:
    lanes.add(0, 2_500)
    lanes.add(1, 10)
    publish_all(lanes)
    check_exactly_once(lanes, {0: 2_500, 1: 10, 2: 0})
    assert lanes.state(0) == (2_500, 2_500, "ok", "")
    lanes.add(0, 3)
    publish_all(lanes)
    check_exactly_once(lanes, {0: 2_503, 1: 10, 2: 0})


def test_rows_without_an_order_of_commits_cannot_exist(lanes: Lanes) -> None:
    """A transaction that takes its sequence first and commits last holds the lane: the other waits for it."""
    with term(lanes) as session, lanes.connect() as late, lanes.connect() as early:
        late.execute("BEGIN")
        late.execute("UPDATE onceflow.lane SET head_seq = head_seq + 1 WHERE lane = 0")
        early.execute("SET lock_timeout = '100ms'")
        with pytest.raises(Exception, match="lock timeout"):
            early.execute("UPDATE onceflow.lane SET head_seq = head_seq + 1 WHERE lane = 0")
        assert not session.step()
        late.execute("ROLLBACK")
        lanes.add(0, 2)
        run_dry(session)
    assert lanes.sequences()[0] == [1, 2]


@pytest.mark.parametrize(
    ("offset", "metadata", "code"),
    [(3, "", "cursor_moved"), (11, "", "cursor_moved"), (500, "", "cursor_moved"), (5, "row 5", "cursor_moved"),
     (900, "row 10", "tail_lost"), (10, "row 9", "diverged")],
)  # fmt: skip
def test_an_overwritten_cursor_stops_its_lane_and_no_other(lanes: Lanes, offset: int, metadata: str, code: str) -> None:
    lanes.add(0, 10)
    lanes.add(1, 10)
    publish_all(lanes)
    if metadata:
        seq = int(metadata.removeprefix("row "))
        metadata = f"{seq} {lanes.sql('SELECT ce_id FROM onceflow.outcome WHERE lane = 0 AND seq = %s', [seq])[0][0]}"
    lanes.commit_cursor(0, offset, metadata)
    lanes.add(0, 5)
    lanes.add(1, 5)
    publish_all(lanes)
    assert lanes.sequences() == {0: list(range(1, 11)), 1: list(range(1, 16)), 2: []}
    assert lanes.state(0)[:3] == (15, 10, f"stopped:{code}")
    assert lanes.state(1)[:3] == (15, 15, "ok")
    assert lanes.cursor(0)[0] == offset, "what somebody did is left for a person to see"
    # The person puts it right by removing the group; the records decide then, and the lane opens again.
    delete_group(lanes)
    publish_all(lanes)
    check_exactly_once(lanes, {0: 15, 1: 15, 2: 0})
    assert lanes.state(0) == (15, 15, "ok", "")


def test_a_deleted_group_is_no_reason_to_begin_again(lanes: Lanes) -> None:
    lanes.add(0, 10)
    publish_all(lanes)
    delete_group(lanes)
    assert lanes.cursor(0)[0] == -1001
    with term(lanes) as session:
        session.step()
        assert lanes.cursor(0)[0] == 10, "written again at once"
        lanes.add(0, 5)
        run_dry(session)
    check_exactly_once(lanes, {0: 15, 1: 0, 2: 0})


def test_what_was_published_but_not_noted_is_compared_and_noted(lanes: Lanes) -> None:
    lanes.add(0, 10)
    publish_all(lanes)
    lanes.sql("UPDATE onceflow.lane SET published_seq = 2 WHERE lane = 0")
    publish_all(lanes)
    assert lanes.state(0)[:3] == (10, 10, "ok")
    assert lanes.sequences()[0] == list(range(1, 11))


def test_another_row_under_a_published_sequence_stops_the_lane(lanes: Lanes) -> None:
    lanes.add(0, 10)
    publish_all(lanes)
    lanes.sql("UPDATE onceflow.lane SET published_seq = 2 WHERE lane = 0")
    lanes.sql("UPDATE onceflow.outcome SET ce_id = %s WHERE lane = 0 AND seq = 6", [uuid.UUID(int=1)])
    publish_all(lanes)
    assert lanes.state(0)[:3] == (10, 2, "stopped:diverged")


def test_a_restored_database_is_behind_until_its_head_is_right_again(lanes: Lanes) -> None:
    lanes.add(0, 10)
    lanes.add(1, 10)
    publish_all(lanes)
    lanes.sql("DELETE FROM onceflow.outcome WHERE lane = 0 AND seq > 6")
    lanes.sql("UPDATE onceflow.lane SET head_seq = 6, published_seq = 6 WHERE lane = 0")
    publish_all(lanes)
    assert lanes.state(0)[2] == "behind"
    assert lanes.state(1)[2] == "ok"
    lanes.add(0, 4)
    publish_all(lanes)
    assert lanes.state(0) == (10, 10, "ok", "")
    assert lanes.sequences()[0] == list(range(1, 11))


def test_a_database_restored_under_a_running_relay_ends_nothing_but_the_lane(lanes: Lanes) -> None:
    lanes.add(0, 10)
    with term(lanes) as session:
        run_dry(session)
        lanes.sql("DELETE FROM onceflow.outcome WHERE lane = 0 AND seq > 6")
        lanes.sql("UPDATE onceflow.lane SET head_seq = 6, published_seq = 6 WHERE lane = 0")
        run_dry(session)
        assert lanes.state(0)[2] == "behind"
        lanes.add(1, 3)
        run_dry(session)
    assert lanes.sequences()[1] == [1, 2, 3]


def test_another_topic_of_the_same_name(lanes: Lanes) -> None:
    lanes.add(0, 10)
    publish_all(lanes)
    lanes.sql("UPDATE onceflow.lane SET topic_id = 'an+other' WHERE lane = 0")
    lanes.add(0, 1)
    lanes.add(1, 1)
    publish_all(lanes)
    head, published, state, detail = lanes.state(0)
    assert (head, published, state) == (11, 10, "stopped:topic_changed")
    assert detail.endswith("the lane belongs to an-other")
    assert lanes.sequences()[1] == [1]


def test_a_topic_that_was_created_anew(lanes: Lanes) -> None:
    """Its id is another one; and would it not be, then nothing of what was published is there."""
    lanes.add(0, 10)
    lanes.add(1, 10)
    publish_all(lanes)
    lanes.create_anew()
    publish_all(lanes)
    assert {lanes.state(number)[2] for number in range(3)} == {"stopped:topic_changed"}
    lanes.sql("UPDATE onceflow.lane SET topic_id = %s", [lanes.topic_id()])
    publish_all(lanes)
    assert [lanes.state(number)[2] for number in range(3)] == ["stopped:tail_lost", "stopped:tail_lost", "ok"]
    assert lanes.sequences() == {0: [], 1: [], 2: []}


def test_a_lost_tail_is_not_filled_in_silently(lanes: Lanes) -> None:
    """The same as after an unclean election: the log has fewer records, the cursor went with them or did not."""
    lanes.add(0, 10)
    publish_all(lanes)
    lanes.sql("UPDATE onceflow.lane SET head_seq = 12, published_seq = 12 WHERE lane = 0")
    publish_all(lanes)
    assert lanes.state(0)[:3] == (12, 12, "stopped:tail_lost")
    delete_group(lanes)
    publish_all(lanes)
    assert lanes.state(0)[:3] == (12, 12, "stopped:tail_lost")
    assert lanes.sequences()[0] == list(range(1, 11))


def test_records_taken_by_retention_are_no_loss(lanes: Lanes) -> None:
    lanes.add(0, 10)
    publish_all(lanes)
    admin = AdminClient({"bootstrap.servers": lanes.bootstrap})
    partition = TopicPartition(lanes.topic, 0, -1)
    admin.delete_records([partition])[partition].result(20)
    lanes.add(0, 3)
    publish_all(lanes)
    assert lanes.state(0) == (13, 13, "ok", "")
    assert lanes.sequences()[0] == [11, 12, 13]


def test_a_strange_record_at_the_end_stops_the_lane(lanes: Lanes) -> None:
    lanes.add(0, 2)
    lanes.add(1, 2)
    publish_all(lanes)
    producer = Producer({"bootstrap.servers": lanes.bootstrap})
    producer.produce(lanes.topic, b"hello", b"k", 0)
    producer.flush(20)
    lanes.add(0, 1)
    lanes.add(1, 1)
    publish_all(lanes)
    assert lanes.state(0)[:3] == (3, 2, "stopped:diverged")
    assert lanes.sequences()[1] == [1, 2, 3]


def test_a_foreign_open_transaction_holds_up_only_its_lane(lanes: Lanes) -> None:
    lanes.add(0, 2)
    lanes.add(1, 2)
    publish_all(lanes)
    stranger = lanes.transactional_producer(f"stranger.{lanes.topic}")
    stranger.begin_transaction()
    stranger.produce(lanes.topic, b"hello", b"k", 0)
    stranger.flush(20)
    lanes.add(0, 1)
    lanes.add(1, 1)
    clock = Clock()
    with term(lanes, clock=clock) as session:
        run_dry(session)
        assert lanes.state(0)[:3] == (3, 2, "ok")
        assert lanes.state(1)[:3] == (3, 3, "ok")
        stranger.abort_transaction(20)
        clock.ahead += 2
        while lanes.state(0)[1] < 3:
            session.step()
            clock.ahead += 2
    check_exactly_once(lanes, {0: 3, 1: 3, 2: 0})


def too_large(lanes: Lanes, lane: int, *, before: int, after: int) -> None:
    lanes.add(lane, before)
    lanes.add(lane, 1, value_bytes=1_200_000)
    lanes.add(lane, after)


def test_an_outcome_above_the_topics_limit_stops_its_lane_until_it_is_withheld(lanes: Lanes) -> None:
    too_large(lanes, 0, before=5, after=5)
    lanes.add(1, 300)
    with term(lanes) as session:
        run_dry(session)
        assert lanes.state(0) == (11, 5, "stopped:unpublishable", "sequence 6: MSG_SIZE_TOO_LARGE")
        assert lanes.state(1)[:3] == (300, 300, "ok")
        lanes.add(0, 1)
        run_dry(session)
        with lanes.connect() as connection:
            assert withhold(connection, 0, seq=6, code="too_large") == "withheld"
        run_dry(session)
    check_exactly_once(lanes, {0: 12, 1: 300, 2: 0})
    placeholder = lanes.records()[0][5]
    assert (placeholder.value(), header(placeholder, "onceflow_withheld")) == (b"{}", "too_large")
    assert lanes.state(0) == (12, 12, "ok", "")


@pytest.mark.long
def test_the_broker_finds_the_large_outcome_among_many(lanes: Lanes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the limit cannot be asked: the batch is halved until the outcome stands alone; other lanes go on."""
    monkeypatch.setattr("onceflow_processor.relay.session.read_topic_bytes", lambda _kafka, _topic: None)
    too_large(lanes, 0, before=400, after=400)
    lanes.add(1, 2_000)
    with term(lanes) as session:
        assert run_dry(session) < 40
    assert lanes.state(0) == (801, 400, "stopped:unpublishable", "sequence 401: MSG_SIZE_TOO_LARGE")
    assert lanes.state(1)[:3] == (2_000, 2_000, "ok")
    assert lanes.sequences() == {0: list(range(1, 401)), 1: list(range(1, 2_001)), 2: []}


@pytest.mark.long
def test_a_refusal_that_comes_while_records_are_still_handed_over(
    lanes: Lanes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client then refuses all further records of the transaction; that is not a reason to begin again for ever."""
    monkeypatch.setattr("onceflow_processor.relay.session.read_topic_bytes", lambda _kafka, _topic: None)
    too_large(lanes, 0, before=2, after=30_000)
    with term(lanes, batch_records_max=40_000) as session:
        run_dry(session)
    assert lanes.state(0) == (30_003, 2, "stopped:unpublishable", "sequence 3: MSG_SIZE_TOO_LARGE")


def test_a_raised_limit_opens_the_lane_by_itself(lanes: Lanes, monkeypatch: pytest.MonkeyPatch) -> None:
    lanes.add(0, 3)
    limit = 30
    monkeypatch.setattr("onceflow_processor.relay.session.read_topic_bytes", lambda _kafka, _topic: 1_000 + limit)
    lanes.add(0, 1, value_bytes=2_000)
    publish_all(lanes)
    assert lanes.state(0)[2] == "stopped:unpublishable"
    limit = 10_000
    publish_all(lanes)
    assert lanes.state(0) == (4, 4, "ok", "")
    check_exactly_once(lanes, {0: 4, 1: 0, 2: 0})


def test_a_row_that_cannot_be_encoded_stops_its_lane(lanes: Lanes) -> None:
    lanes.add(0, 3)
    lanes.add(1, 3)
    lanes.sql("UPDATE onceflow.outcome SET headers = '{\"team\": 7}' WHERE lane = 0 AND seq = 2")
    publish_all(lanes)
    assert lanes.state(0)[:3] == (3, 1, "stopped:unpublishable")
    assert lanes.sequences() == {0: [1], 1: [1, 2, 3], 2: []}


def test_a_missing_row_stops_its_lane(lanes: Lanes) -> None:
    lanes.add(0, 3)
    lanes.add(1, 3)
    lanes.sql("DELETE FROM onceflow.outcome WHERE lane = 0 AND seq = 2")
    lanes.sql("DELETE FROM onceflow.outcome WHERE lane = 1")
    publish_all(lanes)
    assert lanes.state(0) == (3, 1, "stopped:diverged", "the database has no outcome with sequence 2")
    assert lanes.state(1)[2] == "stopped:diverged"
    assert lanes.sequences() == {0: [1], 1: [], 2: []}


def test_a_lane_in_recovery_is_left_alone(lanes: Lanes) -> None:
    lanes.add(0, 3)
    lanes.sql("UPDATE onceflow.lane SET state = 'recovering', detail = 'import' WHERE lane = 0")
    with term(lanes) as session:
        run_dry(session)
        assert lanes.state(0) == (3, 0, "recovering", "import")
        lanes.sql("UPDATE onceflow.lane SET state = 'ok', detail = '' WHERE lane = 0")
        run_dry(session)
    check_exactly_once(lanes, {0: 3, 1: 0, 2: 0})


def test_quiet_cursors_are_written_again_every_day(lanes: Lanes) -> None:
    lanes.add(0, 3)
    clock = Clock()
    with term(lanes, clock=clock) as session:
        run_dry(session)
        expected = lanes.cursor(0)
        delete_group(lanes)
        clock.ahead += RECOMMIT_SECONDS - 60
        session.step()
        assert lanes.cursor(0)[0] == -1001
        clock.ahead += 120
        session.step()
        assert lanes.cursor(0) == expected
    assert lanes.cursor(1)[0] == -1001, "a lane that never published anything has nothing to write"


def test_a_lost_lease_ends_the_term_and_writes_nothing_to_the_database(lanes: Lanes) -> None:
    lanes.add(0, 3)
    with term(lanes) as session:
        lanes.sql("UPDATE onceflow.lease SET token = token + 1, owner = 'another'")
        with pytest.raises(LeaseLost):
            run_dry(session)
    assert lanes.state(0)[:2] == (3, 0)


def test_a_second_term_fences_the_first(lanes: Lanes) -> None:
    lanes.add(0, 3)
    with term(lanes) as first:
        run_dry(first)
        lanes.sql("UPDATE onceflow.lease SET lease_until = clock_timestamp()")
        with term(lanes) as second:
            lanes.add(0, 3)
            with pytest.raises((LeaseLost, Unavailable)):
                run_dry(first)
            run_dry(second)
    check_exactly_once(lanes, {0: 6, 1: 0, 2: 0})


def test_lanes_that_do_not_fit_the_topic(lanes: Lanes) -> None:
    lanes.sql("DELETE FROM onceflow.lane WHERE lane = 2")
    with pytest.raises(Misconfigured, match="topic_mismatch"), term(lanes):
        pass
    lanes.sql("DELETE FROM onceflow.lane")
    with pytest.raises(Misconfigured, match="lanes_missing"), term(lanes):
        pass


def test_small_and_large_rows_in_bounded_pages(lanes: Lanes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onceflow_processor.relay.session.PAGE_BYTES_MAX", 60_000)
    lanes.add(0, 10, value_bytes=25_000)
    lanes.add(0, 200)
    with term(lanes) as session:
        assert run_dry(session) >= 4
    assert [sequence(one) for one in lanes.records()[0]] == list(range(1, 211))
