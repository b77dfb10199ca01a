"""What is gone from logs, what positions say of them, and records that only seem to be repeats: one road, in stages."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from onceflow_reconciler.verify import stripe_ledger
from onceflow_schemas.failure import Misconfigured
from onceflow_simulator import Simulator
from tests.processor.conftest import make_road as make_road  # noqa: PLC0414 - a fixture of this folder too
from tests.processor.processor_process import MakeRoad, wait_until
from tests.reconciler.verify.proving_road import ProvingRoad

DAY = 24 * 3600
ONE_MARKER = "(SELECT min(event_id) FROM onceflow.inbox WHERE state = 'processed')"
RETIRED = (
    "INSERT INTO onceflow.retention (name, gone_before) SELECT 'quarantine', now() {by} interval '1 day'"
    " ON CONFLICT (name) DO UPDATE SET gone_before = excluded.gone_before"
)


@pytest.fixture
def simulator() -> Iterator[Simulator]:
    # Stripe created its events two days before they come.
    with Simulator(seed=11, start=time.time() - 2 * DAY) as running:
        yield running


@pytest.fixture
def proving(make_road: MakeRoad, simulator: Simulator) -> ProvingRoad:
    return ProvingRoad(make_road(), simulator).settled()


def quiet(proving: ProvingRoad) -> list[str]:
    """Kinds of a look at a window in which nothing happened."""
    return [
        kind
        for kind, _, _ in proving.answer(with_stripe=False, since=datetime.now(UTC) + timedelta(hours=2)).unexplained
    ]


def delete_before(proving: ProvingRoad, topic: str, offsets: dict[int, int]) -> None:
    """Delete the beginnings of logs; -1 is all."""
    admin = AdminClient({"bootstrap.servers": proving.road.bootstrap})
    places = [TopicPartition(topic, number, offset) for number, offset in offsets.items()]
    for deleted in admin.delete_records(places).values():
        deleted.result(timeout=20)


def test_positions_that_do_not_fit_to_their_logs_are_convicted(
    proving: ProvingRoad, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert proving.kinds() == []
    altered = {
        "topic_id = topic_id || 'x'": "topic_replaced",
        "topic_id = 'x', topic = 'former'": "topic_not_asked",
        "next_offset = next_offset + 9": "position_beyond_topic",
    }
    for change, kind in altered.items():
        with proving.altered(f"UPDATE onceflow.progress SET {change}"):
            assert kind in proving.kinds(with_stripe=False), change
            assert kind in quiet(proving), change
    judge_rows(proving)
    judge_quiet_lanes(proving)
    judge_what_came_late(proving)
    judge_seeming_repeats(proving)
    judge_what_stands_still_and_what_was_read(proving)
    judge_deleted_records(proving)
    judge_young_events(proving, monkeypatch)


def judge_rows(proving: ProvingRoad) -> None:
    """What rows say of each other, and of their records."""
    with proving.altered(f"UPDATE onceflow.inbox SET state = 'ignored' WHERE event_id = {ONE_MARKER}"):
        assert "state_differs" in proving.kinds(with_stripe=False)
    with proving.altered(f"UPDATE onceflow.inbox SET type = 'x' WHERE event_id = {ONE_MARKER}"):
        assert proving.kinds(with_stripe=False) == ["marker_differs"]
    with proving.altered(f"UPDATE onceflow.inbox SET state = 'parked' WHERE event_id = {ONE_MARKER}"):
        proving.change(
            "INSERT INTO onceflow.parked_key (order_key, account, mode, event_id, reason, due_at)"
            " SELECT 'k', account, mode, event_id, 'retry', now() + interval '1 day' FROM onceflow.inbox WHERE state = 'parked'"
        )
        proving.change(
            'INSERT INTO onceflow.parked (account, mode, event_id, order_key, topic_id, partition, "offset", topic, value, headers, type)'
            " SELECT account, mode, event_id, 'k', topic_id, partition, \"offset\", 't', 'x', '{}', type"
            " FROM onceflow.inbox WHERE state = 'parked'"
        )
        assert proving.kinds(with_stripe=False) == ["parked_differs"]
        proving.change("UPDATE onceflow.parked_key SET event_id = 'evt_other'")
        assert proving.kinds(with_stripe=False) == ["parked_differs"] * 2
        proving.change("DELETE FROM onceflow.parked")
        proving.change("DELETE FROM onceflow.parked_key")


def judge_quiet_lanes(proving: ProvingRoad) -> None:
    assert quiet(proving) == []
    beyond = "UPDATE onceflow.lane SET head_seq = head_seq + 1, published_seq = published_seq + 1 WHERE head_seq > 0"
    with proving.altered(beyond):
        assert "published_beyond_topic" in quiet(proving)


def judge_what_came_late(proving: ProvingRoad) -> None:
    """The reconciler's look takes what was done since its last one, however long ago Stripe created it."""
    with proving.altered(f"DELETE FROM onceflow.inbox WHERE event_id = {ONE_MARKER}"):
        proving.change(
            "UPDATE onceflow.reconcile_cursor SET done_until = done_until - interval '2 hours' WHERE source = 'ledgers'"
        )
        proving.look()
        found = proving.road.rows("SELECT subject FROM onceflow.finding WHERE kind = 'record_without_state'")
    [told] = found
    [topic] = proving.road.rows("SELECT DISTINCT topic_id FROM onceflow.progress")
    assert told["subject"].endswith(f" of {topic['topic_id']}")


def judge_seeming_repeats(proving: ProvingRoad) -> None:
    """A record with an id of ours and other bytes is kept in quarantine, or it is told."""
    record = proving.first_record(proving.road.events)
    proving.append(proving.road.events, record, value=record.value().replace(b'"livemode"', b'"livemodf"'))
    with proving.road.processor():
        wait_until(lambda: proving.road.rows("SELECT FROM onceflow.quarantine") != [], "it is quarantined")
    assert proving.kinds(with_stripe=False) == []
    with proving.altered("DELETE FROM onceflow.quarantine"):
        assert proving.kinds(with_stripe=False) == ["record_without_state"]
        # What may be decided and deleted is forgotten; a marker is not deleted with it.
        proving.change(RETIRED.format(by="+"))
        assert proving.kinds(with_stripe=False) == ["retention_differs"], "and a book that says so of today is no good"
    with proving.altered(f"DELETE FROM onceflow.inbox WHERE event_id = {ONE_MARKER}"):
        assert set(proving.kinds(with_stripe=False)) == {"record_without_state", "retention_differs"}
    proving.change("DELETE FROM onceflow.retention")


def judge_what_stands_still_and_what_was_read(proving: ProvingRoad) -> None:
    """Rows about partitions, lanes, deployment and retention, each altered by hand."""
    convicted = {
        "UPDATE onceflow.progress SET fingerprint = reverse(fingerprint)": {"position_differs"},
        "UPDATE onceflow.progress SET stopped = 'range_lost'": {"partition_stopped"},
        "UPDATE onceflow.lane SET state = 'stopped:lane_gap' WHERE lane = 0": {"lane_stopped"},
    }
    for statement, kinds in convicted.items():
        with proving.altered(statement):
            assert set(proving.kinds(with_stripe=False)) == kinds, statement
    proving.change("INSERT INTO onceflow.retention (name, gone_before) VALUES ('outcome/0', now())")
    with proving.altered("DELETE FROM onceflow.outcome"):
        found = proving.answer(with_stripe=False).unexplained
        assert "retention_differs" in {kind for kind, _, _ in found}
    proving.change("DELETE FROM onceflow.retention")
    for statement in ("SET mode = 'live'", "SET id = 'another'"):
        [row] = proving.road.rows("SELECT id, mode FROM onceflow.deployment")
        proving.change(f"UPDATE onceflow.deployment {statement}")
        with pytest.raises(Misconfigured, match="belongs to deployment"):
            proving.answer(with_stripe=False)
        proving.change(f"UPDATE onceflow.deployment SET id = '{row['id']}', mode = '{row['mode']}'")
    assert proving.kinds(with_stripe=False) == []
    done = proving.run("verify", "--without-stripe", "--account", "acct_nope")
    assert (done.returncode, "acct_nope is not served here" in done.stderr) == (1, True), done.stderr


def judge_deleted_records(proving: ProvingRoad) -> None:
    """Younger than their topics keep them: somebody has deleted them."""
    road = proving.road
    [lane, *_] = road.rows("SELECT lane, max(seq) AS seq FROM onceflow.outcome GROUP BY lane ORDER BY 2 DESC")
    for offset in (1, -1):
        delete_before(proving, road.outcomes, {lane["lane"]: offset})
        assert proving.kinds(with_stripe=False) == ["records_deleted"]
    delete_before(proving, road.events, dict.fromkeys(range(3), -1))
    assert set(proving.kinds(with_stripe=False)) == {"records_deleted"}
    # Those that nobody has read yet.
    proving.make_events(["customer.created"])
    proving.bring()
    delete_before(proving, road.events, dict.fromkeys(range(3), -1))
    assert set(proving.kinds(with_stripe=False)) == {"records_deleted", "range_lost"}
    assert "range_lost" in quiet(proving)


def judge_young_events(proving: ProvingRoad, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is younger than the time of grace, and than the look itself, may be on its way either way."""
    assert proving.kinds().count("missed_event") == 1
    with monkeypatch.context() as patched:
        patched.setattr(stripe_ledger, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + 3600))
        assert "missed_event" not in proving.kinds()
    proving.simulator.reset()
    proving.simulator.advance(3600)
    assert "event_not_listed" in proving.kinds()
    proving.environment["ONCEFLOW_RECONCILER_GRACE_SECONDS"] = str(DAY)
    assert "event_not_listed" not in proving.kinds()
