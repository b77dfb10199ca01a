"""Reruns over one connection: what retention deletes meanwhile, copies of an event, and which reruns are looked through."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import psycopg
import pytest

from onceflow import Event, Handlers, Tx
from onceflow.effects import refund
from onceflow_processor.admission import Item
from onceflow_processor.replay import rerun_doer
from onceflow_processor.replay.rerun_doer import RerunDoer
from onceflow_processor.replay.runs import LookProgress, Place
from onceflow_processor.replay.surroundings import Surroundings
from onceflow_processor.replay.tally import Tally
from onceflow_processor.worker import WorkerSettings
from onceflow_schemas.sql import queries
from tests.processor.conftest import CLUSTER, TOPIC, TOPIC_ID, Bench, _NoDeadline, event_body, items_of, record

MakeBench = Callable[[Handlers], Bench]
MakeDoer = Callable[[Bench], RerunDoer]


def asking(handlers: Handlers) -> None:
    """A handler that asks once for each customer, whichever invoice comes first."""
    give = handlers.use(refund, name="give_back")

    @handlers.on("invoice.paid")
    def asks(event: Event, tx: Tx) -> None:
        tx.request(give, subject="cus_1", charge="ch_1", amount=5)


class Shop:
    """A handler that can be mended, and that is told when it runs."""

    def __init__(self) -> None:
        self.handlers = Handlers()
        self.note = "first"
        self.while_it_runs: Callable[[], None] = lambda: None

        @self.handlers.on("invoice.paid")
        def paid(event: Event, tx: Tx) -> None:
            self.while_it_runs()
            tx.outcome("paid", key=event.object["id"], data={"note": self.note})


def copy_of(event_id: str, offset: int) -> Item:
    subject = {"id": f"in_{event_id}", "object": "invoice"}
    [item] = items_of([record(event_body(event_id, "invoice.paid", subject), offset)])
    return item


@pytest.fixture
def doer() -> Iterator[Callable[[Bench], RerunDoer]]:
    opened: list[psycopg.Connection[Any]] = []

    def make(one: Bench) -> RerunDoer:
        def open_database() -> psycopg.Connection[Any]:
            opened.append(psycopg.connect(one.url))
            return opened[-1]

        around = Surroundings(
            connection=one.connection,
            settings=cast("WorkerSettings", SimpleNamespace(attempt=one._runner()._settings)),
            place=Place(CLUSTER, TOPIC_ID, TOPIC),
            handler_deadline_seconds=10.0,
            open_database=open_database,
            stopping=lambda: False,
            wait=threading.Event().wait,
        )
        made = RerunDoer(around, execute=True, allow_operations=False)
        made._deadline = _NoDeadline(10.0)
        return made

    yield make
    for connection in opened:
        connection.close()


def done(one: RerunDoer, *chunks: Sequence[Item]) -> dict[str, int]:
    progress = LookProgress(Tally())
    for chunk in chunks:
        assert one.do(chunk, progress) is None
    return progress.tally.done


@pytest.fixture
def shop() -> Shop:
    return Shop()


def test_outcomes_that_are_deleted_while_a_handler_runs_are_not_published_as_new_ones(
    bench: MakeBench, shop: Shop, doer: MakeDoer
) -> None:
    one = bench(shop.handlers)
    one.run([copy_of("evt_old", 0).record, copy_of("evt_young", 1).record])
    one.change("UPDATE onceflow.inbox SET processed_at = now() - interval '80 days' WHERE event_id = 'evt_old'")
    ran: list[int] = []

    def retention_comes_by() -> None:
        ran.append(1)
        if len(ran) == 1:
            one.change("DELETE FROM onceflow.outcome WHERE key = 'in_evt_old'")
            one.change(
                "INSERT INTO onceflow.retention (name, gone_before) VALUES ('outcome/0', now() - interval '72 days')"
            )

    shop.note, shop.while_it_runs = "mended", retention_comes_by
    assert done(doer(one), [copy_of("evt_old", 0), copy_of("evt_young", 1)]) == {
        "outcomes_deleted": 1,
        "rerun": 1,
        "changed": 1,
    }
    rows = one.rows("SELECT key, revision FROM onceflow.outcome ORDER BY key, revision")
    assert rows == [{"key": "in_evt_young", "revision": 1}, {"key": "in_evt_young", "revision": 2}]


def test_a_copy_further_on_counts_as_a_repeat(
    bench: MakeBench, shop: Shop, doer: MakeDoer, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = bench(shop.handlers)
    first, other = copy_of("evt_1", 0), copy_of("evt_2", 1)
    one.run([first.record, other.record])
    rerun = doer(one)
    assert done(rerun, [copy_of("evt_1", 0), copy_of("evt_2", 1)], [copy_of("evt_1", 7)]) == {
        "rerun": 2,
        "unchanged": 2,
        "repeat": 1,
    }
    # Memory has a limit: the oldest is forgotten, and counts again.
    monkeypatch.setattr(rerun_doer, "SEEN_MAX", 1)
    assert done(doer(one), [copy_of("evt_1", 0)], [copy_of("evt_2", 1)], [copy_of("evt_1", 7)]) == {
        "rerun": 3,
        "unchanged": 3,
    }


def test_a_record_of_other_content_does_not_stand_for_its_event(bench: MakeBench, shop: Shop, doer: MakeDoer) -> None:
    one = bench(shop.handlers)
    one.run([copy_of("evt_1", 0).record])
    [other] = items_of([record(event_body("evt_1", "invoice.paid", {"id": "in_x", "object": "invoice"}), 0)])
    assert done(doer(one), [other, copy_of("evt_1", 1)]) == {"repeat": 1, "rerun": 1, "unchanged": 1}


def test_only_reruns_that_may_have_given_something_are_looked_through(bench: MakeBench, shop: Shop) -> None:
    """What an event gave in a rerun long after it was processed, by the rerun's counts and times."""
    one = bench(shop.handlers)
    one.run([copy_of("evt_1", 0).record])
    processed = datetime.now(UTC) - timedelta(days=10)
    one.change("UPDATE onceflow.inbox SET processed_at = %s", processed)
    [cause] = one.rows("SELECT cause FROM onceflow.outcome")

    def given(counts: str, *, updated: str = "now()", run_id: int | None = None) -> int:
        one.change("DELETE FROM onceflow.replay_run")
        one.change(
            "INSERT INTO onceflow.replay_run (kind, cluster_id, topic_id, topic, filters, counts, owner, who, reason, began_at,"
            f" updated_at) VALUES ('rerun', 'c', 't', 't', '{{}}', %s, 'o', 'w', 'r', now() - interval '1 hour', {updated})",
            counts,
        )
        if run_id is not None:
            [run] = one.rows("SELECT id FROM onceflow.replay_run")
            run_id = run["id"]
        asked: dict[str, Any] = {"causes": [cause["cause"]], "first": processed, "last": processed, "run_id": run_id}
        with psycopg.connect(one.url) as reader:
            return len(reader.execute(queries("replay")["outcomes_of"], asked).fetchall())

    assert given('{"done": {"new": 1}}') == 1
    assert given('{"done": {"new": 1}}', run_id=0) == 0, "the run in hand"
    assert given('{"done": {"unchanged": 9}}') == 0
    assert given("{}") == 0
    one.change("UPDATE onceflow.outcome SET created_at = now() - interval '15 days'")
    assert given('{"done": {"new": 1}}', updated="now() - interval '15 days'") == 0


def test_a_new_operation_that_many_events_ask_for_counts_as_new_once(bench: MakeBench, doer: MakeDoer) -> None:
    """Within one transaction, and from one to the next."""
    first = Handlers()

    @first.on("invoice.paid")
    def nothing(_event: Event, _tx: Tx) -> None:
        return None

    one = bench(first)
    events = [copy_of(f"evt_{number}", number) for number in range(5)]
    one.run([item.record for item in events])
    mended = Handlers()
    asking(mended)
    one.handlers = mended
    counts = done(doer(one), events[:3], events[3:])
    assert counts == {"rerun": 5, "held": 5, "operations_new": 1, "operations_repeat": 4}
    assert one.rows("SELECT id FROM onceflow.operation") == []


def test_a_handler_that_needs_what_is_not_recorded_fails_instead_of_publishing_a_wrong_revision(
    bench: MakeBench, doer: MakeDoer
) -> None:
    handlers = Handlers()

    @handlers.on("customer.updated", order="latest")
    def named(event: Event, tx: Tx) -> None:
        before = "nothing" if event.previous is None else event.previous.event_id
        tx.outcome("named", key=event.object["id"], data={"event": event.id, "before": before})

    one = bench(handlers)
    subject = {"id": "cus_1", "object": "customer", "name": "a"}
    records = [
        record(event_body(f"evt_{n}", "customer.updated", {**subject, "name": str(n)}, created=1_767_225_600 + n), n)
        for n in range(2)
    ]
    one.run(records)
    published = one.rows("SELECT * FROM onceflow.outcome ORDER BY lane, seq")
    assert len(published) == 2
    made = doer(one)
    assert done(made, items_of(records)) == {"rerun": 2, "failed": 2}
    assert {line["code"] for line in made.report.lines} == {"previous_not_recorded"}
    assert one.rows("SELECT * FROM onceflow.outcome ORDER BY lane, seq") == published
