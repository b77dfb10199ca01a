"""The workers as processes: started, stopped, killed and put to sleep."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from onceflow_processor.handlers import Handlers
from onceflow_processor.operations.service import OperatorOptions, check
from onceflow_schemas.failure import Misconfigured
from onceflow_schemas.operations.limits import LIMITS
from tests.processor.operations.conftest import Scripted, effects
from tests.processor.operations.operator_process import OperationsRoad, SmallStripe
from tests.processor.processor_process import end, wait_until


def options(**more: Any) -> OperatorOptions:
    made = OperatorOptions(
        kafka={},
        database_url="",
        deployment="d",
        accounts=("acct_test",),
        mode="test",
        outcome_topic="o",
        relay_group="g",
        handlers=effects()[0],
        senders={"stripe": Scripted(seconds_max=20.0)},
        owner="me",
    )
    return replace(made, **more)


def test_what_can_work_is_not_refused() -> None:
    check(options())
    check(options(lease_seconds=28.0))


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        ({"lease_seconds": 25.0}, "operations.lease_seconds is 25: another worker would take"),
        ({"senders": {"stripe": Scripted(seconds_max=31.0)}}, "a good value is 37 or more"),
        ({"callback_deadline_seconds": 20.0}, "operations.callback_deadline_seconds"),
        ({"lease_seconds": 601.0}, "operations.lease_seconds must be at most 600"),
        ({"limits": replace(LIMITS, safe_window=timedelta(hours=24))}, "operations.safe_window_hours"),
        ({"concurrency": 0}, "operations.concurrency"),
        ({"burst": 0}, "operations.concurrency, burst"),
        ({"requests_per_second": 0.0}, "requests_per_second"),
        ({"poll_seconds": 0.0}, "poll_seconds"),
    ],
)
def test_what_cannot_work_is_refused_at_start(wrong: dict[str, Any], name: str) -> None:
    with pytest.raises(Misconfigured) as caught:
        check(options(**wrong))
    assert name in str(caught.value)
    assert caught.value.code == "settings_invalid"


def test_handlers_without_an_effect_will_do_for_the_outcomes_of_applications() -> None:
    handlers = Handlers()
    handlers.on("invoice.paid", name="paid")(lambda _event, _tx: None)
    check(options(handlers=handlers))


@pytest.fixture
def road(kafka_bootstrap: str, fresh_database: str, tmp_path: Path) -> OperationsRoad:
    made = OperationsRoad(kafka_bootstrap, fresh_database, tmp_path)
    made.prepare()
    return made


@pytest.fixture
def stripe() -> Iterator[SmallStripe]:
    with SmallStripe() as running:
        yield running


def logged(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]


def test_it_carries_out_what_was_asked_for_and_stops_cleanly(road: OperationsRoad, stripe: SmallStripe) -> None:
    asked = road.ask(*[f"in_{n}" for n in range(20)])
    with road.worker(stripe) as (process, log):
        wait_until(lambda: set(road.operations().values()) == {"succeeded"}, "all have succeeded")
        assert end(process) == 0
        events = [line["event"] for line in logged(log)]
    assert events[0] == "operator_ready"
    assert events[-1] == "operator_stopped"
    assert stripe.effects == dict.fromkeys(asked, 1)
    assert len(road.outcome_ids()) == 20
    assert "sk_test_1" not in log.read_text()


def test_a_worker_that_is_killed_while_it_calls_costs_no_second_refund(
    road: OperationsRoad, stripe: SmallStripe
) -> None:
    [asked] = road.ask("in_1")
    stripe.gate.clear()
    with road.worker(stripe) as (first, _):
        wait_until(lambda: stripe.waiting, "the call has had its effect")
        first.kill()
        first.wait(10)
    stripe.gate.set()
    assert road.operations() == {"in_1": "sending"}
    with road.worker(stripe):
        wait_until(lambda: road.operations() == {"in_1": "succeeded"}, "it has succeeded")
    assert stripe.requests[asked] == 2
    assert stripe.effects[asked] == 1
    rows = road.rows("SELECT n, evidence FROM onceflow.attempt ORDER BY n")
    assert [(row["n"], row["evidence"]) for row in rows] == [(1, None), (2, "done")]
    assert len(road.outcome_ids()) == 1


def test_a_worker_that_sleeps_beyond_its_lease_writes_nothing(road: OperationsRoad, stripe: SmallStripe) -> None:
    [asked] = road.ask("in_1")
    stripe.gate.clear()
    with road.worker(stripe) as (sleeper, log):
        wait_until(lambda: stripe.waiting, "the call is on its way")
        sleeper.send_signal(signal.SIGSTOP)
        stripe.gate.set()
        with road.worker(stripe):
            wait_until(lambda: road.operations() == {"in_1": "succeeded"}, "another has settled it")
            before = road.rows("SELECT fence, settled_at, told, external_id FROM onceflow.operation")
            sleeper.send_signal(signal.SIGCONT)
            wait_until(
                lambda: {"late_answer_refused", "lease_lost"} & {line["event"] for line in logged(log)},
                "it was refused",
            )
            begun = time.monotonic()
            wait_until(lambda: time.monotonic() - begun > 1.0, "it has had time for harm")
    assert road.rows("SELECT fence, settled_at, told, external_id FROM onceflow.operation") == before
    assert before[0]["fence"] == 2
    assert stripe.effects[asked] == 1
    assert len(road.outcome_ids()) == 1
