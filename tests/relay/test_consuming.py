"""The consumer of docs/consuming.md against everything that the page tells it to expect."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import uuid
from datetime import UTC, datetime
from pathlib import Path

import pytest

from onceflow_schemas.identity import ce_id
from onceflow_schemas.outcome_record import OutcomeRow, outcome_headers, outcome_value
from tests.relay.lanes import Lanes, run_dry, term

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "consumer.py"
PAGE = EXAMPLE.parents[1] / "consuming.md"


def outcome(
    lane: int, seq: int, *, name: str | None = None, revision: int = 1, withheld: str | None = None
) -> OutcomeRow:
    """The ``seq``-th outcome of a lane; ``name`` gives it the identity of another one."""
    outcome_id = uuid.uuid5(uuid.NAMESPACE_URL, name or f"{lane}/{seq}")
    return OutcomeRow(
        lane=lane,
        seq=seq,
        outcome_id=outcome_id,
        revision=revision,
        ce_id=ce_id(outcome_id, revision),
        type="payment.done",
        key=f"cus_{lane}",
        value=json.dumps({"of": name or f"{lane}/{seq}", "revision": revision}).encode(),
        headers={},
        cause="event:acct_1/test/evt_1",
        withheld=withheld,
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
    )


@pytest.fixture
def consumer(tmp_path: Path) -> Path:
    """The example, with less patience."""
    text = EXAMPLE.read_text("utf-8")
    assert text.count("IDLE_SECONDS = 20") == 1
    copy = tmp_path / "consumer.py"
    copy.write_text(text.replace("IDLE_SECONDS = 20", "IDLE_SECONDS = 3"), "utf-8")
    return copy


class Topic:
    """Writes records as the relay would, and reads them with the example."""

    def __init__(self, lanes: Lanes, consumer: Path) -> None:
        self._lanes, self._consumer = lanes, consumer
        self._producer = lanes.transactional_producer(lanes.transactional_id)
        self._ready = consumer.with_name("ready.json")
        self._ready.write_text(json.dumps({"kafka_bootstrap": lanes.bootstrap, "outcome_topic": lanes.topic}))

    def write(self, *rows: OutcomeRow, refill: bool = False, abort: bool = False) -> None:
        self._producer.begin_transaction()
        for row in rows:
            headers = [*outcome_headers(row, deployment="d", refill=refill)]
            self._producer.produce(
                self._lanes.topic, outcome_value(row), row.key.encode(), row.lane, headers=dict(headers)
            )
        self._producer.flush(20)
        if abort:
            self._producer.abort_transaction(20)
        else:
            self._producer.commit_transaction(20)

    def read(self) -> tuple[list[str], list[str]]:
        """What the consumer takes and what it complains about."""
        state = self._consumer.with_name("outcomes.db")
        done = subprocess.run(
            [sys.executable, "-W", "error", str(self._consumer), str(self._ready), str(state)],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        complaints = [line for line in done.stderr.splitlines() if line.startswith("lane ")]
        return sorted(done.stdout.splitlines()), complaints

    def table(self) -> dict[str, int]:
        with sqlite3.connect(self._consumer.with_name("outcomes.db")) as store:
            rows = store.execute("SELECT data, revision FROM outcome").fetchall()
        store.close()
        return {json.loads(data)["of"]: revision for data, revision in rows}


def line(row: OutcomeRow) -> str:
    return f"{row.lane} {row.seq} payment.done {row.value.decode()}"


def test_aborted_refilled_revised_and_withheld(lanes: Lanes, consumer: Path) -> None:
    topic = Topic(lanes, consumer)
    one, two, three = outcome(0, 1), outcome(0, 2), outcome(0, 3)
    topic.write(one, two, abort=True)
    topic.write(one, two)
    topic.write(one, refill=True)
    topic.write(three, outcome(0, 4, withheld="too_large"), outcome(1, 1))
    revised = outcome(0, 5, name="0/2", revision=2)
    topic.write(revised)
    taken, complaints = topic.read()
    assert taken == sorted(line(row) for row in (one, two, three, revised, outcome(1, 1)))
    assert complaints == ["lane 0 sequence 4 withheld: too_large"]
    assert topic.table() == {"0/1": 1, "0/2": 2, "0/3": 1, "1/1": 1}


def test_a_loss_is_seen_and_healed_by_a_refill(lanes: Lanes, consumer: Path) -> None:
    topic = Topic(lanes, consumer)
    topic.write(outcome(0, 1), outcome(0, 4))
    taken, complaints = topic.read()
    assert taken == [line(outcome(0, 1)), line(outcome(0, 4))]
    assert complaints == ["lane 0: 2 to 3 LOST"]
    topic.write(outcome(0, 3), outcome(0, 2), refill=True)
    topic.write(outcome(0, 5))
    taken, complaints = topic.read()
    assert taken == [line(outcome(0, 2)), line(outcome(0, 3)), line(outcome(0, 5))], "it goes on where it ended"
    assert complaints == []


def test_a_lower_revision_that_comes_late_changes_nothing(lanes: Lanes, consumer: Path) -> None:
    topic = Topic(lanes, consumer)
    topic.write(outcome(0, 2, name="a", revision=2))
    topic.write(outcome(0, 1, name="a"), refill=True)
    taken, _ = topic.read()
    assert taken == [line(outcome(0, 2, name="a", revision=2))]
    assert topic.table() == {"a": 2}


def test_what_the_relay_publishes(lanes: Lanes, consumer: Path) -> None:
    lanes.add(0, 5)
    lanes.add(2, 2)
    with term(lanes) as session:
        run_dry(session)
    consumer.with_name("ready.json").write_text(
        json.dumps({"kafka_bootstrap": lanes.bootstrap, "outcome_topic": lanes.topic})
    )
    done = subprocess.run(
        [sys.executable, str(consumer), str(consumer.with_name("ready.json"))],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    found = [tuple(text.split(" ", 2)[:2]) for text in done.stdout.splitlines()]
    assert sorted(found) == [("0", "1"), ("0", "2"), ("0", "3"), ("0", "4"), ("0", "5"), ("2", "1"), ("2", "2")]


def test_the_page_names_every_header_of_the_schema() -> None:
    page = PAGE.read_text("utf-8")
    row = outcome(0, 1, withheld="too_large")
    for name, _ in outcome_headers(row, deployment="d", refill=True):
        assert f"`{name}" in page or name in {"ce_specversion", "content-type"}, name
