"""The proof on real topics and a real database: a healthy system is proved, and a ledger that was tampered with is convicted."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from onceflow_reconciler.verify import event_ledger, folding, outcome_fold, outcome_ledger, proving, tables
from onceflow_reconciler.verify.outcome_fold import FoldBeside
from onceflow_simulator import Simulator
from tests.processor.conftest import make_road as make_road  # noqa: PLC0414 - a fixture of this folder too
from tests.processor.processor_process import MakeRoad
from tests.reconciler.verify.proving_road import WORDS, ProvingRoad, lasting_road

PLACES = 2
"""So few places of a block that some blocks are proved and others differ."""


@pytest.fixture
def simulator() -> Iterator[Simulator]:
    with Simulator(seed=11) as running:
        yield running


@pytest.fixture(scope="module", autouse=True)
def small_blocks() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        for module in (folding, tables, event_ledger, outcome_ledger):
            patched.setattr(module, "BLOCK_PLACES", PLACES)
        # Nobody notes anything meanwhile.
        patched.setattr(proving, "NOTED_SECONDS", 0.01)
        yield


@pytest.fixture(scope="module")
def kept(kafka_bootstrap: str, database_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProvingRoad]:
    """A road that each test leaves as it was."""
    folder = tmp_path_factory.mktemp("kept")
    with lasting_road(kafka_bootstrap=kafka_bootstrap, database_url=database_url, folder=folder) as made:
        yield made


def test_a_healthy_system_is_proved(kept: ProvingRoad, tmp_path: Path) -> None:
    events = len(kept.road.states())
    proof = tmp_path / "proof.json"
    done = kept.run("verify", "--proof", str(proof))
    assert done.stdout.splitlines()[-1] == f"verify: {events} events, 0 unexplained"
    assert done.returncode == 0, done.stderr
    assert json.loads(proof.read_text())["events"] == events
    told = kept.verify("--proof", str(proof))
    [account] = told["counts"]["stripe"].values()
    assert account["listed_now"] == events
    assert sum(told["counts"]["records"].values()) == events
    assert told["counts"]["outcomes"] == {"written": 3, "published": 3}
    # A window that holds everything, and one that holds nothing.
    recent = datetime.now(UTC) - timedelta(hours=1)
    answer = kept.answer(since=recent)
    assert (answer.events, answer.unexplained, answer.counts["outcomes"]["written"]) == (events, (), 3)
    told = kept.verify("--until", recent.isoformat(), "--without-stripe")
    assert (told["events"], told["unexplained"]) == (0, 0)


def test_a_ledger_that_cannot_be_read_proves_nothing(kept: ProvingRoad) -> None:
    kept.simulator.add_key("rk_test_narrow", permissions=[])
    away = kept.run("verify", STRIPE_API_KEY="rk_test_narrow")
    assert away.returncode == 5
    assert "0 unexplained" not in away.stdout
    assert "stripe_not_readable" in away.stderr
    assert "rak_event_read" in away.stderr
    assert kept.run("verify", "--without-stripe", STRIPE_API_KEY="rk_test_narrow").returncode == 0


ONE_MARKER = "(SELECT min(event_id) FROM onceflow.inbox WHERE state = 'processed')"
DATABASE = {
    "marker_dropped": (f"DELETE FROM onceflow.inbox WHERE event_id = {ONE_MARKER}", "record_without_state"),
    "marker_altered": (
        f"UPDATE onceflow.inbox SET body_sha256 = sha256('x') WHERE event_id = {ONE_MARKER}",
        "marker_differs",
    ),
    "marker_of_another_time": (
        f"UPDATE onceflow.inbox SET event_created = event_created - interval '5 hours' WHERE event_id = {ONE_MARKER}",
        "marker_differs",
    ),
    "marker_without_time": (
        f"UPDATE onceflow.inbox SET event_created = NULL WHERE event_id = {ONE_MARKER}",
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


def test_a_database_that_was_tampered_with_is_convicted(kept: ProvingRoad) -> None:
    for name, (statement, kind) in DATABASE.items():
        with kept.altered(statement.replace("%%", "%")):
            found = kept.kinds(with_stripe=kind == "event_differs")
        assert found, name
        assert kind is None or kind in found, (name, found)
    assert kept.kinds() == []
    # A marker whose time was moved out of the window is held against its record, which is of the window.
    with kept.altered(DATABASE["marker_of_another_time"][0]):
        window = kept.answer(with_stripe=False, since=datetime.now(UTC) - timedelta(hours=1))
    assert "marker_differs" in {kind for kind, _, _ in window.unexplained}


def test_what_is_quarantined_while_a_block_is_proved_is_no_difference(
    kept: ProvingRoad, monkeypatch: pytest.MonkeyPatch
) -> None:
    def quarantined_meanwhile(*given: Any) -> None:
        kept.change(
            'INSERT INTO onceflow.quarantine (topic_id, topic, partition, "offset", code, detail, headers, value)'
            " SELECT topic_id, 'x', partition, \"offset\", 'x', 'x', '[]', '{}' FROM onceflow.inbox WHERE state = 'processed' LIMIT 1"
        )
        event_ledger.note_ends(*given)

    monkeypatch.setattr(proving, "note_ends", quarantined_meanwhile)
    with kept.altered():
        assert kept.answer(with_stripe=False).unexplained == ()
        monkeypatch.undo()
        assert "quarantine_differs" in kept.kinds(with_stripe=False), "it was written"


def test_outcomes_that_another_process_has_folded_are_the_same(
    kept: ProvingRoad, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The other process knows nothing of smaller blocks.
    for module in (folding, tables, event_ledger, outcome_ledger):
        monkeypatch.setattr(module, "BLOCK_PLACES", 1_000)
    monkeypatch.setattr(outcome_ledger, "BESIDE_RECORDS_MIN", 0)
    answers: list[Any] = []
    blocks = FoldBeside.blocks

    def noted(beside: FoldBeside) -> Any:
        answers.append((beside, blocks(beside)))
        return answers[-1][1]

    monkeypatch.setattr(FoldBeside, "blocks", noted)
    assert kept.answer(with_stripe=False).unexplained == ()
    [(beside, found)] = answers
    assert beside._process.returncode is not None, "it has ended"
    assert sum(len(one._blocks) for one in found.values()) > 0
    # One that dies, and one that is not there: this process does it.
    for command in ((sys.executable, "-c", "pass"), ("/nowhere",)):
        monkeypatch.setattr(outcome_fold, "_COMMAND", command)
        assert kept.answer(with_stripe=False).unexplained == ()
    assert [found for _, found in answers[1:]] == [None]
    with kept.altered(DATABASE["outcome_altered"][0]):
        assert kept.kinds(with_stripe=False) == ["outcome_differs"]


def test_lists_of_stripe_and_topics_that_were_tampered_with_are_convicted(
    make_road: MakeRoad, simulator: Simulator
) -> None:
    proving = ProvingRoad(make_road(), simulator).settled()
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
    assert proving.kinds(with_stripe=False) == ["record_doubled"]
    proving.append(road.events, record, value=b"{}")
    assert proving.kinds(with_stripe=False) == ["foreign_record", "record_doubled"]
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

    # Somebody appends to the outcomes: one twice, one that says nothing, and one of a sequence that nobody gave.
    outcome, before = proving.first_record(road.outcomes), set(proving.kinds(with_stripe=False))
    proving.append(road.outcomes, outcome)
    assert set(proving.kinds(with_stripe=False)) - before == {"outcome_doubled", "lane_gap"}
    proving.append(road.outcomes, outcome, headers=[])
    assert "outcome_foreign" in proving.kinds(with_stripe=False)
    far = [(name, b"7777" if name == "onceflow_sequence" else text) for name, text in outcome.headers()]
    proving.append(road.outcomes, outcome, headers=far)
    assert {"outcome_without_row", "published_behind_topic"} <= set(proving.kinds(with_stripe=False))


def test_records_that_are_gone_from_the_end_of_the_event_topic_are_told(kept: ProvingRoad) -> None:
    """As after a broker's folder was put back: the ledger knows more than the topic."""
    with kept.altered(
        'UPDATE onceflow.inbox SET "offset" = "offset" + 1000',
        "UPDATE onceflow.progress SET next_offset = next_offset + 2000",
    ):
        assert "topic_lost_records" in kept.kinds(with_stripe=False)
    assert kept.road.stopped() == {}


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
    assert (answer.unexplained, stripe["listed_before"], stripe["listed_now"]) == ((), 0, events), "it was read early"
    made.change("UPDATE onceflow.reconcile_hour SET listed_at = hour + interval '25 hours'")
    answer = made.answer()
    [stripe] = answer.counts["stripe"].values()
    assert (answer.unexplained, stripe["listed_before"], stripe["listed_now"]) == ((), events, 0)
    with made.altered(f"DELETE FROM onceflow.inbox WHERE event_id = {ONE_MARKER}"):
        answer = made.answer()
    [stripe] = answer.counts["stripe"].values()
    assert (stripe["listed_before"], stripe["listed_now"]) == (0, events)
    assert {kind for kind, _, _ in answer.unexplained} >= {"record_without_state", "missed_event"}
