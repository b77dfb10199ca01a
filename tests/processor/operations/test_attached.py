"""Operations, facts and outcomes of an application's own transaction: one commit with its rows, or nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import psycopg
import pytest
from psycopg import Connection
from psycopg.pq import TransactionStatus
from psycopg.rows import dict_row
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from onceflow import Charge, Handlers, OperationConflict, Tx, attach
from onceflow_processor.operations.effect import Effect
from onceflow_schemas.failure import Misconfigured, Refused
from onceflow_schemas.identity import operation_id

WAIT_SECONDS_MAX = 10.0

handlers = Handlers()


@handlers.effect("charge_order")
def charge_order(order: str, amount: int) -> Charge:
    return Charge(amount=amount, currency="usd", payment_method="pm_1", description=order)


@pytest.fixture
def database(fresh_database: str) -> str:
    with psycopg.connect(fresh_database, autocommit=True) as setup:
        setup.execute("CREATE TABLE public.orders (id text PRIMARY KEY, state text NOT NULL DEFAULT 'new')")
        setup.execute("INSERT INTO public.orders (id) VALUES ('o-1'), ('o-2')")
        deploy(setup, "{acct_1}")
    return fresh_database


def deploy(connection: Connection[Any], accounts: str) -> None:
    connection.execute("DELETE FROM onceflow.deployment")
    connection.execute(
        "INSERT INTO onceflow.deployment (id, accounts, mode, system_id, timeline, restores) VALUES ('d', %s, 'test', 's', 1, 2)",
        [accounts],
    )


@pytest.fixture
def connection(database: str) -> Iterator[Connection[Any]]:
    with psycopg.connect(database) as opened:
        yield opened


def engine_of(url: str) -> Engine:
    return create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(url), poolclass=NullPool)


def rows(url: str, query: str) -> list[dict[str, Any]]:
    """What is committed."""
    with psycopg.connect(url, row_factory=dict_row) as other:
        return other.execute(query.encode()).fetchall()


def confirm(tx: Tx, order: str = "o-1", amount: int = 100) -> str:
    tx.execute("UPDATE public.orders SET state = 'confirmed' WHERE id = %s", [order])
    tx.outcome("order.confirmed", key=order, data={"order": order})
    assert tx.once("order-confirmed", order)
    return tx.request(charge_order, subject=order, order=order, amount=amount)


def committed(url: str) -> tuple[list[str], list[str], list[str], list[str]]:
    """Confirmed orders, subjects of operations, keys of facts and of staged outcomes."""
    return (
        [row["id"] for row in rows(url, "SELECT id FROM public.orders WHERE state = 'confirmed'")],
        [row["subject"] for row in rows(url, "SELECT subject FROM onceflow.operation")],
        [row["key"] for row in rows(url, "SELECT key FROM onceflow.fact")],
        [row["key"] for row in rows(url, "SELECT key FROM onceflow.outcome_staged")],
    )


ALL = (["o-1"], ["o-1"], ["o-1"], ["o-1"])
NONE: tuple[list[str], ...] = ([], [], [], [])


def test_confirming_an_order_and_asking_for_its_charge_is_one_commit(
    database: str, connection: Connection[Any]
) -> None:
    made = confirm(attach(connection, cause="order:o-1"))
    assert committed(database) == NONE
    connection.commit()
    assert committed(database) == ALL
    [row] = rows(database, "SELECT * FROM onceflow.operation")
    assert str(row["id"]) == made
    assert row["id"] == operation_id(account="acct_1", mode="test", effect="charge_order", subject="o-1", occurrence=1)
    assert (row["cause"], row["state"], row["restores"]) == ("app:order:o-1", "requested", 2)
    assert row["window_from"] == row["requested_at"]
    [fact] = rows(database, "SELECT * FROM onceflow.fact")
    assert (fact["namespace"], fact["cause"]) == ("order-confirmed", "app:order:o-1")


def test_a_rollback_takes_everything_with_it(database: str, connection: Connection[Any]) -> None:
    confirm(attach(connection, cause="order:o-1"))
    connection.rollback()
    assert committed(database) == NONE


def test_a_transaction_block_of_an_autocommit_connection(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection, connection.transaction():
        confirm(attach(connection, cause="order:o-1"))
    assert committed(database) == ALL


@pytest.mark.parametrize("commits", [True, False])
def test_with_sqlalchemy(database: str, *, commits: bool) -> None:
    engine = engine_of(database)
    with Session(engine) as session:
        session.execute(text("UPDATE public.orders SET state = 'seen' WHERE id = 'o-2'"))
        connection = cast("Connection[Any]", session.connection().connection.driver_connection)
        confirm(attach(connection, cause="order:o-1"))
        session.execute(text("UPDATE public.orders SET state = 'after' WHERE id = 'o-2'"))
        (session.commit if commits else session.rollback)()
    engine.dispose()
    assert committed(database) == (ALL if commits else NONE)
    [other] = rows(database, "SELECT state FROM public.orders WHERE id = 'o-2'")
    assert other["state"] == ("after" if commits else "new")


def test_with_sqlalchemy_the_first_statement_may_be_ours(database: str) -> None:
    engine = engine_of(database)
    with Session(engine) as session, session.begin():
        driver = session.connection().connection.driver_connection
        confirm(attach(cast("Connection[Any]", driver), cause="order:o-1"))
    engine.dispose()
    assert committed(database) == ALL


USES: list[Callable[[Tx], object]] = [
    lambda tx: tx.request(charge_order, subject="o-9", order="o-9", amount=1),
    lambda tx: tx.outcome("order.confirmed", key="o-9", data={}),
    lambda tx: tx.once("order-confirmed", "o-9"),
    lambda tx: tx.execute("UPDATE public.orders SET state = 'late'"),
    lambda tx: tx.fetch_one("SELECT 1"),
    lambda tx: tx.fetch_all("SELECT 1"),
    lambda tx: tx.connection,
]


@pytest.mark.parametrize("in_another", [False, True])
@pytest.mark.parametrize("autocommit", [False, True])
def test_a_tx_ends_with_its_transaction(database: str, *, autocommit: bool, in_another: bool) -> None:
    with psycopg.connect(database, autocommit=autocommit) as connection:
        with connection.transaction():
            tx = attach(connection, cause="order:o-1")
            with connection.transaction():
                confirm(tx)
        for use in USES:
            with connection.transaction() if in_another else nullcontext():
                if in_another:
                    connection.execute("UPDATE public.orders SET state = 'another' WHERE id = 'o-2'")
                with pytest.raises(Refused) as refused:
                    use(tx)
            assert refused.value.code == "tx_ended"
            assert connection.info.transaction_status == TransactionStatus.IDLE
    assert committed(database) == ALL


def test_the_applications_row_factory_is_its_own(database: str) -> None:
    with psycopg.connect(database, row_factory=dict_row) as connection:
        tx = attach(connection, cause="order:o-1")
        confirm(tx)
        confirm(attach(connection, cause="again"), "o-2")
        assert tx.fetch_one("SELECT 1 AS one") == {"one": 1}
        assert connection.execute("SELECT 2 AS two").fetchone() == {"two": 2}


def test_the_same_again_is_nothing_new(database: str, connection: Connection[Any]) -> None:
    """The answer to a COMMIT was lost, and the application does it all again."""
    first = confirm(attach(connection, cause="order:o-1"))
    connection.commit()
    tx = attach(connection, cause="order:o-1")
    assert tx.request(charge_order, subject="o-1", order="o-1", amount=100) == first
    assert not tx.once("order-confirmed", "o-1")
    tx.outcome("order.confirmed", key="o-1", data={"order": "o-1"})
    connection.commit()
    assert committed(database) == ALL


def test_other_arguments_are_a_conflict_at_once_and_the_transaction_goes_on(
    database: str, connection: Connection[Any]
) -> None:
    confirm(attach(connection, cause="order:o-1"))
    connection.commit()
    tx = attach(connection, cause="order:o-1:again")
    with pytest.raises(OperationConflict, match="charge_order"):
        tx.request(charge_order, subject="o-1", order="o-1", amount=101)
    tx.request(charge_order, subject="o-1", occurrence=2, order="o-1", amount=101)
    connection.commit()
    amounts = [row["args"]["amount"] for row in rows(database, "SELECT args FROM onceflow.operation ORDER BY seq")]
    assert amounts == [100, 101]


@pytest.mark.parametrize("order_key", [None, "customer-2"])
def test_another_order_key_is_a_conflict_too(connection: Connection[Any], order_key: str | None) -> None:
    tx = attach(connection, cause="order:o-1")
    made = tx.request(charge_order, subject="o-1", order_key="customer-1", order="o-1", amount=1)
    assert tx.request(charge_order, subject="o-1", order_key="customer-1", order="o-1", amount=1) == made
    with pytest.raises(OperationConflict, match="another order_key"):
        tx.request(charge_order, subject="o-1", order_key=order_key, order="o-1", amount=1)


def test_one_cause_for_two_pieces_of_work_loses_neither(database: str, connection: Connection[Any]) -> None:
    for order in ("o-1", "o-2"):
        attach(connection, cause="checkout").outcome("order.confirmed", key="cus_1", data={"order": order})
        connection.commit()
    assert len(rows(database, "SELECT * FROM onceflow.outcome_staged")) == 2


def test_equal_outcomes_of_one_transaction_are_two(database: str, connection: Connection[Any]) -> None:
    tx = attach(connection, cause="checkout")
    ids = {tx.outcome("ping", key="k", data={}) for _ in range(2)}
    connection.commit()
    assert {row["outcome_id"] for row in rows(database, "SELECT outcome_id FROM onceflow.outcome_staged")} == ids
    assert len(ids) == 2


def test_two_applications_ask_for_the_same_at_once(database: str) -> None:
    """The second waits for the first's commit, and then it is the same operation."""
    with psycopg.connect(database) as first, psycopg.connect(database) as second:
        made = attach(first, cause="a").request(charge_order, subject="o-1", order="o-1", amount=1)
        answers: list[object] = []

        def ask(amount: int) -> None:
            try:
                answers.append(
                    attach(second, cause="b").request(charge_order, subject="o-1", order="o-1", amount=amount)
                )
            except OperationConflict as conflict:
                answers.append(conflict.code)
            second.rollback()

        for amount, expected in ((1, made), (2, "operation_conflict")):
            asking = threading.Thread(target=ask, args=(amount,))
            asking.start()
            if amount == 1:
                _wait_until_waiting(database)
                first.commit()
            asking.join(WAIT_SECONDS_MAX)
            assert answers.pop() == expected


def _wait_until_waiting(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as other:
        waiting = (
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        )
        pause = threading.Event()
        for _ in range(int(WAIT_SECONDS_MAX / 0.01)):
            row = other.execute(waiting.encode()).fetchone()
            if row is not None and row[0]:
                return
            pause.wait(0.01)
    raise AssertionError


def test_when_it_was_decided_starts_the_safe_window(database: str, connection: Connection[Any]) -> None:
    decided = datetime.now(UTC) - timedelta(hours=7)
    tx = attach(connection, cause="order:o-1", happened_at=decided)
    tx.request(charge_order, subject="o-1", order="o-1", amount=1)
    connection.commit()
    [row] = rows(database, "SELECT window_from FROM onceflow.operation")
    assert row["window_from"] == decided


def test_of_several_accounts_one_is_named(database: str, connection: Connection[Any]) -> None:
    with psycopg.connect(database, autocommit=True) as setup:
        deploy(setup, "{acct_1,acct_2}")
    with pytest.raises(Refused, match="serves 2 accounts: name one with account="):
        attach(connection, cause="c")
    attach(connection, cause="c", account="acct_2").request(charge_order, subject="a", order="o", amount=1)
    attach(connection, cause="c", account="acct_1").request(
        charge_order, subject="a", account="acct_2", order="o", amount=1
    )
    with pytest.raises(Refused, match="acct_3 is not an account of this deployment"):
        attach(connection, cause="c", account="acct_3").request(charge_order, subject="a", order="o", amount=1)
    connection.commit()
    assert [row["account"] for row in rows(database, "SELECT account FROM onceflow.operation")] == ["acct_2"]


def _autocommit(connection: Connection[Any]) -> Any:
    connection.autocommit = True
    return connection


def _failed(connection: Connection[Any]) -> Any:
    with pytest.raises(psycopg.Error):
        connection.execute("SELECT no_such_column")
    return connection


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        (_autocommit, "autocommit mode"),
        (_failed, "INERROR"),
        (lambda connection: connection.cursor(), "attach takes a psycopg connection, not Cursor"),
        (lambda _connection: None, "not NoneType"),
    ],
)
def test_where_no_transaction_would_be_open_nothing_is_attached(
    connection: Connection[Any], broken: Callable[[Connection[Any]], Any], why: str
) -> None:
    with pytest.raises(Refused, match=why):
        attach(broken(connection), cause="c")


def test_a_pipeline_is_refused(connection: Connection[Any]) -> None:
    with connection.pipeline(), pytest.raises(Refused, match="pipeline mode"):
        attach(connection, cause="c")


def test_a_session_of_sqlalchemy_itself_is_refused_with_the_way_to_its_connection(connection: Connection[Any]) -> None:
    with pytest.raises(Refused) as refused:
        attach(cast("Connection[Any]", Session()), cause="c")
    assert "session.connection().connection.driver_connection" in refused.value.hint


@pytest.mark.parametrize("cause", ["", "a b", "ü", "x" * 201, 5, None])
def test_a_cause_is_a_plain_word(connection: Connection[Any], cause: Any) -> None:
    with pytest.raises(Refused, match="printable ASCII"):
        attach(connection, cause=cause)


def test_the_message_about_a_long_cause_is_whole(connection: Connection[Any]) -> None:
    with pytest.raises(Refused) as refused:
        attach(connection, cause="x" * 201)
    assert refused.value.message == (
        f"the cause '{'x' * 79}...' is not 1 to 200 printable ASCII characters without spaces"
    )


def test_a_time_without_a_zone_is_refused(connection: Connection[Any]) -> None:
    with pytest.raises(Refused, match="no time zone"):
        attach(connection, cause="c", happened_at=datetime(2026, 1, 1))  # noqa: DTZ001 - that is the point.


@pytest.mark.parametrize("happened_at", ["x", 5, "2026-01-01T00:00:00Z"])
def test_a_time_that_is_none_is_refused(connection: Connection[Any], happened_at: Any) -> None:
    with pytest.raises(Refused, match="not a datetime") as refused:
        attach(connection, cause="c", happened_at=happened_at)
    assert refused.value.code == "operation_refused"


def test_without_a_deployment_nothing_can_be_asked_for(database: str, connection: Connection[Any]) -> None:
    with psycopg.connect(database, autocommit=True) as setup:
        setup.execute("DELETE FROM onceflow.deployment")
    with pytest.raises(Misconfigured, match="no deployment has been started"):
        attach(connection, cause="c")


def test_what_cannot_be_published_is_refused_at_once(database: str, connection: Connection[Any]) -> None:
    tx = attach(connection, cause="c", outcome_bytes_max=100)
    with pytest.raises(Refused, match="the topic takes 100"):
        tx.outcome("t", key="k", data={"a": "x" * 100})
    with pytest.raises(Refused):
        tx.outcome("t", key="", data={})
    with pytest.raises(Refused):
        tx.request(charge_order, subject="o-1", order="o-1", amount=-1)
    connection.commit()
    assert committed(database) == NONE


def test_an_effect_needs_no_check_of_all_handlers_first(connection: Connection[Any]) -> None:
    assert isinstance(charge_order, Effect)
    attach(connection, cause="c").request(charge_order, subject="x", order="o", amount=1)
