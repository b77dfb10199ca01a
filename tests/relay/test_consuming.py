"""The consumers of docs/consuming.md, in each language, against everything that the page tells them to expect."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from onceflow_schemas.identity import ce_id
from onceflow_schemas.outcome_record import OutcomeRow, outcome_headers, outcome_value
from tests.relay.lanes import Lanes, run_dry, term

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
PAGE = EXAMPLES.parent / "consuming.md"
NO_NODE = "the Node example cannot be tried: {} is not here. Fix: install Node.js 20.10 or newer with npm (apt install nodejs npm)"
NPM_SECONDS_MAX = 120


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


@dataclass(frozen=True)
class Example:
    """One language's consumer, with less patience than the shipped one."""

    script: Path
    program: Sequence[str]

    @property
    def ready(self) -> Path:
        return self.script.with_name("ready.json")

    @property
    def state(self) -> Path:
        return self.script.with_name("outcomes.state")

    def run(self, *arguments: Path) -> subprocess.CompletedProcess[str]:
        command = [*self.program, str(self.script), *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return done

    def table(self) -> dict[str, int]:
        """Revision by the name that the outcome's data bears, as the consumer's own database has it."""
        if self.script.suffix == ".py":
            with sqlite3.connect(self.state) as store:
                rows = store.execute("SELECT data, revision FROM outcome").fetchall()
            store.close()
        else:
            outcomes = json.loads(self.state.read_text("utf-8"))["outcomes"]
            rows = [(one["data"], one["revision"]) for one in outcomes.values()]
        return {json.loads(data)["of"]: revision for data, revision in rows}


@pytest.fixture(scope="session")
def node_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder below which Node finds what the lock file of the examples names."""
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            pytest.fail(NO_NODE.format(program))
    folder = tmp_path_factory.mktemp("node")
    for name in ("package.json", "package-lock.json"):
        shutil.copy(EXAMPLES / name, folder)
    command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=NPM_SECONDS_MAX, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(params=["consumer.py", "consumer.mjs"])
def consumer(request: pytest.FixtureRequest, tmp_path: Path) -> Example:
    text = (EXAMPLES / request.param).read_text("utf-8")
    assert text.count("IDLE_SECONDS = 20") == 1
    program = [sys.executable, "-W", "error"]
    folder = tmp_path
    if request.param == "consumer.mjs":
        program = ["node"]
        folder = request.getfixturevalue("node_folder") / tmp_path.name
        folder.mkdir()
    script = folder / request.param
    script.write_text(text.replace("IDLE_SECONDS = 20", "IDLE_SECONDS = 3"), "utf-8")
    return Example(script, program)


class Topic:
    """Writes records as the relay would, and reads them with the example."""

    def __init__(self, lanes: Lanes, consumer: Example) -> None:
        self._lanes, self._consumer = lanes, consumer
        self._producer = lanes.transactional_producer(lanes.transactional_id)
        write_ready(consumer, lanes)

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
        done = self._consumer.run(self._consumer.ready, self._consumer.state)
        complaints = [line for line in done.stderr.splitlines() if line.startswith("lane ")]
        return sorted(done.stdout.splitlines()), complaints

    def table(self) -> dict[str, int]:
        return self._consumer.table()


def write_ready(consumer: Example, lanes: Lanes) -> None:
    consumer.ready.write_text(json.dumps({"kafka_bootstrap": lanes.bootstrap, "outcome_topic": lanes.topic}))


def line(row: OutcomeRow) -> str:
    return f"{row.lane} {row.seq} payment.done {row.value.decode()}"


def test_aborted_refilled_revised_and_withheld(lanes: Lanes, consumer: Example) -> None:
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


def test_a_loss_is_seen_and_healed_by_a_refill(lanes: Lanes, consumer: Example) -> None:
    topic = Topic(lanes, consumer)
    topic.write(outcome(0, 1), outcome(0, 4))
    topic.write(outcome(0, 5, name="never"), abort=True)
    taken, complaints = topic.read()
    assert taken == [line(outcome(0, 1)), line(outcome(0, 4))]
    assert complaints == ["lane 0: 2 to 3 LOST"]
    topic.write(outcome(0, 3), outcome(0, 2), refill=True)
    topic.write(outcome(0, 5, name="nor this"), abort=True)
    topic.write(outcome(0, 5))
    taken, complaints = topic.read()
    assert taken == [line(outcome(0, 2)), line(outcome(0, 3)), line(outcome(0, 5))], "it goes on where it ended"
    assert complaints == []


def test_a_lower_revision_that_comes_late_changes_nothing(lanes: Lanes, consumer: Example) -> None:
    topic = Topic(lanes, consumer)
    topic.write(outcome(0, 2, name="a", revision=2))
    topic.write(outcome(0, 1, name="a"), refill=True)
    taken, _ = topic.read()
    assert taken == [line(outcome(0, 2, name="a", revision=2))]
    assert topic.table() == {"a": 2}


def test_what_the_relay_publishes(lanes: Lanes, consumer: Example) -> None:
    lanes.add(0, 5)
    lanes.add(2, 2)
    with term(lanes) as session:
        run_dry(session)
    write_ready(consumer, lanes)
    done = consumer.run(consumer.ready)
    found = [tuple(text.split(" ", 2)[:2]) for text in done.stdout.splitlines()]
    assert sorted(found) == [("0", "1"), ("0", "2"), ("0", "3"), ("0", "4"), ("0", "5"), ("2", "1"), ("2", "2")]


def test_the_page_names_every_header_of_the_schema() -> None:
    page = PAGE.read_text("utf-8")
    row = outcome(0, 1, withheld="too_large")
    for name, _ in outcome_headers(row, deployment="d", refill=True):
        assert f"`{name}" in page or name in {"ce_specversion", "content-type"}, name
