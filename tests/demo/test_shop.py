"""The demo's application: its plan, its pace, and that it insists on what it did not hear the end of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import psycopg
import pytest

from onceflow.demo.running_system import Ready
from onceflow.demo.shop import BAD_CARDS, Deposit, Order, Shop, break_stripe, plan_deeds
from onceflow_simulator import Simulator


@pytest.mark.parametrize("seed", range(3))
def test_the_plan(seed: int) -> None:
    deeds = plan_deeds(seed=seed, requests=2_000)
    assert deeds == plan_deeds(seed=seed, requests=2_000)
    assert Counter(type(deed) for deed in deeds) == {Deposit: 200, Order: 50}
    assert len({deed.name for deed in deeds}) == 250
    assert sum(1 for deed in deeds if isinstance(deed, Order) and deed.payment_method in BAD_CARDS) == 10
    assert Counter(type(deed) for deed in plan_deeds(seed=seed, requests=300)) == {Deposit: 30, Order: 7}


@pytest.fixture(scope="module")
def simulator() -> Iterator[Simulator]:
    with Simulator() as running:
        yield running


def ready(database_url: str, simulator: Simulator) -> Ready:
    return Ready(
        webhook_url="", webhook_secret="", kafka_bootstrap="", database_url=database_url, event_topic="",
        outcome_topic="", metrics_urls={}, pids={}, stripe_api_base=simulator.url, stripe_api_key=simulator.api_key,
    )  # fmt: skip


def test_deposits_are_paid_and_orders_confirmed_once(fresh_database: str, simulator: Simulator) -> None:
    with psycopg.connect(fresh_database) as setup:
        setup.execute(
            "INSERT INTO onceflow.deployment (id, accounts, mode, system_id, timeline)"
            " VALUES ('d', '{acct_1}', 'test', 's', 1)"
        )
    simulator.faults.lose_answer(times=2)
    deeds = plan_deeds(seed=1, requests=100)
    there, away = ready(fresh_database, simulator), ready("host=127.0.0.1 port=1", simulator)
    # After the table is made, addresses that nobody listens at, as while a database is started again.
    told = iter([there, *[away] * 20])
    shop = Shop(lambda: next(told, there), deeds)
    shop.open()
    shop.keep_pace(50, total=100)
    shop.finish()
    assert (shop.done, shop.planned) == (12, 12)
    assert simulator.ledger().count("charge") == 10
    with psycopg.connect(fresh_database) as connection:
        asked = connection.execute("SELECT effect, subject, cause FROM onceflow.operation ORDER BY subject").fetchall()
        assert connection.execute("SELECT count(*) FROM public.demo_order").fetchone() == (2,)
    orders = sorted(deed.name for deed in deeds if isinstance(deed, Order))
    assert asked == [("charge_order", name, f"app:demo:{name}") for name in orders]


def test_stripe_is_broken_for_operations_only(simulator: Simulator) -> None:
    break_stripe(simulator)
    assert [rule["fault"] for rule in simulator.call("GET", "/faults")["rules"]][-2:] == ["lost_request", "lost_answer"]
    simulator.faults.clear()
