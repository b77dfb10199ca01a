"""The proof on real topics and a real database: a healthy system is proved, and a ledger that was tampered with is convicted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from onceflow_simulator import Simulator
from tests.processor.conftest import make_road as make_road  # noqa: PLC0414 - a fixture of this folder too
from tests.processor.processor_process import MakeRoad
from tests.reconciler.verify.proving_road import ProvingRoad

WORDS = ["invoice.paid"] * 3 + ["refund.created"]


@pytest.fixture
def simulator() -> Iterator[Simulator]:
    with Simulator(seed=11) as running:
        yield running


@pytest.fixture
def proving(make_road: MakeRoad, simulator: Simulator) -> ProvingRoad:
    made = ProvingRoad(make_road(), simulator)
    made.make_events(WORDS)
    made.settle(made.bring())
    return made


def test_a_healthy_system_is_proved(proving: ProvingRoad, tmp_path: Path) -> None:
    done = proving.run("verify")
    events = len(proving.road.states())
    assert done.stdout.splitlines()[-1] == f"verify: {events} events, 0 unexplained"
    assert done.returncode == 0, done.stderr
    told = proving.verify()
    [account] = told["counts"]["stripe"].values()
    assert account["listed_now"] == events
    assert sum(told["counts"]["records"].values()) == events
    assert told["counts"]["outcomes"] == {"written": 3, "published": 3}
    # A record that waits behind the processor's position is explained, and so is one that was delivered twice.
    proof = tmp_path / "proof.json"
    assert proving.verify("--proof", str(proof))["unexplained"] == 0
    assert json.loads(proof.read_text())["events"] == events
    assert proving.verify("--proof", str(proof))["unexplained"] == 0
    # A ledger that cannot be read proves nothing.
    away = proving.run("verify", STRIPE_API_KEY="sk_test_wrong")
    assert away.returncode == 5
    assert "0 unexplained" not in away.stdout
    assert proving.run("verify", "--without-stripe", STRIPE_API_KEY="sk_test_wrong").returncode == 0
    assert proving.run("verify", ONCEFLOW_KAFKA_BOOTSTRAP_SERVERS="127.0.0.1:1").returncode == 5


ONE_MARKER = "(SELECT min(event_id) FROM onceflow.inbox WHERE state = 'processed')"
DATABASE = {
    "marker_dropped": (f"DELETE FROM onceflow.inbox WHERE event_id = {ONE_MARKER}", "record_without_state"),
    "marker_altered": (
        f"UPDATE onceflow.inbox SET body_sha256 = sha256('x') WHERE event_id = {ONE_MARKER}",
        "marker_differs",
    ),
    "marker_moved": (
        f'UPDATE onceflow.inbox SET "offset" = "offset" + 1, partition = (partition + 1) %% 3 WHERE event_id = {ONE_MARKER}',
        None,
    ),
    "marker_of_another_type": (f"UPDATE onceflow.inbox SET type = 'x' WHERE event_id = {ONE_MARKER}", "event_differs"),
    "marker_doubled": (
        "INSERT INTO onceflow.inbox SELECT account, mode, event_id || '2', state, type, object_id, api_version, topic_id,"
        ' partition, "offset", body_sha256, event_created, received_at, processed_at, handler_set FROM onceflow.inbox'
        f" WHERE event_id = {ONE_MARKER}",
        "marker_without_record",
    ),
    "marker_parked": (f"UPDATE onceflow.inbox SET state = 'parked' WHERE event_id = {ONE_MARKER}", "parked_lacks"),
    "marker_quarantined": (
        f"UPDATE onceflow.inbox SET state = 'quarantined' WHERE event_id = {ONE_MARKER}",
        "quarantine_lacks",
    ),
    "outcome_dropped": (
        "DELETE FROM onceflow.outcome WHERE (lane, seq) = (SELECT lane, max(seq) FROM onceflow.outcome GROUP BY 1 LIMIT 1)",
        "outcome_without_row",
    ),
    "outcome_altered": (
        "UPDATE onceflow.outcome SET value = '{}' WHERE (lane, seq) = (SELECT lane, max(seq) FROM onceflow.outcome GROUP BY 1 LIMIT 1)",
        "outcome_differs",
    ),
    "outcome_of_another_id": (
        "UPDATE onceflow.outcome SET ce_id = gen_random_uuid()"
        " WHERE (lane, seq) = (SELECT lane, max(seq) FROM onceflow.outcome GROUP BY 1 LIMIT 1)",
        "outcome_differs",
    ),
    "outcome_doubled": (
        "INSERT INTO onceflow.outcome SELECT lane, seq + 1, gen_random_uuid(), revision, gen_random_uuid(), type, key, value,"
        " headers, cause, withheld, created_at FROM onceflow.outcome"
        " WHERE (lane, seq) = (SELECT lane, max(seq) FROM onceflow.outcome GROUP BY 1 LIMIT 1)",
        "lane_rows_missing",
    ),
    "published_too_high": (
        "UPDATE onceflow.lane SET head_seq = head_seq + 1, published_seq = published_seq + 1",
        "published_beyond_topic",
    ),
    "published_too_low": (
        "UPDATE onceflow.lane SET published_seq = published_seq - 1 WHERE published_seq > 0",
        "published_behind_topic",
    ),
}


def test_a_database_that_was_tampered_with_is_convicted(proving: ProvingRoad) -> None:
    for name, (statement, kind) in DATABASE.items():
        with proving.altered(statement.replace("%%", "%")):
            found = proving.kinds()
        assert found, name
        assert kind is None or kind in found, (name, found)
    assert proving.kinds() == []


def test_lists_of_stripe_and_the_event_topic_that_were_tampered_with_are_convicted(proving: ProvingRoad, tmp_path: Path) -> None:
    proof = tmp_path / "proof.json"
    assert proving.kinds("--proof", str(proof)) == []
    road = proving.road
    record = proving.first_record(road.events)
    # Stripe has one more; the same, known, is no difference.
    proving.make_events(["customer.created"])
    assert set(proving.kinds()) == {"missed_event"}
    proving.bring()
    told = proving.verify()
    assert (told["unexplained"], told["counts"]["records"]["not_yet_due"]) == (0, 1)
    # Somebody appends: one record twice, and one that nobody vouches for.
    proving.append(road.events, record)
    assert proving.kinds() == ["record_doubled"]
    proving.append(road.events, record, value=b"{}")
    assert sorted(proving.kinds()) == ["foreign_record", "record_doubled"]
    # Stripe has forgotten all: what the ledger has is listed by nobody.
    proving.simulator.reset()
    assert "event_not_listed" in proving.kinds()
    # The log has lost a record that lay in front of others.
    place = TopicPartition(road.events, record.partition(), record.offset() + 1)
    admin = AdminClient({"bootstrap.servers": road.bootstrap})
    admin.delete_records([place])[place].result(20)
    assert proving.run("verify", "--without-stripe", "--proof", str(proof)).returncode == 1


def test_an_outcome_topic_that_was_tampered_with_is_convicted(proving: ProvingRoad) -> None:
    road = proving.road
    record = proving.first_record(road.outcomes)
    proving.append(road.outcomes, record)
    assert set(proving.kinds()) == {"outcome_doubled", "lane_gap"}
    proving.append(road.outcomes, record, headers=[])
    assert "outcome_foreign" in proving.kinds()
    changed = [(name, b"7777" if name == "onceflow_sequence" else text) for name, text in record.headers()]
    proving.append(road.outcomes, record, headers=changed)
    assert {"outcome_without_row", "published_behind_topic"} <= set(proving.kinds())
