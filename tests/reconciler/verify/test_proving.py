"""The proof on real topics and a real database: a healthy system is proved, and a ledger that was tampered with is convicted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

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
    # A window that holds everything, and one that holds nothing.
    recent = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
    told = proving.verify("--since", recent)
    assert (told["events"], told["unexplained"], told["counts"]["outcomes"]["written"]) == (events, 0, 3)
    told = proving.verify("--until", recent, "--without-stripe")
    assert (told["events"], told["unexplained"]) == (0, 0)
    proof = tmp_path / "proof.json"
    assert proving.verify("--proof", str(proof))["unexplained"] == 0
    assert json.loads(proof.read_text())["events"] == events
    assert proving.verify("--proof", str(proof))["unexplained"] == 0
    # A ledger that cannot be read proves nothing.
    proving.simulator.add_key("rk_test_narrow", permissions=[])
    away = proving.run("verify", STRIPE_API_KEY="rk_test_narrow")
    assert away.returncode == 5
    assert "0 unexplained" not in away.stdout
    assert "stripe_not_readable" in away.stderr
    assert "rak_event_read" in away.stderr
    assert proving.run("verify", "--without-stripe", STRIPE_API_KEY="rk_test_narrow").returncode == 0


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
        (
            "INSERT INTO onceflow.inbox SELECT account, mode, event_id || '2', state, type, object_id, api_version, topic_id,"
            ' partition, "offset", body_sha256, event_created, received_at, processed_at, handler_set FROM onceflow.inbox'
            f" WHERE event_id = {ONE_MARKER}"
        ),
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
        (
            "UPDATE onceflow.outcome SET ce_id = gen_random_uuid()"
            " WHERE (lane, seq) = (SELECT lane, max(seq) FROM onceflow.outcome GROUP BY 1 LIMIT 1)"
        ),
        "outcome_differs",
    ),
    "outcome_doubled": (
        (
            "INSERT INTO onceflow.outcome SELECT lane, seq + 1, gen_random_uuid(), revision, gen_random_uuid(), type, key, value,"
            " headers, cause, withheld, created_at FROM onceflow.outcome"
            " WHERE (lane, seq) = (SELECT lane, max(seq) FROM onceflow.outcome GROUP BY 1 LIMIT 1)"
        ),
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


def test_lists_of_stripe_and_the_event_topic_that_were_tampered_with_are_convicted(proving: ProvingRoad) -> None:
    former = proving.answer().proof
    road = proving.road
    record = proving.first_record(road.events)
    # A list that contradicts itself proves nothing.
    proving.simulator.faults.add("item_without_id", match={"path": "/v1/events"}, times=1000)
    assert proving.kinds() == ["list_unbelievable"]
    proving.simulator.faults.clear()
    # Stripe has one more; on its way to the processor it is explained.
    proving.make_events(["customer.created"])
    assert proving.kinds() == ["missed_event"]
    proving.bring()
    answer = proving.answer()
    assert (answer.unexplained, answer.counts["records"]["not_yet_due"]) == ((), 1)
    # Somebody appends: one record twice, and one that nobody vouches for.
    proving.append(road.events, record)
    assert proving.kinds() == ["record_doubled"]
    proving.append(road.events, record, value=b"{}")
    assert proving.kinds() == ["foreign_record", "record_doubled"]
    # Stripe has forgotten all: what the ledger has is listed by nobody.
    proving.simulator.reset()
    assert "event_not_listed" in proving.kinds()
    # An earlier proof knows what this hour held.
    hours = {
        account: {hour: {**one, "settled": True} for hour, one in told.items()}
        for account, told in former["hours"].items()
    }
    changed = proving.answer(with_stripe=False, former={**former, "hours": hours})
    assert "proof_differs" in {kind for kind, _, _ in changed.unexplained}


def test_records_that_are_gone_from_the_end_of_the_event_topic_are_told(proving: ProvingRoad) -> None:
    """As after a broker's folder was put back: the ledger knows more than the topic."""
    road = proving.road
    with proving.altered(
        'UPDATE onceflow.inbox SET "offset" = "offset" + 1000',
        "UPDATE onceflow.progress SET next_offset = next_offset + 2000",
    ):
        assert "topic_lost_records" in proving.kinds()
    assert road.stopped() == {}


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


def test_an_hour_that_was_read_as_a_whole_is_listed_again_only_where_it_differs(
    make_road: MakeRoad, simulator: Simulator
) -> None:
    made = ProvingRoad(make_road(), simulator)
    made.environment["ONCEFLOW_RECONCILER_FIRST_HOURS"] = "4"
    made.make_events(WORDS)
    simulator.advance(3 * 3600)
    made.settle(made.bring() // 2)  # The hour of the events is read twice: in passing, and as a whole.
    events = len(made.road.states())
    [row] = made.road.rows("SELECT listed FROM onceflow.reconcile_hour")
    assert row["listed"] == events
    answer = made.answer()
    [stripe] = answer.counts["stripe"].values()
    assert (answer.unexplained, stripe["listed_before"], stripe["listed_now"]) == ((), events, 0)
    with made.altered(f"DELETE FROM onceflow.inbox WHERE event_id = {ONE_MARKER}"):
        answer = made.answer()
    [stripe] = answer.counts["stripe"].values()
    assert (stripe["listed_before"], stripe["listed_now"]) == (0, events)
    assert {kind for kind, _, _ in answer.unexplained} >= {"record_without_state", "missed_event"}
