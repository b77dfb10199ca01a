"""What a handler does to the session, to its connection and to its tx costs its own event at most."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from onceflow_processor.batch_runner import ConnectionSpoiled
from onceflow_processor.event import Event
from onceflow_processor.handlers import Handlers
from onceflow_processor.tx import Tx
from onceflow_schemas.failure import Refused
from tests.processor.conftest import record
from tests.processor.test_batch_runner import MakeBench, paid, simple


@pytest.mark.parametrize(
    "statement",
    [
        "SET search_path = pg_catalog",
        "SET LOCAL search_path = pg_catalog",
        "  set session_replication_role = replica",
        "SET LOCAL statement_timeout = '1ms'",
        "SET default_transaction_read_only = on",
        "SET ROLE pg_read_all_data",
        "SELECT set_config('search_path', 'pg_catalog', false)",
        "DO $$ BEGIN SET search_path = pg_catalog; END $$",
        "/* a comment */ SET search_path = pg_catalog",
    ],
)
def test_what_a_handler_sets_is_not_inherited(bench: MakeBench, statement: str) -> None:
    handlers = Handlers()

    @handlers.on("invoice.paid")
    def note(event: Event, tx: Tx) -> None:
        tx.execute("INSERT INTO ledger (event_id) VALUES (%s)", [event.id])
        if event.id in {"evt_2", "evt_9"}:
            tx.execute(statement)

    one = bench(handlers)
    for start in (0, 10):
        one.run([record(paid(f"evt_{n}", f"in_{n}"), n) for n in range(start, start + 10)])
    assert set(one.states().values()) == {"processed"}
    assert len(one.rows("SELECT * FROM public.ledger")) == 20


def test_a_handler_that_makes_the_batch_read_only_is_found(bench: MakeBench) -> None:
    handlers = simple()

    @handlers.on("invoice.paid", name="reader")
    def reader(event: Event, tx: Tx) -> None:
        if event.id == "evt_3":
            tx.execute("SET TRANSACTION READ ONLY")

    one = bench(handlers)
    one.run([record(paid(f"evt_{n}", f"in_{n}"), n) for n in range(6)])
    assert one.quarantine() == {3: "handler_broke_transaction"}
    assert len(one.outcomes()) == 5


def test_what_a_handler_does_to_its_connection_object_stays_there(bench: MakeBench) -> None:
    handlers = simple()

    @handlers.on("invoice.paid", name="builder")
    def builder(event: Event, tx: Tx) -> None:
        tx.connection.row_factory = dict_row
        tx.connection.cursor_factory = psycopg.ClientCursor
        tx.connection.prepare_threshold = 0
        [row] = tx.connection.execute("SELECT event_id FROM public.ledger WHERE event_id = %s", [event.id]).fetchall()
        assert row == {"event_id": event.id}
        with tx.connection.transaction():
            tx.connection.execute("SELECT 1")

    one = bench(handlers)
    for start in (0, 5, 10):
        one.run([record(paid(f"evt_{n}", f"in_{n}"), n) for n in range(start, start + 5)])
    assert set(one.states().values()) == {"processed"}
    assert len(one.outcomes()) == 15
    assert len(one.rows("SELECT * FROM public.ledger")) == 15


@pytest.mark.parametrize("leaving", ["pipeline", "copy"])
def test_what_a_handler_leaves_open_costs_its_own_event_at_most(bench: MakeBench, leaving: str) -> None:
    handlers = simple()

    @handlers.on("invoice.paid", name="untidy")
    def untidy(event: Event, tx: Tx) -> None:
        if event.id != "evt_3":
            return
        if leaving == "pipeline":
            tx.connection.pgconn.enter_pipeline_mode()
        else:
            tx.connection.pgconn.exec_(b"COPY public.ledger FROM STDIN")

    one = bench(handlers)
    records = [record(paid(f"evt_{n}", f"in_{n}"), n) for n in range(6)]
    try:
        one.run(records)
    except ConnectionSpoiled:
        with psycopg.connect(one.url) as one.connection:
            one.run_again()
    states = one.states()
    assert states.pop("evt_3") == ("quarantined")
    assert set(states.values()) == {"processed"}
    assert one.next_offset() == 6


def test_a_tx_that_was_kept_is_of_no_use_later(bench: MakeBench) -> None:
    handlers, kept, refused = Handlers(), list[Tx](), list[str]()

    @handlers.on("invoice.paid")
    def keep(event: Event, tx: Tx) -> None:
        for old in kept:
            for attempt in (
                lambda: old.outcome("stolen", key="k", data={}),  # noqa: B023 - called at once.
                lambda: old.execute("INSERT INTO public.ledger (event_id) VALUES ('stolen')"),  # noqa: B023
                lambda: old.once("stolen", "k"),  # noqa: B023
                lambda: old.connection.execute("SELECT 1"),  # noqa: B023
            ):
                with pytest.raises(Refused):
                    attempt()
                refused.append(event.id)
        kept.append(tx)
        tx.outcome("own", key=event.object["id"], data={})

    one = bench(handlers)
    one.run([record(paid("evt_1", "in_1"), 0), record(paid("evt_2", "in_2"), 1)])
    assert refused == ["evt_2"] * 4
    assert sorted(one.outcomes()) == [("own", "in_1"), ("own", "in_2")]
    assert one.rows("SELECT * FROM public.ledger") == []


def test_a_connection_that_was_kept_is_of_no_use_later(bench: MakeBench) -> None:
    handlers, kept = Handlers(), list[psycopg.Connection[Any]]()

    @handlers.on("invoice.paid")
    def keep(_event: Event, tx: Tx) -> None:
        for old in kept:
            with pytest.raises(AttributeError):
                old.execute("INSERT INTO public.ledger (event_id) VALUES ('stolen')")
        kept.append(tx.connection)

    one = bench(handlers)
    one.run([record(paid("evt_1", "in_1"), 0), record(paid("evt_2", "in_2"), 1)])
    assert set(one.states().values()) == {"processed"}
    assert one.rows("SELECT * FROM public.ledger") == []
