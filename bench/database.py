"""The database part alone: markers, outcomes and progress of records that are decoded already.

Rule: all sides write the same rows into the same tables over one connection; only how they are sent differs.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg

from bench.bodies import ACCOUNT, ATTESTATION_KEY, DEPLOYMENT, bodies, record_of
from bench.children import SideFailed, product_environment, running, wait_for
from bench.figures import Figure, Measured
from bench.handlers import OUTCOME_TYPE, data_of, key_of, plain
from bench.measuring import Side, alternate, median_ratio
from bench.stage import PARTITIONS, Road, Stage
from bench.statements import statements
from onceflow_processor.admission import Item, Rules, admit
from onceflow_processor.attempt import limits_setter
from onceflow_processor.claim import claim, event_of
from onceflow_processor.effects import Effects, Outcome, make_outcome
from onceflow_processor.position import Position
from onceflow_processor.records import Partition, Record
from onceflow_processor.tail import Tail, fingerprint_of, write_tail
from onceflow_producer.lifetime import write_state
from onceflow_schemas.envelope import read_envelope
from onceflow_schemas.identity import event_cause
from onceflow_schemas.sql import queries

BATCH_RECORDS = 1_000
SIDE_SECONDS_MAX = 300.0
TOPIC, TOPIC_ID, CLUSTER = "bench", "bench-topic-id", "bench-cluster"
VALUE_BYTES_MAX = 1_000_000
_BATCH, _BENCH = queries("batch"), statements("bench")
_PER_EVENT, _SERVER = statements("per_event"), statements("server_alone")
Work = tuple[Item, Outcome]

FIGURES = (
    Figure("processor_db_vs_per_event", "database part / one transaction per event on the same tables", 12.0),
    Figure("processor_vs_server", "database part / the server inserting the same rows by itself", 0.25),
)


def work_of(count: int, *, ids: Callable[[int], str] | None = None) -> list[Work]:
    """Return decoded records with their outcomes, as they are when the database part begins.

    Args:
        count: how many.
        ids: makes other event ids from their numbers.
    """
    rules = Rules(DEPLOYMENT, frozenset({ACCOUNT}), "test", {ATTESTATION_KEY.id: ATTESTATION_KEY}, timedelta(days=35))
    now = datetime.now(UTC)
    made = []
    for number, (event_id, template) in enumerate(bodies(count, series="D")):
        body = template if ids is None else template.replace(event_id.encode(), ids(number).encode(), 1)
        sent = record_of(body, topic=TOPIC)
        partition = Partition(TOPIC, number % PARTITIONS)
        record = Record(partition, number // PARTITIONS, 1_767_225_600_000, sent.key, sent.value, list(sent.headers), 1)
        item = admit(record, rules=rules, now=now)
        found = (read_envelope(body).body or {})["data"]["object"]
        outcome = make_outcome(
            Effects(),
            cause=event_cause(event_of(item).identity),
            handler="bench",
            type=OUTCOME_TYPE,
            key=key_of(found, event_id),
            data=data_of(found, event_id),
            lane_count=PARTITIONS,
            value_bytes_max=VALUE_BYTES_MAX,
        )
        made.append((item, outcome))
    return made


class Batches:
    """The product's way over one connection: claim and tail of one transaction after the other."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection
        self._positions = {Partition(TOPIC, number): Position(TOPIC_ID, 1, 0, None) for number in range(PARTITIONS)}
        version = connection.info.server_version
        self._set_limits = limits_setter(lock_timeout_ms=5_000, transaction_ms_max=60_000, server_version=version)

    def _opened(self) -> None:
        self._set_limits(self._connection)
        self._connection.execute(_BATCH["guard_open"], {"guard": 1})

    def run(self, batch: Sequence[Work]) -> None:
        """Claim these events and write what they lead to."""
        connection, items = self._connection, [item for item, _ in batch]
        claimed = claim(
            connection, items, handlers=plain, topic_id_of=lambda _item: TOPIC_ID, open_transaction=self._opened
        )
        assert len(claimed.firsts) == len(items)
        lasts = {item.record.partition: item for item in items}
        tail = Tail(
            guard=1,
            cluster_id=CLUSTER,
            facts={},
            failed=[],
            quarantine=[],
            moves=[(partition, self._positions[partition], last) for partition, last in lasts.items()],
            topic_ids={TOPIC: TOPIC_ID},
            outcomes=[outcome for _, outcome in batch],
        )
        write_tail(connection, tail)
        for partition, last in lasts.items():
            self._positions[partition] = Position(TOPIC_ID, 1, last.record.offset + 1, fingerprint_of(last))


def run_batches(connection: psycopg.Connection[Any], work: Sequence[Work]) -> None:
    """The product's way: claim and tail of 1,000 events per transaction."""
    batches = Batches(connection)
    for start in range(0, len(work), BATCH_RECORDS):
        batches.run(work[start : start + BATCH_RECORDS])


def run_per_event(connection: psycopg.Connection[Any], work: Sequence[Work]) -> None:
    """The usual way: one transaction per event, by hand."""
    for item, outcome in work:
        event, record = event_of(item), item.record
        identity = event.identity
        marker: list[Any] = [
            identity.account,
            identity.mode,
            identity.event_id,
            event.type,
            event.object_id,
            None,
            TOPIC_ID,
        ]
        marker += [record.partition.number, record.offset, event.body_sha256]
        marker += [event.created_text, event.received_at_text]
        row: list[Any] = [outcome.lane, outcome.outcome_id, outcome.outcome_id, outcome.type, outcome.key]
        with connection.transaction():
            if connection.execute(_PER_EVENT["marker"], marker).rowcount == 1:
                connection.execute(_PER_EVENT["outcome"], [*row, outcome.value, outcome.cause])
            place = [record.offset + 1, CLUSTER, TOPIC_ID, record.partition.number]
            connection.execute(_PER_EVENT["progress"], place)


def run_server(connection: psycopg.Connection[Any], batches: int) -> None:
    """The server alone: the same rows, inserted from tables of its own, with one COMMIT per batch."""
    for batch in range(batches):
        with connection.transaction():
            connection.execute(_SERVER["insert_markers"], {"batch": batch})
            connection.execute(_SERVER["insert_outcomes"], {"batch": batch})


def main(told: dict[str, Any]) -> None:
    """Run one side and write its rate."""
    work = work_of(told["records"])
    with psycopg.connect(told["database_url"], autocommit=told["side"] != "batches") as connection:
        begin_partitions(connection)
        if told["side"] == "server":
            _stage_rows(connection, work)
        connection.commit()
        begun = time.monotonic()
        match told["side"]:
            case "batches":
                run_batches(connection, work)
            case "per event":
                run_per_event(connection, work)
            case _:
                run_server(connection, -(-len(work) // BATCH_RECORDS))
        seconds = time.monotonic() - begun
    write_state(Path(told["answer_file"]), {"per_second": len(work) / seconds})


def begin_partitions(connection: psycopg.Connection[Any]) -> None:
    """Give every partition its position, as a take-over does."""
    for number in range(PARTITIONS):
        place = {"cluster_id": CLUSTER, "topic_id": TOPIC_ID, "partition": number, "topic": TOPIC}
        connection.execute(_PER_EVENT["begin_partition"], place)
    connection.commit()


def _stage_rows(connection: psycopg.Connection[Any], work: Sequence[Work]) -> None:
    """Let the product write the rows once, then keep copies of them in the server."""
    connection.autocommit = False
    run_batches(connection, work)
    connection.autocommit = True
    for statement in _SERVER["staging"].split(b";\n"):
        connection.execute(statement)
    for name in ("take_markers", "take_outcomes"):
        connection.execute(_SERVER[name], {"batch_records": BATCH_RECORDS})
    for statement in _SERVER["indexes"].split(b";\n"):
        connection.execute(statement)
    connection.execute(_SERVER["empty"])
    connection.execute(_BENCH["settle"])


def measure(stage: Stage) -> list[Measured]:
    """Measure all figures of this module."""
    road, records = stage.road(), stage.sizes.database_records
    few = max(records // 10, 100)
    sides = {
        "batches": _side(stage, road, name="batches", records=records),
        "per event": _side(stage, road, name="per event", records=few),
        "server": _side(stage, road, name="server", records=records),
    }
    rates = alternate(sides, rounds=stage.sizes.rounds, say=stage.say)
    return [
        Measured(
            figure, median_ratio(rates["batches"], rates[under]), {"batches": rates["batches"], under: rates[under]}
        )
        for figure, under in zip(FIGURES, ("per event", "server"), strict=True)
    ]


def _side(stage: Stage, road: Road, *, name: str, records: int) -> Side:
    def run() -> float:
        answer_file = stage.folder / "database.json"
        answer_file.unlink(missing_ok=True)
        with stage.database(road) as url:
            told = {"side": name, "records": records, "database_url": url, "answer_file": str(answer_file)}
            argv = [sys.executable, "-c", _CHILD, json.dumps(told)]
            with running("database", argv, environment=product_environment({}), folder=stage.folder) as child:
                ended = lambda: answer_file.exists() or child.process.poll() is not None  # noqa: E731
                wait_for(ended, limit_seconds=SIDE_SECONDS_MAX, what=f"{name} is done")
                if not answer_file.exists():
                    raise SideFailed(child.words())
        return float(json.loads(answer_file.read_text("utf-8"))["per_second"])

    return run


_CHILD = "import json, sys; from bench.database import main; main(json.loads(sys.argv[1]))"

if __name__ == "__main__":
    from bench.run import main as run_bench

    sys.exit(run_bench(sys.argv[1:], only=("database",)))
