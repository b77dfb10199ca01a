"""Order, facts and totals of one object while its processor is killed between any two of its writes: as if nobody had been."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import Producer
from psycopg import sql
from psycopg.conninfo import make_conninfo

from onceflow.migrations import migrate
from tests.every_run import mostly_long
from tests.processor.armed import killed_at
from tests.processor.conftest import record
from tests.processor.order_handlers import EACH, MONEY, STATE
from tests.processor.processor_process import MakeRoad, Road, wait_until
from tests.processor.reports.stripe_events import told

SETTINGS = {
    "ONCEFLOW_PROCESSOR_HANDLERS": "tests.processor.order_handlers:handlers",
    "ONCEFLOW_PROCESSOR_BATCH_RECORDS_MAX": "3",
}
POINTS = (
    "processor.after_handler",
    "processor.after_handlers",
    "processor.after_markers",
    "processor.before_outcomes",
    "processor.before_commit",
    "processor.after_commit",
)
IN_EVERY_RUN = ("processor.before_commit",)
EVENT_COUNT = 8


def charge(event_id: str, kind: str, refunded: int, *, at: int, status: str, **extra: Any) -> bytes:
    subject = {"id": "ch_1", "object": "charge", "status": status, "amount": 2500, "amount_refunded": refunded}
    return told(event_id, f"charge.{kind}", subject, at=at, **extra)


CHANGE: dict[str, Any] = {"before": {"amount_refunded": 0}, "request": {"id": "req_1", "idempotency_key": None}}
ARRIVAL = (
    charge("evt_5", "refunded", 2500, at=50, status="at 50"),
    charge("evt_1", "succeeded", 0, at=10, status="at 10"),
    charge("evt_3", "refunded", 1000, at=30, status="at 30", **CHANGE),
    # The same change under another id.
    charge("evt_3x", "refunded", 1000, at=30, status="at 30", **CHANGE),
    charge("evt_2", "updated", 0, at=20, status="at 20"),
    # The same event again.
    charge("evt_5", "refunded", 2500, at=50, status="at 50"),
    charge("evt_6", "updated", 2500, at=60, status="at 60"),
    charge("evt_4", "refunded", 1500, at=40, status="at 40"),
    charge("evt_7", "updated", 2600, at=55, status="at 55"),
)
"""Of one charge, in the order in which they come; ``at`` is the order in which they happened."""


def prepare(road: Road) -> Road:
    with psycopg.connect(road.database_url, autocommit=True) as setup:
        setup.execute("CREATE TABLE public.state (object_id text PRIMARY KEY, status text NOT NULL)")
    return road


def publish(road: Road, bodies: Sequence[bytes], *, partition: int = 0) -> None:
    producer = Producer({"bootstrap.servers": road.bootstrap})
    for body in bodies:
        made = record(body, 0, topic=road.events, deployment=road.deployment)
        road.produce(producer, made.key, made.value, headers=made.headers, partition=partition)
    assert producer.flush(20) == 0


def run_to_the_end(road: Road) -> None:
    """Run a processor that nobody kills until its position is behind all records."""
    with road.processor(**SETTINGS):
        wait_until(lambda: next_offset(road) == len(ARRIVAL), "the position is behind all records")


def next_offset(road: Road) -> int:
    return sum(row["next_offset"] for row in road.rows("SELECT next_offset FROM onceflow.progress"))


LEFT = {
    "inbox": 'SELECT event_id, state, is_stale, type, object_id, "offset" FROM onceflow.inbox ORDER BY event_id',
    "guard": "SELECT object_id, kind, created, rank, tombstone, digest, event_id, type, status FROM onceflow.object_guard",
    "booked": "SELECT namespace, key, total, difference FROM onceflow.booked ORDER BY 1, 2",
    "booking": "SELECT namespace, key, cause, difference FROM onceflow.booking ORDER BY 1, 2, 3",
    "fact": "SELECT namespace, key, cause FROM onceflow.fact ORDER BY 1, 2",
    "claim": "SELECT namespace, key, cause FROM onceflow.fact_claim ORDER BY 1, 2, 3",
    "outcome": "SELECT lane, seq, outcome_id, revision, ce_id, type, key, value, cause FROM onceflow.outcome ORDER BY 1, 2",
    "lane": "SELECT lane, head_seq FROM onceflow.lane ORDER BY lane",
    "quarantine": 'SELECT "offset", code FROM onceflow.quarantine',
    "parked": "SELECT event_id FROM onceflow.parked",
    "seen": "SELECT event_id, pid AS handler FROM public.seen ORDER BY 1, 2",
    "state": "SELECT object_id, status FROM public.state",
}


def left(road: Road) -> dict[str, list[dict[str, Any]]]:
    """Everything that is written of the object, but for the times of writing."""
    return {name: road.rows(query) for name, query in LEFT.items()}


@pytest.fixture(scope="module")
def undisturbed(
    kafka_bootstrap: str, database_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, list[dict[str, Any]]]]:
    """What a run without kills leaves."""
    name = f"test_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    url = make_conninfo(database_url, dbname=name)
    with psycopg.connect(url) as connection:
        migrate(connection)
    folder: Path = tmp_path_factory.mktemp("undisturbed")
    road = prepare(Road(kafka_bootstrap, url, folder, partitions=1))
    publish(road, ARRIVAL)
    run_to_the_end(road)
    yield left(road)
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def test_a_run_without_kills_is_right(undisturbed: dict[str, list[dict[str, Any]]]) -> None:
    """What the others are compared with, by hand."""
    states = {row["event_id"]: (row["state"], row["is_stale"]) for row in undisturbed["inbox"]}
    older = ("processed", True)
    assert states == {
        "evt_5": ("processed", None), "evt_6": ("processed", None),
        "evt_1": older, "evt_2": older, "evt_3": older, "evt_3x": older, "evt_4": older, "evt_7": older,
    }  # fmt: skip
    assert undisturbed["state"] == [{"object_id": "ch_1", "status": "at 60"}]
    [guard] = undisturbed["guard"]
    assert (guard["event_id"], guard["status"], guard["tombstone"]) == ("evt_6", "at 60", False)
    met = Counter((row["handler"], row["event_id"]) for row in undisturbed["seen"])
    assert set(met.values()) == {1}
    assert sorted(event for handler, event in met if handler == STATE) == ["evt_5", "evt_6"]
    assert sum(handler == EACH for handler, _ in met) == EVENT_COUNT - 1, "the change of two ids is met once"
    assert sum(handler == MONEY for handler, _ in met) == EVENT_COUNT
    assert [(row["namespace"], row["total"]) for row in undisturbed["booked"]] == [("refunded", 2600)]
    assert sorted(row["difference"] for row in undisturbed["booking"]) == [100, 2500]
    told_of = Counter(row["type"] for row in undisturbed["outcome"])
    assert told_of == {"seen": EVENT_COUNT - 1, "credited": 1, "refunded": 2}
    assert [row["cause"].rpartition("/")[2] for row in undisturbed["fact"] if row["namespace"] == "credited"] == [
        "evt_5"
    ]
    claimed_again = {row["cause"].rpartition("/")[2] for row in undisturbed["claim"] if row["namespace"] == "credited"}
    assert claimed_again == {"evt_1", "evt_2", "evt_3", "evt_3x", "evt_4", "evt_6", "evt_7"}
    assert (undisturbed["quarantine"], undisturbed["parked"]) == ([], [])


@pytest.mark.parametrize("point", mostly_long(POINTS, every_run=IN_EVERY_RUN))
def test_kills_leave_what_a_run_without_kills_leaves(
    make_road: MakeRoad, undisturbed: dict[str, list[dict[str, Any]]], point: str
) -> None:
    """Killed there in its first batch, its heir in a later one, and a third one goes on to the end."""
    road = prepare(make_road(partitions=1))
    publish(road, ARRIVAL)
    killed_at(road, point, settings=SETTINGS)
    assert (next_offset(road) > 0) == (point == "processor.after_commit"), "a batch is whole or not there"
    # Most events meet two or three handlers, so its fourteenth run is in the last batch.
    killed_at(
        road, point, at={"processor.after_handler": 14, "processor.after_commit": 1}.get(point, 2), settings=SETTINGS
    )
    assert 0 < next_offset(road) < len(ARRIVAL)
    run_to_the_end(road)
    found = left(road)
    for name, expected in undisturbed.items():
        assert found[name] == expected, name


OLDER = told(
    "evt_A", "customer.subscription.created", {"id": "sub_1", "object": "subscription", "status": "incomplete"}
)
NEWER = told(
    "evt_B", "customer.subscription.updated", {"id": "sub_1", "object": "subscription", "status": "active"},
    at=1, before={"status": "incomplete"},
)  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("partitions", [1, 2])
def test_an_update_before_the_creation_with_a_crash_between_them(make_road: MakeRoad, partitions: int) -> None:
    """R16: killed as soon as the update is committed, and killed again before the creation is."""
    road = prepare(make_road(partitions=partitions))
    publish(road, [NEWER])
    killed_at(road, "processor.after_commit", settings=SETTINGS)
    assert road.states() == {"evt_B": "processed"}
    publish(road, [OLDER], partition=partitions - 1)
    killed_at(road, "processor.before_commit", settings=SETTINGS)
    assert road.states() == {"evt_B": "processed"}
    with road.processor(**SETTINGS):
        road.wait_for_events(2)
        wait_until(lambda: next_offset(road) == 2, "the positions are behind both")
    assert road.states() == {"evt_A": "processed", "evt_B": "processed"}
    assert road.rows("SELECT status FROM public.state") == [{"status": "active"}]
    assert road.rows("SELECT event_id FROM public.seen") == [{"event_id": "evt_B"}], (
        "the older one never met the state writer"
    )
    told_of = road.rows("SELECT type, convert_from(value, 'UTF8')::jsonb AS data FROM onceflow.outcome ORDER BY type")
    assert told_of == [
        {"type": "activated", "data": {"stale": False}},
        {"type": "created", "data": {"stale": True}},
    ]
    [guard] = road.rows("SELECT event_id, status FROM onceflow.object_guard")
    assert guard == {"event_id": "evt_B", "status": "active"}
