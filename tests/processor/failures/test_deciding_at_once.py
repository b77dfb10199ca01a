"""Decisions about failed events beside other decisions, redrives and batches: each event is decided once, none is left behind."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from onceflow_processor.failures import deciding
from onceflow_processor.failures.deciding import Done, carry_out
from onceflow_processor.failures.overview import Kind
from onceflow_schemas.failure import Unavailable
from onceflow_schemas.failure_decisions import Action
from tests.processor.failures.conftest import ACCOUNT, Desk
from tests.processor.failures.orders import decide, order, waiting


@pytest.mark.parametrize(("kind", "action"), [("quarantine", "retry"), ("quarantine", "skip"), ("parked", "skip")])
def test_many_people_at_once_decide_each_event_once(desk: Desk, monkeypatch: Any, kind: Kind, action: Action) -> None:
    monkeypatch.setattr(deciding, "PAGE_EVENTS", 3)
    events = 12
    for number in range(events):
        key = f"in_{number % 4}"
        if kind == "quarantine":
            desk.quarantined(f"evt_{number}", offset=number, record_key=f"{ACCOUNT}/{key}".encode())
        else:
            if number < 4:
                desk.key(key, "retry", f"evt_{number}", due="2099-01-01Z")
            desk.parked(f"evt_{number}", key=key, offset=number)
    barrier = threading.Barrier(4)

    def person(_number: int) -> Done:
        with psycopg.connect(desk.url) as connection:
            barrier.wait()
            return carry_out(connection, order(kind, action))

    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(person, range(4)))
    acted = sum(count for one in done for verdict, count in one.verdicts.items() if verdict.acts)
    assert acted == len(desk.audits()) == events
    if action == "retry":
        assert {name: desk.waiting(name) for name in ("in_0", "in_3")} == {
            "in_0": ["evt_0", "evt_4", "evt_8"],
            "in_3": ["evt_3", "evt_7", "evt_11"],
        }
        assert all(due for _, _, due in desk.keys().values())
    else:
        assert set(desk.decisions().values()) == {"skipped"}
        assert desk.keys() == {}


def test_a_retry_and_a_skip_at_once_end_in_one_of_them(desk: Desk) -> None:
    for number in range(20):
        desk.quarantined(f"evt_{number}", offset=number, key=f"in_{number}")
    barrier = threading.Barrier(2)

    def person(action: Action) -> Done:
        with psycopg.connect(desk.url) as connection:
            barrier.wait()
            return carry_out(connection, order("quarantine", action))

    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(person, ("retry", "skip")))
    assert sum(count for one in done for verdict, count in one.verdicts.items() if verdict.acts) == 20
    states = desk.states()
    for number, decision in desk.decisions().items():
        assert states[f"evt_{number}"] == ("parked" if decision == "retried" else "quarantined")
        assert (f"in_{number}" in set(desk.keys())) is (decision == "retried")


def redrive_in_hand(desk: Desk) -> psycopg.Connection[Any]:
    """What a redrive holds while the handlers run: the lease, and the marker of its event."""
    desk.run(
        "UPDATE onceflow.parked_key SET lease_owner = 'p1', lease_until = clock_timestamp() + interval '1 minute',"
        " fence = fence + 1"
    )
    redrive = psycopg.connect(desk.url)
    redrive.execute("UPDATE onceflow.inbox SET state = 'processed' WHERE event_id = 'evt_1' AND state = 'parked'")
    return redrive


def end_redrive(redrive: psycopg.Connection[Any]) -> None:
    with redrive:
        redrive.execute("SELECT FROM onceflow.parked_key WHERE fence = 1 FOR UPDATE")
        redrive.execute("DELETE FROM onceflow.parked WHERE event_id = 'evt_1'")
        redrive.execute(
            "UPDATE onceflow.parked_key SET event_id = 'evt_2', due_at = clock_timestamp(), lease_until = NULL, lease_owner = NULL"
        )


def test_a_retry_while_the_event_is_in_hand_changes_nothing(desk: Desk) -> None:
    waiting(desk)
    with redrive_in_hand(desk):
        pass
    assert decide(desk, "parked", "retry", "evt_1") == {"moved_on": 1}
    desk.run("UPDATE onceflow.inbox SET state = 'parked' WHERE event_id = 'evt_1'")
    assert decide(desk, "parked", "retry", "evt_1") == {"in_hand": 1}
    assert desk.keys() == {"in_1": ("retry", "evt_1", False)}


def test_a_skip_waits_for_the_redrive_that_has_the_event_in_hand(desk: Desk) -> None:
    waiting(desk)
    redrive = redrive_in_hand(desk)
    with ThreadPoolExecutor(1) as pool:
        skipped = pool.submit(decide, desk, "parked", "skip", "evt_1")
        wait_for_a_waiter(desk)
        end_redrive(redrive)
        assert skipped.result() == {"moved_on": 1}
    assert desk.states()["evt_1"] == "processed"
    assert (desk.decisions(), desk.audits()) == ({}, [])
    assert desk.keys() == {"in_1": ("retry", "evt_2", True)}


def test_a_redrive_that_has_not_begun_to_write_loses_to_a_skip(desk: Desk) -> None:
    """It holds the lease, and finds the marker moved and the fence raised."""
    waiting(desk)
    redrive_in_hand(desk).close()
    assert decide(desk, "parked", "skip", "evt_1") == {"skip_and_go_on": 1}
    assert desk.states()["evt_1"] == "quarantined"
    [key] = desk.rows("SELECT fence, lease_until, event_id FROM onceflow.parked_key")
    assert key == {"fence": 2, "lease_until": None, "event_id": "evt_2"}


def test_what_stays_locked_is_told_and_what_was_done_before_stays(desk: Desk, monkeypatch: Any) -> None:
    monkeypatch.setattr(deciding, "LOCK_TIMEOUT_MS", 100)
    waiting(desk)
    redrive = redrive_in_hand(desk)
    with pytest.raises(Unavailable, match="locked by a redrive or another decision; 0 were decided before"):
        decide(desk, "parked", "skip", "evt_1")
    redrive.close()
    assert decide(desk, "parked", "skip", "evt_1") == {"skip_and_go_on": 1}


def test_a_batch_that_parks_behind_a_key_waits_for_the_skip_that_ends_it(desk: Desk) -> None:
    """Else its event would wait behind a key that nobody has any more."""
    desk.quarantined("evt_1", offset=1, key="in_1")
    desk.marker("evt_2", "parked", offset=2)
    with psycopg.connect(desk.url) as batch:
        batch.execute("SELECT FROM onceflow.parked_key FOR KEY SHARE")
        with ThreadPoolExecutor(1) as pool:
            skipped = pool.submit(decide, desk, "quarantine", "skip", "evt_1")
            wait_for_a_waiter(desk)
            batch.execute(
                'INSERT INTO onceflow.parked (account, mode, event_id, order_key, topic_id, partition, "offset", topic,'
                " headers, type) VALUES (%s, 'test', 'evt_2', %s, 't', 0, 2, 't', '[]', 'x')",
                [ACCOUNT, f"{ACCOUNT}/in_1"],
            )
            batch.commit()
            assert skipped.result() == {"skip_and_go_on": 1}
    assert desk.keys() == {"in_1": ("retry", "evt_2", True)}


def wait_for_a_waiter(desk: Desk) -> None:
    """Wait until a session of this database waits for a lock."""
    query = "SELECT count(*) AS n FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    for _ in range(1_000):
        if desk.rows(query)[0]["n"]:
            return
        threading.Event().wait(0.01)
    raise AssertionError("nobody waits")
