"""Database roles with least rights: enough for everything that each part does, and a refusal for everything else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from onceflow import Handlers, attach, effects
from onceflow_schemas.sql import queries
from tests.clusters.database_roles import ROLES, address_of, make_roles, run_file
from tests.clusters.installation import Installation
from tests.waiting import wait_until

MIGRATOR, PROCESSOR, RELAY, WORKER, APPLICATION, OPERATOR, READER, REPLAYER, RECONCILER = ROLES
NOT_PERMITTED = "42501"
READY_SECONDS = 30.0
LEDGER = ("inbox", "outcome", "fact", "quarantine", "audit", "operation", "attempt", "review")
BOOKS = ("books_exist", "applied", "applied_with_checksums")

LANE_CHECK = ("limits", "lanes", "lane_ids", "lane_ids_between", "lanes_locked", "set_head_state", "restore_noticed")
ALL: tuple[str, ...] = ()
USES: dict[str, dict[str, tuple[str, ...]]] = {
    PROCESSOR: {
        "batch": ALL,
        "dead_letters": ALL,
        "progress": ALL,
        "parking": ALL,
        "start": ALL,
        "migrate": BOOKS,
        "relay": LANE_CHECK,
        "operation_requests": ALL,
        "retention": ("gone",),
        "object_guard": ALL,
        "booking": ALL,
    },
    WORKER: {
        "booking": ALL,
        "operation_work": ALL,
        "operation_requests": ("patience", "patience_over", "request", "request_check", "known_operations", "probe_fact"),
        "outcomes_staged": ALL,
        "batch": (
            "limits", "limits_before_17", "session_check", "guard_open", "known_facts", "tail_facts", "tail_fact_claims",
            "tail_guard", "tail_outcomes",
        ),
        "start": ALL,
        "migrate": BOOKS,
        "relay": LANE_CHECK,
    },
    APPLICATION: {"attach": ALL, "operation_requests": ("request", "known_operations")},
    RELAY: {
        "relay": (
            "limits", "lease_acquire", "lease_renew", "lease_release", "lanes", "lane_ids", "lane_ids_between",
            "outcome_page", "mark_published", "set_lane_state", "restore_noticed",
        ),
        "start": ("safety", "deployment"),
        "migrate": BOOKS,
        "retention": ALL,
    },
    OPERATOR: {
        "operating": ALL,
        "operation_rulings": ALL,
        "failures": ALL,
        "operation_requests": ("wake",),
        "finding_pages": ALL,
        "outcomes": ALL,
        "lane_setup": ("lanes",),
        "relay": ("withhold", "lease_acquire", "lease_renew", "lease_release", "lanes"),
        "migrate": BOOKS,
    },
    RECONCILER: {
        "reconcile": ALL,
        "reconcile_ledger": ALL,
        "reconcile_retention": ALL,
        "relay": ("lease_acquire", "lease_renew", "lease_release"),
        "start": ("safety", "system", "deployment"),
        "migrate": BOOKS,
    },
    REPLAYER: {"replay": ALL, "batch": ALL, "object_guard": ALL, "booking": ALL, "operating": ("audit",)},
    READER: {
        "outcomes": ALL,
        "failures": (
            "quarantine_listed", "parked_listed", "quarantine_counted", "parked_counted", "quarantine_shown", "parked_shown",
            "waiting_behind", "audits",
        ),
        "finding_pages": ("listed", "counted", "remedies"),
        "operation_rulings": ("listed", "operation", "attempts", "hints", "reviews", "accounts"),
        "start": ("safety", "system", "deployment", "lanes"),
        "migrate": BOOKS,
    },
}  # fmt: skip
"""Which statements of ours a role runs; an empty tuple for all of a file."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, kafka_bootstrap: str, module_database: str) -> Installation:
    """An installation that was set up as the head of ``deploy/roles.sql`` says."""
    made = Installation(tmp_path_factory.mktemp("roles"), {"bootstrap.servers": kafka_bootstrap}, module_database)
    make_roles(module_database)
    make_roles(module_database)
    made.set_up(DATABASE_URL=address_of(MIGRATOR, module_database))
    run_file(address_of(MIGRATOR, module_database), "grants.sql")
    with psycopg.connect(module_database, autocommit=True) as owner:
        owner.execute("GRANT INSERT ON public.seen TO onceflow_processor")
    return made


def test_the_whole_road_runs_with_these_roles(place: Installation) -> None:
    with ExitStack() as stack:
        bridge = stack.enter_context(place.running("bridge", DATABASE_URL=""))
        for command, role in (("process", PROCESSOR), ("relay", RELAY)):
            stack.enter_context(place.running(command, DATABASE_URL=address_of(role, place.database_url)))
        place.send(bridge, ["evt_1", "evt_2"])
        assert place.wait_for_states(["evt_1", "evt_2"]) == {"evt_1": "processed", "evt_2": "processed"}
        assert sorted(place.published(2)) == ["evt_1", "evt_2"]


def test_the_grants_may_be_given_again_while_everything_runs(place: Installation) -> None:
    run_file(address_of(MIGRATOR, place.database_url), "grants.sql")
    run_file(place.database_url, "grants.sql")
    planned = place.command("topics", "plan", DATABASE_URL=address_of(OPERATOR, place.database_url))
    assert planned.returncode == 0, planned.stderr


@pytest.mark.parametrize(("role", "arguments"), [(RECONCILER, ["--findings"]), (READER, []), (OPERATOR, [])])
def test_ledgers_are_compared_with_the_rights_to_read_them(
    place: Installation, role: str, arguments: list[str]
) -> None:
    done = place.command("verify", "--without-stripe", *arguments, DATABASE_URL=address_of(role, place.database_url))
    assert done.returncode == 0, done.stdout + done.stderr
    assert ", 0 unexplained" in done.stdout


def statements() -> Iterator[tuple[str, str, str]]:
    for role, files in USES.items():
        for name, wanted in files.items():
            for query, text in queries(name).items():
                if text.startswith((b"SELECT", b"INSERT", b"UPDATE", b"DELETE", b"WITH")) and (
                    not wanted or query in wanted
                ):
                    yield role, name, query


@pytest.mark.parametrize(("role", "name", "query"), list(statements()))
def test_a_role_may_run_every_statement_of_its_part(place: Installation, role: str, name: str, query: str) -> None:
    """The server checks the rights of a statement when it plans it, so nothing needs to be there and nothing happens."""
    text = queries(name)[query].decode().rstrip().rstrip(";")
    planned = re.sub(r"%\((\w+)\)s", lambda match: "1" if match[1] == "guard" else "NULL", text)
    with psycopg.connect(address_of(role, place.database_url)) as connection:
        connection.execute(f"EXPLAIN {planned}".encode())


FROZEN = (
    "id = gen_random_uuid()", "account = 'acct_x'", "effect = 'x'", "subject = 'x'", "occurrence = 2", "args = '{}'",
    "args_sha256 = ''", "steps = '[]'", "api_version = 'x'", "requested_at = now()", "window_from = now()", "restores = 9",
    "cause = 'x'", "seq = DEFAULT",
)  # fmt: skip
"""What an operation was asked for: nobody changes it."""

FORBIDDEN = [
    *((PROCESSOR, f"DELETE FROM onceflow.{table}") for table in (*LEDGER, "progress", "lane", "deployment", "lease")),
    *((PROCESSOR, f"TRUNCATE onceflow.{table}") for table in (*LEDGER, "batch_guard", "suspect")),
    (OPERATOR, "UPDATE onceflow.operation SET state = 'succeeded'"),
    (PROCESSOR, "UPDATE onceflow.inbox SET event_id = 'evt_other'"),
    (PROCESSOR, "UPDATE onceflow.outcome SET value = ''"),
    (PROCESSOR, "UPDATE onceflow.outcome SET withheld = 'x'"),
    (PROCESSOR, "UPDATE onceflow.fact SET cause = 'x'"),
    (PROCESSOR, "UPDATE onceflow.quarantine SET value = ''"),
    (PROCESSOR, "UPDATE onceflow.lane SET published_seq = 0"),
    (PROCESSOR, "UPDATE onceflow.lane SET topic_id = 'x'"),
    (PROCESSOR, "INSERT INTO onceflow.lane (lane, topic_id) VALUES (99, 'x')"),
    (PROCESSOR, "INSERT INTO onceflow.audit (who) VALUES ('x')"),
    (PROCESSOR, "UPDATE onceflow.lease SET token = 99"),
    (PROCESSOR, "CREATE TABLE onceflow.mine (id int)"),
    (PROCESSOR, "CREATE TABLE public.mine (id int)"),
    (PROCESSOR, "CREATE SCHEMA mine"),
    (PROCESSOR, "ALTER TABLE onceflow.inbox ADD COLUMN mine int"),
    (PROCESSOR, "DROP TABLE onceflow.inbox"),
    (PROCESSOR, "INSERT INTO onceflow.schema_migrations (version) VALUES ('1')"),
    (PROCESSOR, "UPDATE onceflow.operation SET state = 'failed'"),
    (PROCESSOR, "INSERT INTO onceflow.operation (id, state) VALUES (gen_random_uuid(), 'succeeded')"),
    (PROCESSOR, "SELECT result FROM onceflow.operation"),
    (PROCESSOR, "INSERT INTO onceflow.attempt (operation_id) VALUES (gen_random_uuid())"),
    (PROCESSOR, "DELETE FROM onceflow.outcome_staged"),
    *((WORKER, f"DELETE FROM onceflow.{table}") for table in (*LEDGER, "lane", "progress", "operation_hint")),
    *((WORKER, f"TRUNCATE onceflow.{table}") for table in (*LEDGER, "outcome_staged")),
    *((WORKER, f"UPDATE onceflow.operation SET {column}") for column in FROZEN),
    (WORKER, "UPDATE onceflow.attempt SET n = 2"),
    (WORKER, "UPDATE onceflow.review SET code = 'x'"),
    (WORKER, "UPDATE onceflow.outcome SET value = ''"),
    (WORKER, "UPDATE onceflow.outcome_staged SET value = ''"),
    (WORKER, "UPDATE onceflow.lane SET published_seq = 0"),
    (WORKER, "SELECT * FROM onceflow.inbox"),
    (WORKER, "SELECT * FROM onceflow.quarantine"),
    (WORKER, "UPDATE onceflow.progress SET next_offset = 0"),
    (WORKER, "CREATE TABLE onceflow.mine (id int)"),
    *((APPLICATION, f"DELETE FROM onceflow.{table}") for table in (*LEDGER, "outcome_staged", "lane")),
    *((APPLICATION, f"TRUNCATE onceflow.{table}") for table in (*LEDGER, "outcome_staged")),
    *((APPLICATION, f"SELECT * FROM onceflow.{table}") for table in (
        "inbox", "outcome", "lane", "progress", "quarantine", "fact", "operation", "attempt", "review", "outcome_staged",
    )),
    (APPLICATION, "SELECT steps FROM onceflow.operation"),
    (APPLICATION, "UPDATE onceflow.operation SET state = 'failed'"),
    (APPLICATION, "INSERT INTO onceflow.operation (id, state) VALUES (gen_random_uuid(), 'succeeded')"),
    (APPLICATION, "INSERT INTO onceflow.outcome (lane, seq) VALUES (0, 99)"),
    (APPLICATION, "INSERT INTO onceflow.inbox (event_id) VALUES ('evt_1')"),
    (APPLICATION, "INSERT INTO onceflow.batch_guard (id, must_be_gone) VALUES (1, -1)"),
    (APPLICATION, "UPDATE onceflow.outcome_staged SET value = ''"),
    (APPLICATION, "UPDATE onceflow.fact SET cause = 'x'"),
    (APPLICATION, "UPDATE onceflow.deployment SET restores = 0"),
    (APPLICATION, "CREATE TABLE onceflow.mine (id int)"),
    *((REPLAYER, f"DELETE FROM onceflow.{table}") for table in (*LEDGER, "replay_run", "replay_stretch", "progress")),
    (REPLAYER, "UPDATE onceflow.audit SET reason = 'x'"),
    (REPLAYER, "UPDATE onceflow.outcome SET value = ''"),
    *((RELAY, f"DELETE FROM onceflow.{table}") for table in (*LEDGER, "lane", "lease")),
    (RELAY, "UPDATE onceflow.lane SET head_seq = 99"),
    (RELAY, "UPDATE onceflow.outcome SET value = ''"),
    (RELAY, "INSERT INTO onceflow.outcome (lane, seq) VALUES (0, 99)"),
    (RELAY, "SELECT * FROM onceflow.inbox"),
    (RELAY, "SELECT * FROM onceflow.quarantine"),
    (RELAY, "UPDATE onceflow.progress SET next_offset = 0"),
    (RELAY, "UPDATE onceflow.retention SET gone_before = '-infinity'"),
    (RELAY, "DELETE FROM onceflow.retention"),
    (RELAY, "SELECT onceflow.retention_book('inbox', 'x', 1)"),
    *((role, f"SELECT onceflow.{call}") for call in (
        "retire_markers('x', 1, 72, now(), 1)", "retire_outcomes('x', 1, 72, now(), 0, 1)",
        "retire_quarantine('x', 1, 365, now(), 1)", "retire_reads('x', 1, 72, now(), 1)",
    ) for role in (PROCESSOR, WORKER, APPLICATION, OPERATOR, READER)),
    *((RECONCILER, f"DELETE FROM onceflow.{table}") for table in (*LEDGER, "finding", "remedy", "reconcile_hour", "reconcile_cursor")),
    *((role, f"SELECT onceflow.{call}") for call in (
        "retire_findings('x', 1, 365, now(), '{}', '{}', 1)", "retire_hours('x', 1, now(), 1)",
    ) for role in (PROCESSOR, RELAY, WORKER, APPLICATION, OPERATOR, READER)),
    (RELAY, "CREATE TABLE onceflow.mine (id int)"),
    *((OPERATOR, f"DELETE FROM onceflow.{table}") for table in (*LEDGER, "progress", "lane")),
    (OPERATOR, "UPDATE onceflow.audit SET reason = 'x'"),
    *((OPERATOR, f"UPDATE onceflow.operation SET {column}") for column in FROZEN),
    (OPERATOR, "UPDATE onceflow.attempt SET evidence = 'done'"),
    (OPERATOR, "UPDATE onceflow.outcome SET value = ''"),
    (OPERATOR, "UPDATE onceflow.lane SET head_seq = 99"),
    (OPERATOR, "UPDATE onceflow.inbox SET event_id = 'evt_other'"),
    (OPERATOR, "UPDATE onceflow.quarantine SET value = ''"),
    (OPERATOR, "INSERT INTO onceflow.inbox (event_id) VALUES ('evt_1')"),
    (OPERATOR, "CREATE TABLE onceflow.mine (id int)"),
    *((READER, f"DELETE FROM onceflow.{table}") for table in LEDGER),
    (READER, "UPDATE onceflow.progress SET next_offset = 0"),
    (READER, "INSERT INTO onceflow.fact (namespace, key, cause) VALUES ('x', 'x', 'x')"),
    (READER, "SELECT * FROM onceflow.lane FOR UPDATE"),
    (READER, "SELECT onceflow.ensure(true, 'OF001', 'x')"),
    (READER, "CREATE TABLE onceflow.mine (id int)"),
    (MIGRATOR, "CREATE ROLE other"),
    (MIGRATOR, "CREATE DATABASE other"),
]  # fmt: skip


@pytest.mark.parametrize(("role", "statement"), FORBIDDEN)
def test_what_is_not_needed_is_refused(place: Installation, role: str, statement: str) -> None:
    address = address_of(role, place.database_url)
    with psycopg.connect(address, autocommit=True) as connection, pytest.raises(psycopg.Error) as refused:
        connection.execute(statement.encode())
    assert refused.value.sqlstate == NOT_PERMITTED


def test_an_application_confirms_and_asks_in_one_commit_with_its_own_role(place: Installation) -> None:
    """It is a member of onceflow_application, and has its own tables beside that."""
    with psycopg.connect(place.database_url, autocommit=True) as owner:
        owner.execute("CREATE TABLE public.orders (id text PRIMARY KEY)")
        owner.execute("CREATE ROLE shop LOGIN PASSWORD 'password-of-shop' IN ROLE onceflow_application")
        owner.execute("GRANT INSERT ON public.orders TO shop")
        owner.execute(
            "INSERT INTO onceflow.deployment (id, accounts, mode, system_id, timeline)"
            " VALUES (%s, '{acct_1}', 'test', 's', 1) ON CONFLICT DO NOTHING",
            [place.deployment],
        )
    refund = Handlers().use(effects.refund)
    with psycopg.connect(address_of("shop", place.database_url)) as connection:
        for _ in range(2):
            tx = attach(connection, cause="order:1")
            tx.execute("INSERT INTO public.orders VALUES ('1') ON CONFLICT DO NOTHING")
            tx.once("order", "1")
            tx.outcome("order.confirmed", key="1", data={})
            tx.request(refund, subject="1", charge="ch_1", amount=5)
            connection.commit()
    with psycopg.connect(place.database_url) as owner:
        counts = [
            owner.execute(f"SELECT count(*) FROM {table}".encode()).fetchone()
            for table in ("public.orders", "onceflow.operation", "onceflow.outcome_staged")
        ]
    assert counts == [(1,), (1,), (1,)]


def test_a_relay_without_a_right_says_so_and_waits(place: Installation) -> None:
    """Rights may be given later, as after a migration: it goes on by itself then."""
    relay = address_of(RELAY, place.database_url)
    with psycopg.connect(place.database_url, autocommit=True) as owner:
        owner.execute("REVOKE ALL ON onceflow.lane FROM onceflow_relay")
        with place.started("relay", DATABASE_URL=relay) as part:
            line = part.wait_for_code("database_unavailable")
            assert line["message"] == "PostgreSQL refuses: permission denied for table lane"
            run_file(address_of(MIGRATOR, place.database_url), "grants.sql")
            wait_until(part.state_file.exists, within_seconds=READY_SECONDS, why=part.text())


def test_nobody_but_the_owner_may_delete_from_any_table_but_those_that_are_no_ledger(place: Installation) -> None:
    with psycopg.connect(place.database_url) as connection:
        rows = connection.execute(
            sql.SQL(
                "SELECT grantee, table_name FROM information_schema.role_table_grants"
                " WHERE table_schema = 'onceflow' AND privilege_type IN ('DELETE', 'TRUNCATE') AND grantee <> {}"
            ).format(sql.Literal(MIGRATOR))
        ).fetchall()
    assert sorted(rows) == [
        (OPERATOR, "parked"), (OPERATOR, "parked_key"), (PROCESSOR, "batch_guard"), (PROCESSOR, "parked"),
        (PROCESSOR, "parked_key"), (PROCESSOR, "suspect"), (WORKER, "batch_guard"), (WORKER, "object_read_part"),
        (WORKER, "outcome_staged"),
    ]  # fmt: skip


def test_the_relay_deletes_what_the_database_finds_old_and_nothing_else(place: Installation) -> None:
    """Under its own role, with a lease, and whatever it asks for."""
    row = (
        'INSERT INTO onceflow.inbox (account, mode, event_id, state, type, object_id, topic_id, partition, "offset",'
        " body_sha256, received_at, processed_at, handler_set)"
        " SELECT 'acct_x', 'test', 'evt_age_' || age, 'processed', 't', '', 't', 0, 0, '', now() - make_interval(days => age),"
        " now() - make_interval(days => age), '' FROM unnest(ARRAY[20, 60, 100]) AS age"
    )
    left = "SELECT event_id FROM onceflow.inbox WHERE event_id LIKE 'evt_age_%' ORDER BY 1"
    call = "SELECT onceflow.retire_markers('relay:roles', 1, %s, now(), 100000)"
    with psycopg.connect(place.database_url, autocommit=True) as owner:
        owner.execute(row)
        owner.execute("INSERT INTO onceflow.lease VALUES ('relay:roles', 'test', 1, 'infinity')")
        with psycopg.connect(address_of(RELAY, place.database_url), autocommit=True) as relay:
            relay.execute(call, [72])
            assert owner.execute(left).fetchall() == [("evt_age_20",), ("evt_age_60",)]
            with pytest.raises(psycopg.Error, match="at least 32 days"):
                relay.execute(call, [1])
        assert owner.execute(left).fetchall() == [("evt_age_20",), ("evt_age_60",)]
        # Another test lets verify look at this database, which would say that no topic has their records.
        owner.execute("DELETE FROM onceflow.inbox WHERE event_id LIKE 'evt_age_%'")


def test_the_files_say_how_they_are_run_and_name_each_role(place: Installation) -> None:
    for name in ("roles.sql", "grants.sql"):
        text = (Path(__file__).parents[2] / "deploy" / name).read_text()
        assert all(role in text for role in ROLES)
