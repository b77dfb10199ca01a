"""Outcomes of the topic come back into a database that was put back: each once, whatever dies meanwhile, and nothing that is not ours."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from onceflow_processor.relay import lane_import
from onceflow_processor.relay.importing import Imported
from onceflow_processor.relay.lane_store import ImportPage, LaneStore, connect
from onceflow_processor.relay.lease import Lease, lease_name
from onceflow_schemas.failure import LeaseLost, Unavailable
from onceflow_schemas.told_facts import fact_digest, headers_by_cause
from tests.every_run import mostly_long
from tests.processor.database_copies import DatabaseCopies, copies_of
from tests.relay.lanes import DEPLOYMENT, Lanes, check_exactly_once, read_all, run_dry, term, wait_for

SCRIPT = Path(__file__).with_name("import_process.py")
ONE = uuid.UUID(int=1)
FACTS = {("paid", "pi_1"): "app:x", ("paid", "pi_2"): "app:x"}
ROW = "lane, seq, outcome_id, revision, ce_id, type, key, value, headers::text, cause, withheld, created_at"


@pytest.fixture
def copies(lanes: Lanes) -> Iterator[DatabaseCopies]:
    with copies_of(lanes.database_url) as made:
        yield made


def rows(lanes: Lanes) -> list[tuple[object, ...]]:
    return lanes.sql(f"SELECT {ROW} FROM onceflow.outcome ORDER BY lane, seq")


def publish_all(lanes: Lanes) -> None:
    with term(lanes) as session:
        run_dry(session)


def settle(lanes: Lanes) -> None:
    """Step until all lanes are open and published: an import goes on at each look."""
    with term(lanes) as session:
        for _ in range(20):
            session.step()
            if all(lanes.state(lane)[2] == "ok" for lane in range(3)) and lanes.all_published():
                return
    raise AssertionError([lanes.state(lane) for lane in range(3)])


def put_back(
    lanes: Lanes, copies: DatabaseCopies, *, before: int = 300, after: int = 1_000
) -> list[tuple[object, ...]]:
    """Publish, copy the database, publish more with everything that a row may hold, put the copy back; return the latest rows."""
    lanes.sql(
        "INSERT INTO onceflow.deployment (id, accounts, mode, system_id, timeline) VALUES (%s, '{acct_1}', 'test', 1, 1)",
        [DEPLOYMENT],
    )
    lanes.add(0, before)
    lanes.add(1, 5)
    publish_all(lanes)
    copy = copies.take()
    lanes.add(0, after)
    lanes.add(2, 7)
    lanes.sql(
        "UPDATE onceflow.outcome SET cause = 'operation:' || outcome_id || '/succeeded' WHERE lane = 2 AND seq < 4"
    )
    lanes.sql(
        "UPDATE onceflow.outcome SET headers = '{\"team\":\"a\"}', withheld = 'too_large', value = '{}' WHERE lane = 2 AND seq = 5"
    )
    lanes.sql(
        "UPDATE onceflow.outcome SET headers = %s::json WHERE lane = 2 AND seq < 3", [*headers_by_cause(FACTS).values()]
    )
    publish_all(lanes)
    latest = rows(lanes)
    copies.put_back(copy)
    return latest


def test_what_the_topic_knows_comes_back_with_every_column(lanes: Lanes, copies: DatabaseCopies) -> None:
    latest = put_back(lanes, copies)
    settle(lanes)
    headers_of_withheld = "{}"
    expected = [(*one[:8], headers_of_withheld, *one[9:]) if one[10] else one for one in latest]
    assert rows(lanes) == expected
    check_exactly_once(lanes, {0: 1_300, 1: 5, 2: 7})
    assert lanes.state(0) == (1_300, 1_300, "ok", "")
    assert lanes.sql("SELECT count(*) FROM onceflow.outcome WHERE imported_at IS NOT NULL") == [(1_007,)]
    assert lanes.sql("SELECT restores FROM onceflow.deployment") == [(1,)], "two lanes, one restore"
    causes = {str(cause) for _, cause in lanes.sql("SELECT digest, cause FROM onceflow.imported_fact")}
    assert lanes.sql("SELECT digest FROM onceflow.imported_fact ORDER BY 1") == sorted(
        (fact_digest(*one),) for one in FACTS
    )
    assert len(causes) == 1, "of two causes that tell one fact the first counts"
    audit = lanes.sql("SELECT who, action, subject, after->>'head' FROM onceflow.audit ORDER BY subject")
    assert audit == [("test", "lane_import", "lane 0", "1300"), ("test", "lane_import", "lane 2", "7")]
    lanes.add(0, 3)
    publish_all(lanes)
    check_exactly_once(lanes, {0: 1_303, 1: 5, 2: 7})


@pytest.mark.parametrize(
    ("step", "page_number"),
    mostly_long(
        [
            ("before_page", 1),
            ("after_page", 1),
            ("before_page", 4),
            ("after_page", 4),
            ("after_page", 10),
            ("before_open", 0),
        ],
        every_run=[("after_page", 4), ("before_open", 0)],
    ),
)
def test_a_relay_killed_in_the_import_leaves_it_to_the_next(
    lanes: Lanes, copies: DatabaseCopies, step: str, page_number: int
) -> None:
    put_back(lanes, copies)
    options = lanes.options("dying", step=step, page_number=page_number)
    with (lanes.folder / "dying.log").open("wb") as log:
        process = subprocess.Popen([sys.executable, str(SCRIPT), json.dumps(options)], stdout=log, stderr=log)
    lanes.processes.append(process)
    wait_for(lambda: process.poll() is not None, "the relay has died")
    assert process.returncode == -9, (lanes.folder / "dying.log").read_text()
    assert lanes.state(0)[2] in ("behind", "recovering")
    lanes.start("next")
    wait_for(lambda: all(lanes.state(lane)[2] == "ok" for lane in range(3)) and lanes.all_published(), "all is open")
    check_exactly_once(lanes, {0: 1_300, 1: 5, 2: 7})


def test_a_page_of_a_former_relay_is_refused(lanes: Lanes, copies: DatabaseCopies) -> None:
    put_back(lanes, copies, before=3, after=5)
    with connect(lanes.database_url, role="test", prepared=True) as connection:
        name = lease_name(lanes.topic)
        lease = Lease(connection, name=name, owner="test", ttl_seconds=60.0, clock=time.monotonic)
        assert lease.acquire()
        row = Imported(4, ONE, 1, ONE, "t", "k", b"{}", "{}", "app:x", None, "2026-01-01T00:00:00.000000Z")
        page = ImportPage(0, 3, 4, [row])
        store = LaneStore(connection, lease_name=name)
        with pytest.raises(Unavailable):
            store.import_page(lease.token, page, who="test")  # The lane is not behind: nobody has looked.
        lanes.sql("UPDATE onceflow.lane SET state = 'behind' WHERE lane = 0")
        with pytest.raises(LeaseLost):
            store.import_page(lease.token - 1, page, who="test")
        assert lanes.state(0)[0] == 3
        assert store.import_page(lease.token, page, who="test") is None
        with pytest.raises(Unavailable):
            store.import_page(lease.token, page, who="test")
    assert lanes.state(0)[0] == 4


@pytest.mark.parametrize("wrong", ["deployment", "id", "gap"])
def test_what_is_not_ours_is_not_imported(lanes: Lanes, copies: DatabaseCopies, wrong: str) -> None:
    put_back(lanes, copies, before=3, after=2)
    outcome = uuid.uuid4()
    headers = {
        "ce_id": str(uuid.uuid4() if wrong == "id" else outcome),
        "ce_source": "urn:onceflow:" + ("other" if wrong == "deployment" else DEPLOYMENT),
        "ce_type": "payment.done",
        "ce_time": "2026-01-01T00:00:00.000000Z",
        "onceflow_lane": "0",
        "onceflow_sequence": "9" if wrong == "gap" else "6",
        "onceflow_cause": "app:x",
        "onceflow_outcome_id": str(outcome),
        "onceflow_revision": "1",
        "ce_subject": "k",
    }
    producer = Producer({"bootstrap.servers": lanes.bootstrap})
    producer.produce(lanes.topic, b"{}", b"k", partition=0, headers=list(headers.items()))
    assert producer.flush(20) == 0
    delete_group(lanes)
    with term(lanes) as session:
        for _ in range(5):
            session.step()
    head, _, state, detail = lanes.state(0)
    assert (head, state) == (5, "stopped:not_importable")
    assert ("9" if wrong == "gap" else "6") in detail
    assert lanes.state(2)[2] == "ok", "other lanes go on"
    with term(lanes) as session:
        session.step()
    assert lanes.state(0) == (5, 3, "stopped:not_importable", detail), "a later look changes nothing"


def test_records_that_retention_took_are_not_made_up(lanes: Lanes, copies: DatabaseCopies) -> None:
    put_back(lanes, copies, before=3, after=5)
    admin = AdminClient({"bootstrap.servers": lanes.bootstrap})
    end = read_all(lanes.bootstrap, lanes.topic, partitions=3)[0][-1].offset()
    assert end is not None
    for answer in admin.delete_records([TopicPartition(lanes.topic, 0, end)]).values():
        answer.result(20)
    with term(lanes) as session:
        for _ in range(3):
            session.step()
    assert lanes.state(0)[:3] == (3, 3, "stopped:not_importable")


def test_a_slice_that_ends_early_goes_on_at_the_next_look(
    lanes: Lanes, copies: DatabaseCopies, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane_import, "PAGE_ROWS_MAX", 400)
    monkeypatch.setattr(lane_import, "SLICE_SECONDS_MAX", 0.0)
    put_back(lanes, copies)
    with term(lanes):
        assert lanes.state(0)[0] == 700, "one page at a look"
        assert lanes.state(0)[2] == "recovering"
    settle(lanes)
    check_exactly_once(lanes, {0: 1_300, 1: 5, 2: 7})


def delete_group(lanes: Lanes) -> None:
    admin = AdminClient({"bootstrap.servers": lanes.bootstrap})
    admin.delete_consumer_groups([lanes.group])[lanes.group].result(20)
