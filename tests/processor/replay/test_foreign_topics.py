"""``onceflow replay`` on topics that others write: the same admission, fates and reruns as for the bridge's own."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest
from confluent_kafka import Producer

from tests.every_run import mostly_long
from tests.processor.inputs.foreign_records import ROADS, SECRET
from tests.processor.processor_process import MakeRoad, Road, wait_until
from tests.processor.replay.replaying import replayed, untouched

EVENTS = ("evt_same0", "evt_same1", "evt_changed0", "evt_changed1")
FORGED = {
    ("cloudevents-binary", "transport"): "bad_headers",
    ("stripe-json", "stripe-signature"): "unauthenticated",
    ("cloudevents-binary", "stripe-signature"): "unauthenticated",
}
"""What a bare body without a wrapping and a signature is, where it is not ``not_an_event``."""
IN_EVERY_RUN = (
    ("stripe-json", "stripe-signature"),
    ("eventbridge", "transport"),
)
FIRST = "tests.processor.replay.first_handlers:handlers"
MENDED = "tests.processor.replay.mended_handlers:handlers"


def _forget(road: Road, event_id: str) -> None:
    """Make an event missing with all that it left, as where a person skipped its record."""
    with psycopg.connect(road.database_url) as database:
        for table in ("fact", "booking"):
            database.execute(f"DELETE FROM onceflow.{table} WHERE cause LIKE %s".encode(), [f"%/{event_id}"])
        database.execute("DELETE FROM onceflow.booked WHERE key LIKE %s", [f"%in_{event_id}%"])
        database.execute("DELETE FROM onceflow.inbox WHERE event_id = %s", [event_id])
        database.execute(
            "UPDATE onceflow.outcome SET outcome_id = gen_random_uuid(), cause = 'forgotten' WHERE cause LIKE %s",
            [f"%/{event_id}"],
        )


@pytest.mark.parametrize(("name", "trust"), mostly_long(ROADS, every_run=IN_EVERY_RUN))
def test_a_foreign_topic_is_looked_at_executed_and_rerun(make_road: MakeRoad, name: str, trust: str) -> None:
    road = make_road(partitions=1, input_format=name)
    table = {"topic": road.events, "format": name, "trust": trust}
    secrets = {"secrets": [f"endpoint-1={SECRET}"]} if trust == "stripe-signature" else {}
    settings: dict[str, Any] = {
        "ONCEFLOW_INPUTS": json.dumps([{**table, **secrets}]),
        "ONCEFLOW_PROCESSOR_HANDLERS": FIRST,
    }
    road.publish(EVENTS, partition=0)
    producer = Producer({"bootstrap.servers": road.bootstrap})
    road.produce(producer, None, b'{"id": "evt_forged", "object": "event"}', headers=[], partition=0)
    assert producer.flush(20) == 0
    with road.processor(**settings):
        road.wait_for_events(len(EVENTS))
        wait_until(lambda: road.rows("SELECT next_offset FROM onceflow.progress")[0]["next_offset"] == 5, "it is read")
    _forget(road, "evt_same1")
    before, outcomes = untouched(road), len(road.outcome_ids())

    looked = replayed(road, **settings)
    assert looked["fates"] == {"skipped": 3, "run": 1, "untrusted": 1}
    assert looked["codes"] == {FORGED.get((name, trust), "not_an_event"): 1}
    assert len(road.outcome_ids()) == outcomes

    done = replayed(road, "--execute", "--reason", "a test", **settings)
    assert done["done"] == {"processed": 1, "outcomes": 1}
    assert road.states() == dict.fromkeys(EVENTS, "processed")

    mended = {**settings, "ONCEFLOW_PROCESSOR_HANDLERS": MENDED}
    wanted = {"rerun": 4, "unchanged": 2, "changed": 2}
    assert replayed(road, "--rerun", **mended)["done"] == wanted
    assert replayed(road, "--rerun", "--execute", "--reason", "mended", **mended)["done"] == wanted
    assert len(road.outcome_ids()) == outcomes + 1 + 2
    assert untouched(road) == before
