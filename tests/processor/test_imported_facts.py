"""Facts that the topic knows after a restore: taken for every cause but their own, whichever event is met first."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import psycopg
import pytest

from onceflow import attach
from onceflow_processor.event import Event
from onceflow_processor.handlers import Handlers
from onceflow_processor.records import Record
from onceflow_processor.replay.recorded import RecordedFacts
from onceflow_processor.tx import Tx
from onceflow_schemas.told_facts import fact_digest, told_digests
from tests.processor.conftest import ACCOUNT, Bench, event_body, record

MakeBench = Callable[[Handlers], Bench]
LOST = (
    "onceflow.inbox", "onceflow.progress", "onceflow.fact", "onceflow.fact_claim", "onceflow.object_guard", "public.ledger",
)  # fmt: skip
"""What a restore to a time before the events takes away, beside outcomes that are not in the topic."""


def credits_once() -> Handlers:
    """Two event types tell one fact; the first one gives the outcome, and each answer is noted."""
    handlers = Handlers()

    @handlers.on("charge.succeeded", "payment_intent.succeeded")
    def credit(event: Event, tx: Tx) -> None:
        if tx.once("credit", "pi_7"):
            tx.outcome("credit", key="pi_7", data={"by": event.type})

    return handlers


def told(event_id: str, event_type: str, offset: int) -> Record:
    return record(event_body(event_id, event_type, {"id": "pi_7", "object": "charge"}), offset)


CHARGE, INTENT = ("evt_a", "charge.succeeded"), ("evt_b", "payment_intent.succeeded")


def put_back(one: Bench) -> Bench:
    """Leave what a restore and an import leave: the outcomes, and the facts that they tell."""
    one.change("UPDATE onceflow.outcome SET imported_at = clock_timestamp()")
    for row in one.rows("SELECT headers, cause FROM onceflow.outcome"):
        for digest in told_digests(row["headers"]["onceflow_facts"]):
            one.change("INSERT INTO onceflow.imported_fact VALUES (%s, %s)", digest, row["cause"])
    for table in LOST:
        one.change(f"DELETE FROM {table}")
    return Bench(one.url, one.connection, one.handlers)


def cause_of(event_id: str) -> str:
    return f"event:{ACCOUNT}/test/{event_id}"


def facts(one: Bench) -> list[tuple[str, str]]:
    return [(row["key"], row["cause"]) for row in one.rows("SELECT key, cause FROM onceflow.fact ORDER BY key")]


def again(one: Bench) -> list[tuple[str, str]]:
    return [(row["key"], row["cause"]) for row in one.rows("SELECT key, cause FROM onceflow.fact_claim ORDER BY key")]


def test_the_digest_of_the_database_is_ours(bench: MakeBench) -> None:
    one = bench(credits_once())
    for namespace, key in (("payment", "pi_1"), ("ä", "in_1/ü%2F"), ("n", "\\x00")):
        [row] = one.rows("SELECT onceflow.fact_digest(%s, %s) AS digest", namespace, key)
        assert bytes(row["digest"]) == fact_digest(namespace, key)


def test_an_outcome_tells_what_its_cause_claimed_first(bench: MakeBench) -> None:
    one = bench(credits_once())
    one.run([told(*CHARGE, 0), told(*INTENT, 1)])
    [row] = one.rows("SELECT headers::text AS headers FROM onceflow.outcome")
    assert [*json.loads(row["headers"])] == ["onceflow_facts"]
    assert told_digests(json.loads(row["headers"])["onceflow_facts"]) == [fact_digest("credit", "pi_7")]


@pytest.mark.parametrize(
    "batches", [[[INTENT, CHARGE]], [[INTENT], [CHARGE]], [[CHARGE, INTENT]], [[INTENT], [INTENT, CHARGE]]]
)
def test_of_two_events_of_one_fact_the_topics_one_has_it_whichever_comes_first(
    bench: MakeBench, batches: Sequence[Sequence[tuple[str, str]]]
) -> None:
    first = bench(credits_once())
    first.run([told(*CHARGE, 0), told(*INTENT, 1)])
    second = put_back(first)
    offset = 0
    for batch in batches:
        second.run([told(event_id, kind, offset + n) for n, (event_id, kind) in enumerate(batch)])
        offset += len(batch)
    assert second.outcomes() == [("credit", "pi_7")]
    assert second.rows("SELECT * FROM onceflow.outcome_contradiction") == []
    assert facts(second) == [("pi_7", cause_of("evt_a"))]
    assert again(second) == [("pi_7", cause_of("evt_b"))]
    assert second.states() == {"evt_a": "processed", "evt_b": "processed"}


def test_a_declared_fact_is_looked_up_before_the_handler_runs(bench: MakeBench) -> None:
    handlers, runs = Handlers(), list[str]()

    @handlers.on("charge.*", "payment_intent.*", facts=lambda _event: [("credit", "pi_7")])
    def credit(event: Event, tx: Tx) -> None:
        runs.append(event.id)
        if tx.once("credit", "pi_7"):
            tx.outcome("credit", key="pi_7", data={})

    first = bench(handlers)
    first.run([told(*CHARGE, 0)])
    second = put_back(first)
    runs.clear()
    second.run([told(*INTENT, 0), told(*CHARGE, 1)])
    assert runs == ["evt_b", "evt_a"], "no batch was run again"
    assert second.outcomes() == [("credit", "pi_7")]


def test_a_transition_that_another_event_told_first_stays_that_events(bench: MakeBench) -> None:
    handlers = Handlers()

    @handlers.on("customer.subscription.*", order="each")
    def each(event: Event, tx: Tx) -> None:
        tx.outcome("status", key="sub_1", data={"status": event.object["status"]})

    def changed(event_id: str, offset: int) -> Record:
        data = {
            "object": {"id": "sub_1", "object": "subscription", "status": "active"},
            "previous_attributes": {"status": "incomplete"},
        }
        asked = {"id": "req_1", "idempotency_key": None}
        return record(event_body(event_id, "customer.subscription.updated", {}, data=data, request=asked), offset)

    first = bench(handlers)
    first.run([changed("evt_a", 0), changed("evt_b", 1)])
    second = put_back(first)
    second.run([changed("evt_b", 0)])
    second.run([changed("evt_a", 1)])
    [row] = second.rows("SELECT cause FROM onceflow.outcome")
    assert row["cause"] == cause_of("evt_a")
    assert second.rows("SELECT cause FROM onceflow.fact") == [{"cause": cause_of("evt_a")}]


@pytest.mark.parametrize(("cause", "answer"), [("order:1", True), ("order:2", False)])
def test_an_application_is_answered_in_the_same_way(bench: MakeBench, cause: str, *, answer: bool) -> None:
    one = bench(credits_once())
    one.change(
        "INSERT INTO onceflow.deployment (id, accounts, mode, system_id, timeline) VALUES ('d', '{acct_test}', 'test', 's', 1)"
    )
    one.change("INSERT INTO onceflow.imported_fact VALUES (%s, 'app:order:1')", fact_digest("credit", "pi_7"))
    with psycopg.connect(one.url) as connection:
        tx = attach(connection, cause=cause)
        assert tx.once("credit", "pi_7") is answer
        assert tx.once("credit", "pi_8")
        assert not tx.once("credit", "pi_7")
    assert ("pi_7", f"app:{cause}") in facts(one) if answer else [key for key, _ in facts(one)] == ["pi_8"]


def test_a_rerun_is_told_what_only_the_topic_knows(bench: MakeBench) -> None:
    one, key = bench(credits_once()), ("credit", "pi_7")
    one.change("INSERT INTO onceflow.imported_fact VALUES (%s, 'app:topic')", fact_digest(*key))
    with psycopg.connect(one.url, autocommit=True) as reader:
        found = RecordedFacts(reader)
        assert not found.claim(key, "app:other")
        assert found.claim(key, "app:topic")
        assert not found.claim(key, "app:topic")
        assert found.claimed() == {key: "app:topic"}, "its row is written"
        one.change("INSERT INTO onceflow.fact VALUES ('credit', 'pi_7', 'app:row')")
        found = RecordedFacts(reader)
        assert not found.claim(key, "app:topic")
        assert found.claim(key, "app:row")
        assert found.claimed() == {}, "its row is there"


@pytest.mark.parametrize("state", ["behind", "recovering"])
def test_while_facts_come_back_whoever_claims_one_waits_and_the_others_go_on(bench: MakeBench, state: str) -> None:
    """The outcome of the fact's cause may be in another lane than this event's."""
    handlers = credits_once()

    @handlers.on("customer.created")
    def seen(event: Event, tx: Tx) -> None:
        tx.execute("INSERT INTO public.ledger (event_id, note) VALUES (%s, '')", [event.id])

    @handlers.on("customer.updated")
    def claim(event: Event, tx: Tx) -> None:
        tx.once("seen", event.id)

    def customer(event_id: str, kind: str, offset: int) -> Record:
        return record(event_body(event_id, f"customer.{kind}", {"id": "cus_1", "object": "customer"}), offset)

    one = bench(handlers)
    one.run([])
    one.change("UPDATE onceflow.lane SET state = %s WHERE lane = 0", state)
    batch: list[Any] = [
        customer("evt_1", "created", 0),
        customer("evt_2", "updated", 1),
        customer("evt_3", "created", 2),
    ]
    end = one.run(batch)
    assert [*end.held.values()] == [1]
    assert end.closed_lanes == {0: state}
    assert one.states() == {"evt_1": "processed"}
    one.change("UPDATE onceflow.lane SET state = 'ok'")
    one.run(batch[1:])
    assert one.states() == {f"evt_{n}": "processed" for n in (1, 2, 3)}
