"""Redrives by a process that does not know the handler an event failed in: another release, or one that was taken back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import psycopg
import pytest

from onceflow import Event, Handlers, Quarantine, RetryIn, Tx
from onceflow_processor.failures.deciding import carry_out
from onceflow_processor.parking import handler_missing
from onceflow_schemas.failure_course import RetryRules
from tests.processor.conftest import Bench
from tests.processor.failures.orders import order
from tests.processor.poison import Poison, key_rows, ledger, of_key, parked

MakeBench = Callable[[Handlers], Bench]


@pytest.fixture(name="poison")
def handlers_with_poison() -> Poison:
    return Poison()


def of_other_release(event_type: str = "customer.created") -> Handlers:
    """Handlers without the one that the tests' events fail in."""
    handlers = Handlers()

    @handlers.on(event_type)
    def renamed(event: Event, tx: Tx) -> None:
        tx.execute("INSERT INTO public.ledger (event_id, note) VALUES (%s, 'renamed')", [event.id])

    return handlers


def retry_from_quarantine(bench: Bench) -> None:
    with psycopg.connect(bench.url, autocommit=True) as person:
        assert carry_out(person, order("quarantine", "retry", ["evt_1"])).events == 1


@pytest.mark.parametrize("known", ["customer.created", "invoice.paid"])
def test_a_process_without_the_handler_lets_the_event_wait(bench: MakeBench, poison: Poison, known: str) -> None:
    """Else it would count as ignored, or as processed by another handler, and its effect would be missing in silence."""
    poison.raises["evt_1"] = RetryIn(0)
    one = bench(poison.handlers)
    one.run([of_key("evt_1", "in_1", 0), of_key("evt_2", "in_1", 1)])
    one.handlers = of_other_release(known)
    one.redrive(10)
    assert one.states() == {"evt_1": "parked", "evt_2": "parked"}
    [row] = one.rows("SELECT code, detail, handler, open_tries FROM onceflow.parked WHERE event_id = 'evt_1'")
    assert row == {
        "code": "handler_missing",
        "detail": "not registered for this type: note",
        "handler": "note",
        "open_tries": 0,
    }
    assert key_rows(one) == [(one.rows("SELECT order_key FROM onceflow.parked_key")[0]["order_key"], "retry", "evt_1")]
    assert ledger(one) == []
    # A second look by that process changes nothing, and the release with the handler does it, in order.
    one.make_due()
    one.redrive(10)
    assert parked(one) == ["evt_1", "evt_2"]
    one.handlers = poison.handlers
    poison.raises.clear()
    one.make_due()
    one.redrive(10)
    assert ledger(one) == ["evt_1", "evt_2"]
    assert one.states() == {"evt_1": "processed", "evt_2": "processed"}


def test_an_event_that_waits_for_its_handler_too_long_is_for_a_person_who_may_let_others_run(
    bench: MakeBench, poison: Poison
) -> None:
    poison.raises["evt_1"] = RetryIn(0)
    one = bench(poison.handlers)
    one.retry = RetryRules(wait_seconds_min=0.01, wait_seconds_max=0.02, attempts_max=2)
    one.run([of_key("evt_1", "in_1", 0), of_key("evt_2", "in_1", 1)])
    one.handlers = of_other_release("invoice.paid")
    for _ in range(2):
        one.make_due()
        one.redrive()
    assert one.states() == {"evt_1": "quarantined", "evt_2": "parked"}
    [row] = one.rows("SELECT code, handler FROM onceflow.quarantine")
    assert row == {"code": "handler_missing", "handler": "note"}
    assert [reason for _, reason, _ in key_rows(one)] == ["quarantined"]
    retry_from_quarantine(one)
    one.redrive(10)
    assert one.states() == {"evt_1": "processed", "evt_2": "processed"}, "it was renamed for good"
    assert ledger(one) == ["evt_1", "evt_2"]


def test_a_retry_from_quarantine_does_not_run_without_the_handler_either(bench: MakeBench, poison: Poison) -> None:
    poison.raises["evt_1"] = Quarantine("look")
    one = bench(poison.handlers)
    one.run([of_key("evt_1", "in_1", 0)])
    retry_from_quarantine(one)
    one.handlers = of_other_release("invoice.paid")
    one.redrive(10)
    assert one.states() == {"evt_1": "parked"}
    assert ledger(one) == []


@pytest.mark.parametrize("first", ["parked", "quarantine"])
def test_what_a_person_skipped_and_retries_runs_with_what_is_registered(
    bench: MakeBench, poison: Poison, first: Literal["parked", "quarantine"]
) -> None:
    """The way out for a handler that was renamed: also at once, where the event waits for it already."""
    poison.raises["evt_1"] = Quarantine("look")
    one = bench(poison.handlers)
    one.run([of_key("evt_1", "in_1", 0)])
    one.handlers = of_other_release("invoice.paid")
    if first == "parked":
        retry_from_quarantine(one)
        one.redrive(10)
        assert one.states() == {"evt_1": "parked"}
    with psycopg.connect(one.url, autocommit=True) as person:
        assert carry_out(person, order(first, "skip", ["evt_1"])).events == 1
        assert carry_out(person, order("quarantine", "retry", ["evt_1"], again=True)).events == 1
    one.redrive(10)
    assert one.states() == {"evt_1": "processed"}
    assert ledger(one) == ["evt_1"]


@pytest.mark.parametrize(
    ("failed_in", "missing"),
    [(None, None), ("", None), ("a", None), ("a, b", None), ("c", "c"), ("a, c, d", "c, d"), ("ab", "ab")],
)
def test_which_handlers_are_missing(failed_in: str | None, missing: str | None) -> None:
    fault = handler_missing(failed_in, ["a", "b"])
    assert (None if fault is None else fault.handler) == missing
