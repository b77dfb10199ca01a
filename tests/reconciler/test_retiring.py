"""What the reconciler has written down goes when nobody needs it any more, and not before."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import Connection

from onceflow_processor.relay.lease import Lease
from onceflow_reconciler import retiring
from onceflow_reconciler.cursors import NOTED_PREFIX
from onceflow_reconciler.retiring import retire
from onceflow_schemas.failure import LeaseLost, Unavailable
from onceflow_schemas.findings import FINDING_KINDS

NAME = "reconciler:test"
KEEP_DAYS = 90


@pytest.fixture
def connection(fresh_database: str) -> Iterator[Connection[Any]]:
    with psycopg.connect(fresh_database, autocommit=True) as opened:
        yield opened


@pytest.fixture
def lease(connection: Connection[Any]) -> Lease:
    made = held(connection)
    assert made.acquire()
    return made


def held(connection: Connection[Any]) -> Lease:
    return Lease(connection, name=NAME, owner="us", ttl_seconds=30, clock=lambda: 0.0)


def find(connection: Connection[Any], kind: str, state: str, *, days: int) -> str:
    """A finding that was seen, and healed or accepted, so many days ago, with a remedy; its name."""
    name = f"{kind} {state} {days}"
    connection.execute(
        "WITH made AS (INSERT INTO onceflow.finding (kind, subject, state, first_seen_at, last_seen_at, healed_at, decided_at)"
        "              SELECT %s, %s, %s, at, at, CASE WHEN %s = 'healed' THEN at END, CASE WHEN %s = 'accepted' THEN at END"
        "              FROM (SELECT clock_timestamp() - make_interval(days => %s) AS at) AS ago RETURNING id)"
        " INSERT INTO onceflow.remedy (finding_id, action, who, result) SELECT id, 'look', 'x', 'y' FROM made",
        [kind, name, state, state, state, days],
    )
    return name


def left(connection: Connection[Any]) -> set[str]:
    """The findings that are there, each with its remedy, and no other remedy."""
    found = {row[0] for row in connection.execute("SELECT subject FROM onceflow.finding")}
    assert connection.execute("SELECT count(*) FROM onceflow.remedy").fetchone() == (len(found),)
    return found


def book(connection: Connection[Any], name: str, *, days: int) -> None:
    connection.execute(
        "INSERT INTO onceflow.retention (name, gone_before) VALUES (%s, clock_timestamp() - make_interval(days => %s))"
        " ON CONFLICT (name) DO UPDATE SET gone_before = excluded.gone_before",
        [name, days],
    )


def sweep(connection: Connection[Any], lease: Lease) -> int:
    connection.execute("UPDATE onceflow.retention SET swept_at = NULL")
    return retire(connection, lease, name=NAME, findings_days=KEEP_DAYS)


def test_findings_that_nobody_needs_go_and_take_their_remedies_with_them(
    connection: Connection[Any], lease: Lease, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retiring, "ROWS_MAX", 2)
    old = [find(connection, "missed_event", "healed", days=days) for days in range(91, 96)]
    stay = {
        find(connection, "missed_event", "healed", days=89),
        find(connection, "missed_event", "open", days=500),
        find(connection, "missed_event", "recurring", days=500),
        find(connection, "events_out_of_reach", "healed", days=500),
        find(connection, "range_lost", "accepted", days=500),
    }
    accepted = find(connection, "event_not_listed", "accepted", days=110)
    younger = find(connection, "event_not_listed", "accepted", days=95)
    assert sweep(connection, lease) == len(old)
    assert left(connection) == {*stay, accepted, younger}
    # What a decision explains is there for as long as markers and outcomes of its time are.
    for done in ("inbox", "outcome/0"):
        assert left(connection) == {*stay, accepted, younger}
        book(connection, done, days=100)
        sweep(connection, lease)
    assert left(connection) == {*stay, younger}
    assert retire(connection, lease, name=NAME, findings_days=KEEP_DAYS) == 0, "swept a moment ago"


def test_the_kinds_that_go_are_kinds() -> None:
    assert {*retiring.KINDS_KEPT, *retiring.KINDS_PASSING} <= set(FINDING_KINDS)


def test_hours_stay_for_as_long_as_a_proof_goes_back(connection: Connection[Any], lease: Lease) -> None:
    connection.execute(
        "INSERT INTO onceflow.reconcile_hour (account, mode, hour, listed, id_hash, listed_at)"
        " SELECT account, 'test', date_trunc('hour', clock_timestamp(), 'UTC') - make_interval(hours => 24 * days), 0, 0, now()"
        " FROM unnest(ARRAY['acct_1', 'acct_left']) AS account, unnest(ARRAY[1, 71, 74, 200]) AS days"
        " WHERE account = 'acct_1' OR days > 100 UNION ALL"
        " SELECT 'acct_left', 'test', date_trunc('hour', clock_timestamp(), 'UTC') - interval '300 days', 0, 0, now()"
    )
    connection.execute(
        "INSERT INTO onceflow.reconcile_cursor (account, mode, source, done_until)"
        " SELECT 'acct_1', 'test', source, clock_timestamp() - make_interval(days => days)"
        " FROM (VALUES (%s || '1', 31), (%s || '2', 33), ('events', 90)) AS one (source, days)",
        [NOTED_PREFIX, NOTED_PREFIX],
    )
    assert sweep(connection, lease) == 0, "markers are kept for ever, and so are hours"
    book(connection, "inbox", days=72)
    assert sweep(connection, lease) == 3
    rows = connection.execute(
        "SELECT account, round(extract(epoch FROM clock_timestamp() - hour) / 86400)::integer FROM onceflow.reconcile_hour"
        " ORDER BY 1, 2"
    ).fetchall()
    assert rows == [("acct_1", 1), ("acct_1", 71), ("acct_left", 200)], "the last one of an account stays"
    sources = connection.execute("SELECT source FROM onceflow.reconcile_cursor ORDER BY 1").fetchall()
    assert sources == [("events",), (f"{NOTED_PREFIX}1",)]
    # A marker that may be gone: of its hour nothing can be proved, and younger ones all stay.
    book(connection, "inbox", days=1)
    assert sweep(connection, lease) == 1, "nothing younger than Stripe's 30 days and a margin goes"


def test_who_has_lost_the_lease_deletes_nothing_and_who_is_refused_tries_later(
    connection: Connection[Any], lease: Lease, fresh_database: str
) -> None:
    old = find(connection, "missed_event", "healed", days=100)
    connection.execute("UPDATE onceflow.lease SET token = token + 1")
    with pytest.raises(LeaseLost):
        sweep(connection, lease)
    connection.execute("UPDATE onceflow.lease SET token = token - 1")
    with psycopg.connect(fresh_database) as migration:
        migration.execute("LOCK TABLE onceflow.finding")
        with pytest.raises(Unavailable) as refused:
            sweep(connection, lease)
    assert refused.value.code == "retention_refused"
    assert left(connection) == {old}
    assert sweep(connection, lease) == 1
