"""How often the handlers of a batch run when one of them fails, and what each run is given."""

from __future__ import annotations

from collections import Counter

import pytest

from onceflow_processor.event import Event
from onceflow_processor.handler_failure import TRIES_MAX
from onceflow_processor.handlers import Handlers
from onceflow_processor.tx import Tx
from tests.processor.conftest import record
from tests.processor.test_batch_runner import MakeBench, paid

EVENTS = 60
BAD = frozenset({"evt_7", "evt_31"})


def counting(calls: Counter[str], *, touches: bool) -> Handlers:
    """Handlers that spoil the body they were given, claim a fact, and fail for the bad events."""
    handlers = Handlers()

    @handlers.on("invoice.paid")
    def note(event: Event, tx: Tx) -> None:
        calls[event.id] += 1
        invoice = event.object.pop("id")
        assert tx.once("seen", event.id), "a failed try gives its facts back"
        if touches:
            tx.execute("INSERT INTO public.ledger (event_id) VALUES (%s)", [event.id])
        if event.id in BAD:
            raise LookupError
        tx.outcome("invoice.paid", key=invoice, data={})

    return handlers


@pytest.mark.parametrize("touches", [False, True])
def test_each_try_is_given_the_body_as_stripe_sent_it(bench: MakeBench, *, touches: bool) -> None:
    calls = Counter[str]()
    one = bench(counting(calls, touches=touches))
    one.run([record(paid(f"evt_{n}", f"in_{n}"), n) for n in range(EVENTS)])
    assert one.quarantine() == {7: "handler_failed", 31: "handler_failed"}
    assert sorted(key for _, key in one.outcomes()) == sorted(f"in_{n}" for n in range(EVENTS) if n not in (7, 31))
    assert [calls[event_id] for event_id in BAD] == [TRIES_MAX, TRIES_MAX]
    assert one.rows("SELECT count(*) AS facts FROM onceflow.fact") == [{"facts": EVENTS - len(BAD)}]


def test_who_did_nothing_in_the_database_costs_nobody_a_second_run(bench: MakeBench) -> None:
    calls = Counter[str]()
    one = bench(counting(calls, touches=False))
    one.run([record(paid(f"evt_{n}", f"in_{n}"), n) for n in range(EVENTS)])
    assert {event_id for event_id, times in calls.items() if times > 1} == BAD


def test_who_did_something_costs_only_those_before_it_in_its_chunk_another_run(bench: MakeBench) -> None:
    """The first failure costs one whole run, since nothing was saved until then."""
    calls = Counter[str]()
    one = bench(counting(calls, touches=True))
    one.run([record(paid(f"evt_{n}", f"in_{n}"), n) for n in range(EVENTS)])
    again = {event_id: times for event_id, times in calls.items() if event_id not in BAD}
    assert max(again.values()) == 3
    assert sum(again.values()) == (EVENTS - 2) + 7 + 7 + 6, "before the first failure, again in its chunk, before 31"
