"""What one call deletes and what it never does, on a real PostgreSQL."""

from __future__ import annotations

import threading
from datetime import timedelta

import psycopg
import pytest

from onceflow_processor.retention.store import Slice, read_gone
from onceflow_schemas.failure import LeaseLost, Unavailable
from onceflow_schemas.sql import queries
from tests.relay.lanes import wait_for
from tests.retention.ledger import LEASE, TOKEN, Ledger, utc_now

PROMISED_TABLES = ("fact", "operation", "audit", "attempt", "review")


def test_only_old_markers_that_nobody_waits_for_go(ledger: Ledger) -> None:
    for state in ("processed", "ignored", "parked"):
        for days in (71.9, 72.1, 400):
            ledger.add_markers(10, days=days, state=state, name=state)
    assert ledger.sweep_markers() == 40
    assert ledger.markers() == {
        "ignored_71.9": 10, "parked_400": 10, "parked_71.9": 10, "parked_72.1": 10, "processed_71.9": 10,
    }  # fmt: skip


def test_two_clocks_must_say_that_a_marker_is_old(ledger: Ledger) -> None:
    """A bridge whose clock stood in the past, or in the future, when the event came."""
    ledger.add_markers(5, days=20_000, processed_days=1, name="past")
    ledger.add_markers(5, days=-40, processed_days=100, name="future")
    ledger.add_markers(5, days=100, name="old")
    assert ledger.sweep_markers() == 5
    assert ledger.markers() == {"past_20000": 5, "future_-40": 5}


def test_a_quarantined_event_stays_for_as_long_as_its_record(ledger: Ledger) -> None:
    ledger.add_markers(2, days=100, state="quarantined")
    ledger.sql(
        'INSERT INTO onceflow.quarantine (topic_id, partition, "offset", topic, account, mode, event_id, code, detail, headers)'
        " SELECT topic_id, partition, \"offset\", 't', account, mode, event_id, 'too_old', '', '[]' FROM onceflow.inbox"
    )
    assert ledger.sweep_markers() == 0
    ledger.sql("DELETE FROM onceflow.quarantine WHERE event_id = 'evt_100_1'")
    assert ledger.sweep_markers() == 1
    assert ledger.sql("SELECT event_id FROM onceflow.inbox") == [("evt_100_2",)]


def test_a_record_goes_long_after_the_decision_about_it_and_never_without_one(ledger: Ledger) -> None:
    ledger.add_markers(4, days=500, state="quarantined")
    ledger.sql(
        'INSERT INTO onceflow.quarantine (topic_id, partition, "offset", topic, account, mode, event_id, code, detail, headers,'
        " quarantined_at) SELECT topic_id, partition, \"offset\", 't', account, mode, event_id, 'handler_failed', '', '[]',"
        " received_at FROM onceflow.inbox"
    )
    decided = 'UPDATE onceflow.quarantine SET decision = %s, decided_at = now() - make_interval(days => %s) WHERE "offset" = %s'
    for offset, decision, days in ((1, "skipped", 400), (2, "retried", 400), (3, "skipped", 300)):
        ledger.sql(decided, [decision, days, offset])
    with ledger.store() as store:
        done = store.retire_quarantine(keep_days=365, rows_max=10)
        assert (done.deleted, done.swept) == (2, True)
        assert store.retire_quarantine(keep_days=365, rows_max=1).deleted == 0
    assert ledger.sql('SELECT "offset" FROM onceflow.quarantine ORDER BY 1') == [(3,), (4,)]
    assert ledger.sweep_markers() == 2
    assert ledger.sql("SELECT event_id FROM onceflow.inbox ORDER BY 1") == [("evt_500_3",), ("evt_500_4",)]


def test_old_reads_go_unless_they_are_to_be_done_or_waited_for(ledger: Ledger) -> None:
    columns = "account, mode, kind, object_id, api_version, first_path, path, state, read_at, result, body"
    for object_id, version, state, days in (
        ("cus_old", "v1", "read", 73), ("cus_failed", "v1", "failed", 73), ("cus_young", "v1", "read", 71),
        ("cus_asked", "v1", "asked", 73), ("cus_waited", "v1", "read", 73), ("cus_waited", "v2", "read", 73),
    ):  # fmt: skip
        ledger.sql(
            f"INSERT INTO onceflow.object_read ({columns}) SELECT 'acct_1', 'test', 'object', %s, %s, '/', '/', %s,"
            " clock_timestamp() - make_interval(days => %s), 'whole', '{}'",
            [object_id, version, state, days],
        )
    ledger.sql(
        "INSERT INTO onceflow.parked_key (order_key, reason, account, mode, event_id, due_at, read_kind, read_object, read_version)"
        " VALUES ('k', 'reading', 'acct_1', 'test', 'evt', 'infinity', 'object', 'cus_waited', 'v1')"
    )
    left = "SELECT object_id || ' ' || api_version FROM onceflow.object_read ORDER BY 1"
    with ledger.store() as store:
        slices = [store.retire_reads(keep_days=72, rows_max=2) for _ in range(2)]
        assert slices == [Slice(2, swept=False), Slice(1, swept=True)]
        assert [row[0] for row in ledger.sql(left)] == ["cus_asked v1", "cus_waited v1", "cus_young v1"]
        ledger.sql("UPDATE onceflow.parked_key SET reason = 'retry', due_at = now()")
        assert store.retire_reads(keep_days=72, rows_max=2) == Slice(1, swept=True)
    assert [row[0] for row in ledger.sql(left)] == ["cus_asked v1", "cus_young v1"]
    [line] = ledger.sql("SELECT name, deleted FROM onceflow.retention")
    assert line == ("object_read", 4)


def test_a_read_that_is_asked_for_again_meanwhile_stays(ledger: Ledger) -> None:
    ledger.sql(
        "INSERT INTO onceflow.object_read (account, mode, kind, object_id, first_path, path, state, read_at, result)"
        " VALUES ('acct_1', 'test', 'object', 'cus_1', '/', '/', 'read', clock_timestamp() - interval '73 days', 'gone')"
    )
    asked = {"accounts": ["acct_1"], "modes": ["test"], "kinds": ["object"], "object_ids": ["cus_1"], "paths": ["/"]}
    with psycopg.connect(ledger.url) as batch, ledger.store() as store:
        batch.execute(queries("object_reads")["ask"], {**asked, "api_versions": [None]})
        assert store.retire_reads(keep_days=72, rows_max=2) == Slice(0, swept=True)
        batch.commit()
        assert store.retire_reads(keep_days=72, rows_max=2) == Slice(0, swept=True)


def test_a_sweep_goes_page_by_page_and_begins_again_at_its_end(ledger: Ledger) -> None:
    ledger.add_markers(300, days=100)
    ledger.add_markers(300, days=1)
    with ledger.store() as store:
        slices: list[Slice] = []
        while not slices or not slices[-1].swept:
            slices.append(store.retire_markers(keep_days=72, pages_max=2))
    assert len(slices) > 3
    assert sum(one.deleted for one in slices) == 300
    with ledger.store() as store:
        [line] = store.book()
    assert (line.name, line.deleted) == ("inbox", 300)
    assert line.oldest is not None
    assert line.swept_at is not None
    assert timedelta(days=1) < line.now - line.oldest < timedelta(days=1, minutes=5)
    assert ledger.sweep_markers(pages_max=2) == 0


def test_what_is_gone_is_written_down_and_never_goes_back(ledger: Ledger) -> None:
    with psycopg.connect(ledger.url) as connection:
        gone = read_gone(connection)
    assert (gone.markers, gone.outcomes) == (None, None)
    ledger.sweep_markers(keep_days=72)
    ledger.sweep_markers(keep_days=400)
    with psycopg.connect(ledger.url) as connection:
        gone = read_gone(connection)
    assert gone.markers is not None
    assert timedelta(days=72) <= utc_now() - gone.markers < timedelta(days=72, minutes=5)
    assert gone.outcomes is None


@pytest.mark.parametrize("keep_days", [31, 0, -5, None])
def test_nobody_deletes_what_is_younger_than_the_floor(ledger: Ledger, keep_days: int) -> None:
    ledger.add_markers(1, days=31.5)
    with ledger.store() as store, pytest.raises(Unavailable, match="at least 32 days"):
        store.retire_markers(keep_days=keep_days, pages_max=10)
    with ledger.store() as store, pytest.raises(Unavailable, match="at least 32 days"):
        store.retire_outcomes(0, keep_days=keep_days, rows_max=10)
    assert ledger.markers() == {"evt_31.5": 1}


@pytest.mark.parametrize("ahead", ["3 years", "-3 years", "61 minutes", "-61 minutes"])
def test_a_clock_that_has_jumped_deletes_nothing(ledger: Ledger, ahead: str) -> None:
    """The caller's clock against the database's; which of the two is wrong does not matter."""
    ledger.add_markers(1, days=100)
    call = "SELECT onceflow.retire_markers(%s, %s, 72, clock_timestamp() + %s::interval, 10)"
    with pytest.raises(psycopg.Error) as refused:
        ledger.sql(call, [LEASE, TOKEN, ahead])
    assert refused.value.sqlstate == "OF008"
    assert ledger.markers() == {"evt_100": 1}
    ledger.sql(call, [LEASE, TOKEN, "59 minutes"])
    assert ledger.markers() == {}


def test_the_earlier_of_two_clocks_counts(ledger: Ledger) -> None:
    ledger.add_markers(1, days=72.01)
    call = "SELECT onceflow.retire_markers(%s, %s, 72, clock_timestamp() + %s::interval, 10)"
    ledger.sql(call, [LEASE, TOKEN, "-30 minutes"])
    assert ledger.markers() == {"evt_72.01": 1}


def test_a_zombie_deletes_nothing(ledger: Ledger) -> None:
    ledger.add_markers(1, days=100)
    ledger.add_outcomes(0, 3, days=100)
    ledger.hold_lease(TOKEN + 1)
    with ledger.store(token=TOKEN) as store:
        with pytest.raises(LeaseLost):
            store.retire_markers(keep_days=72, pages_max=10)
        with pytest.raises(LeaseLost):
            store.retire_outcomes(0, keep_days=72, rows_max=10)
    assert (ledger.markers(), ledger.seqs(0)) == ({"evt_100": 1}, [1, 2, 3])


def test_two_at_once_delete_each_row_once(ledger: Ledger) -> None:
    ledger.add_markers(4_000, days=100)
    ledger.add_markers(100, days=1)
    ledger.add_outcomes(0, 2_000, days=100)
    counts: list[int] = []

    def work() -> None:
        counts.append(ledger.sweep_markers(pages_max=3) + ledger.sweep_outcomes(0, rows_max=50))

    workers = [threading.Thread(target=work) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    ledger.sweep_markers()
    assert ledger.markers() == {"evt_1": 100}
    assert ledger.seqs(0) == [2_000]
    assert sum(counts) <= 4_000 + 1_999
    assert ledger.sql("SELECT sum(deleted) FROM onceflow.retention") == [(5_999,)]


def test_a_row_that_somebody_holds_is_passed_over_and_goes_the_next_time(ledger: Ledger) -> None:
    ledger.add_markers(10, days=100)
    with psycopg.connect(ledger.url) as holder:
        holder.execute("SELECT FROM onceflow.inbox WHERE event_id = 'evt_100_5' FOR UPDATE")
        assert ledger.sweep_markers() == 9
    assert ledger.sweep_markers() == 1


def test_the_last_published_of_a_lane_and_all_behind_it_stay(ledger: Ledger) -> None:
    ledger.add_outcomes(0, 20, days=100)
    ledger.add_outcomes(0, 5, days=100, published=False)
    ledger.add_outcomes(1, 1, days=100)
    ledger.add_outcomes(2, 3, days=100, published=False)
    assert [ledger.sweep_outcomes(lane, rows_max=7) for lane in range(3)] == [19, 0, 0]
    assert [ledger.seqs(lane) for lane in range(3)] == [list(range(20, 26)), [1], [1, 2, 3]]


def test_a_lane_loses_a_beginning_and_never_gets_a_hole(ledger: Ledger) -> None:
    """Whatever the times in the rows are: a clock that was put back must not cost a row in the middle."""
    for days in (100, 50, 100, 1):
        ledger.add_outcomes(0, 3, days=days)
    assert ledger.sweep_outcomes(0, rows_max=2) == 3
    assert ledger.seqs(0) == list(range(4, 13))
    ledger.sql("UPDATE onceflow.outcome SET created_at = created_at - interval '50 days'")
    assert ledger.sweep_outcomes(0, rows_max=2) == 6
    assert ledger.seqs(0) == [10, 11, 12]


def test_a_lane_that_stands_still_keeps_everything(ledger: Ledger) -> None:
    ledger.add_outcomes(0, 9, days=100)
    for state in ("behind", "recovering", "stopped:tail_lost", "stopped:topic_changed"):
        ledger.sql("UPDATE onceflow.lane SET state = %s", [state])
        assert ledger.sweep_outcomes(0) == 0
    ledger.sql("UPDATE onceflow.lane SET state = 'ok'")
    assert ledger.sweep_outcomes(0) == 8


def test_rows_that_a_person_put_back_stay(ledger: Ledger) -> None:
    """``lanes resume`` may ask for rows from a backup: the duty does not take them away again."""
    ledger.add_outcomes(0, 9, days=100)
    ledger.sql("CREATE TABLE backup AS SELECT * FROM onceflow.outcome")
    assert ledger.sweep_outcomes(0) == 8
    ledger.sql("INSERT INTO onceflow.outcome SELECT * FROM backup WHERE seq < 9")
    assert ledger.sweep_outcomes(0) == 0
    assert ledger.seqs(0) == list(range(1, 10))


def test_what_is_promised_for_ever_is_never_named(ledger: Ledger) -> None:
    bodies = ledger.sql(
        "SELECT prosrc FROM pg_proc JOIN pg_namespace AS n ON n.oid = pronamespace"
        " WHERE n.nspname = 'onceflow' AND proname LIKE 'retire%%'"
    )
    assert len(bodies) >= 2
    for (body,) in bodies:
        deletes = [line for line in body.splitlines() if "DELETE" in line.upper()]
        assert deletes
        assert not any(table in line for line in deletes for table in PROMISED_TABLES)


def test_behind_a_waiting_migration_the_duty_gives_up_and_holds_nobody_up(ledger: Ledger) -> None:
    """A long reader, a migration that waits for it, and the queue behind it."""
    ledger.add_markers(10, days=100)
    with psycopg.connect(ledger.url) as reader, psycopg.connect(ledger.url) as migration:
        reader.execute("SELECT count(*) FROM onceflow.inbox")
        migration.execute("SET LOCAL lock_timeout = '20s'")
        waiting = threading.Thread(target=lambda: migration.execute("ALTER TABLE onceflow.inbox ADD COLUMN x integer"))
        waiting.start()
        wait_for(lambda: ledger.sql("SELECT count(*) FROM pg_locks WHERE NOT granted") == [(1,)], "the migration waits")
        with ledger.store() as store, pytest.raises(Unavailable, match="55P03"):
            store.retire_markers(keep_days=72, pages_max=10)
        reader.rollback()
        waiting.join(20)
        migration.rollback()
    assert ledger.sweep_markers() == 10


def test_the_slices_read_their_own_pages_only(ledger: Ledger) -> None:
    """The plan: a range of pages, whatever the table's size is; and the sequences of a lane by its primary key."""
    ledger.add_markers(20_000, days=1)
    ledger.sql("ANALYZE onceflow.inbox")
    [(pages,)] = ledger.sql("SELECT pg_relation_size('onceflow.inbox') / 8192")
    assert pages > 300
    read = "SELECT heap_blks_hit + heap_blks_read FROM pg_statio_user_tables WHERE relname = 'inbox'"
    with psycopg.connect(ledger.url, autocommit=True) as connection:
        connection.execute("SELECT pg_stat_force_next_flush()")
        before = connection.execute(read.encode()).fetchone()
        given = {"name": LEASE, "token": TOKEN, "keep_days": 72, "asked_at": utc_now(), "pages_max": 10}
        connection.execute(queries("retention")["markers"], given)
        connection.execute("SELECT pg_stat_force_next_flush()")
        after = connection.execute(read.encode()).fetchone()
    assert before is not None
    assert after is not None
    assert after[0] - before[0] < 60
