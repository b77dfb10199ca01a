"""The oldest PostgreSQL that is supported: the same tests as on the newest, over Debian's 15, and the whole road.

It has no ``transaction_timeout``, and no builtin locale provider.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest

from onceflow_processor.attempt import limits_setter
from tests.checker.waiting import wait_for
from tests.clusters.database_roles import address_of, make_roles, run_file
from tests.clusters.installation import Installation
from tests.clusters.postgres_15 import Postgres15
from tests.processor.conftest import bench
from tests.processor.test_batch_runner import (
    test_a_batch_is_written_as_one,
    test_a_closed_lane_holds_its_partition_and_no_other,
    test_a_fact_taken_by_somebody_else_is_found_in_the_tail,
    test_a_failing_handler_takes_only_its_own_event,
    test_an_old_epoch_writes_nothing,
    test_data_errors_that_show_only_at_commit_are_found_by_halving,
    test_no_handler_can_break_the_batch_in_two,
    test_repeats_have_no_second_effect,
    test_two_workers_with_the_same_events_in_another_order,
)
from tests.relay.test_lane_store import (
    database,
    store,
    test_a_locked_lane_is_waited_for_only_so_long,
    test_a_page_is_bounded_in_rows_and_in_bytes,
    test_publishing_is_marked_only_under_the_token,
    test_who_is_stopped_in_the_middle_of_a_write_holds_up_an_heir_for_seconds_only,
)

__all__ = [
    "bench",
    "database",
    "store",
    "test_a_batch_is_written_as_one",
    "test_a_closed_lane_holds_its_partition_and_no_other",
    "test_a_fact_taken_by_somebody_else_is_found_in_the_tail",
    "test_a_failing_handler_takes_only_its_own_event",
    "test_a_locked_lane_is_waited_for_only_so_long",
    "test_a_page_is_bounded_in_rows_and_in_bytes",
    "test_an_old_epoch_writes_nothing",
    "test_data_errors_that_show_only_at_commit_are_found_by_halving",
    "test_no_handler_can_break_the_batch_in_two",
    "test_publishing_is_marked_only_under_the_token",
    "test_repeats_have_no_second_effect",
    "test_two_workers_with_the_same_events_in_another_order",
    "test_who_is_stopped_in_the_middle_of_a_write_holds_up_an_heir_for_seconds_only",
]


@pytest.fixture(scope="module")
def database_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """In the place of the session's: every fixture of this module that asks for a database gets this one."""
    with Postgres15(tmp_path_factory.mktemp("postgres15")) as server:
        yield server.url


def test_it_is_15(database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        assert connection.info.server_version // 10_000 == 15


def test_a_transaction_whose_client_was_stopped_is_ended(database_url: str) -> None:
    with psycopg.connect(database_url) as stopped, psycopg.connect(database_url, autocommit=True) as other:
        set_limits = limits_setter(
            lock_timeout_ms=2_000, transaction_ms_max=300, server_version=stopped.info.server_version
        )
        set_limits(stopped)
        pid = stopped.info.backend_pid
        wait_for(
            lambda: other.execute("SELECT FROM pg_stat_activity WHERE pid = %s", [pid]).rowcount == 0,
            limit_seconds=20,
            what="end of the backend",
        )
        with pytest.raises(psycopg.errors.IdleInTransactionSessionTimeout):
            stopped.execute("SELECT 1")


def test_the_whole_road_under_least_rights(tmp_path: Path, kafka_bootstrap: str, empty_database: str) -> None:
    place = Installation(tmp_path, {"bootstrap.servers": kafka_bootstrap}, empty_database)
    make_roles(empty_database)
    place.set_up(DATABASE_URL=address_of("onceflow_migrator", empty_database))
    run_file(address_of("onceflow_migrator", empty_database), "grants.sql")
    with psycopg.connect(empty_database, autocommit=True) as owner:
        owner.execute("GRANT INSERT ON public.seen TO onceflow_processor")
    with ExitStack() as stack:
        bridge = stack.enter_context(place.running("bridge"))
        for command, role in (("process", "onceflow_processor"), ("relay", "onceflow_relay")):
            stack.enter_context(place.running(command, DATABASE_URL=address_of(role, empty_database)))
        place.send(bridge, ["evt_1", "evt_2", "evt_3"])
        assert set(place.wait_for_states(["evt_1", "evt_2", "evt_3"]).values()) == {"processed"}
        assert sorted(place.published(3)) == ["evt_1", "evt_2", "evt_3"]
