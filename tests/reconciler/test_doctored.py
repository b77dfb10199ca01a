"""Ledgers that were doctored, one row or record at a time: dropped, doubled or altered in each of the four, and convicted every time."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import psycopg
import pytest
from confluent_kafka import Message, Producer

from onceflow_reconciler.stripe_lists import StripeLists
from onceflow_reconciler.verify.topic_scan import TopicScan
from tests.reconciler.conftest import ReconcilerRoad
from tests.relay.lanes import read_all

EVENTS = 5
Change = Callable[[Any], list[Any]]
"""What is shown instead of a record or an entry."""


class Altered:
    """A message that says something else."""

    def __init__(self, message: Message, **said: Any) -> None:
        self._message = message
        self._said = said

    def __getattr__(self, name: str) -> Any:
        return (lambda: self._said[name]) if name in self._said else getattr(self._message, name)


def other_header(message: Message, name: str) -> list[Any]:
    headers: Any = message.headers()
    assert name in dict(headers), name
    return [Altered(message, headers=[(one, b"7" if one == name else text) for one, text in headers])]


def drop(_: Any) -> list[Any]:
    return []


OF_BOTH: dict[str, Change] = {
    "dropped": drop,
    "another value": lambda one: [Altered(one, value=b'{"id": "evt_x"}')],
    "no value": lambda one: [Altered(one, value=None)],
    "another id": lambda one: other_header(one, "ce_id"),
    "another source": lambda one: other_header(one, "ce_source"),
}
OF_OUTCOMES: dict[str, Change] = {
    **OF_BOTH,
    "another key": lambda one: [Altered(one, key=b"cus_x")],
    **{
        f"another {name}": lambda one, name=name: other_header(one, name)  # type: ignore[misc]
        for name in (
            "ce_type", "ce_time", "onceflow_lane", "onceflow_sequence", "onceflow_cause", "onceflow_outcome_id", "onceflow_revision",
        )
    },
}  # fmt: skip
ENTRIES: dict[str, Change] = {
    "dropped": drop,
    "doubled": lambda one: [one, one],
    "another id": lambda one: [{**one, "id": "evt_x"}],
    "no id": lambda one: [{key: value for key, value in one.items() if key != "id"}],
    "another type": lambda one: [{**one, "type": "customer.deleted"}],
    "another time": lambda one: [{**one, "created": one["created"] - 1}],
    "the other mode": lambda one: [{**one, "livemode": True}],
}
ONE = "(SELECT {key} FROM onceflow.{table} ORDER BY {key} LIMIT 1 OFFSET {number})"
OUTCOME = "FROM onceflow.outcome WHERE ce_id = " + ONE.replace("{key}", "ce_id").replace("{table}", "outcome")
WHERE = {
    "inbox": "FROM onceflow.inbox WHERE event_id = " + ONE.replace("{key}", "event_id").replace("{table}", "inbox"),
    "outcome": OUTCOME,
    "quarantine": 'FROM onceflow.quarantine WHERE "offset" = (SELECT "offset" FROM onceflow.quarantine LIMIT 1 OFFSET {number})',
}
ROWS = {
    "quarantine": (
        "value = 'x'", "value = NULL", '"offset" = "offset" + 1', "partition = partition + 1", "topic_id = topic_id || 'x'",
    ),
    "inbox": (
        "event_id = event_id || 'x'", "account = 'acct_x'", "state = 'parked'", "type = 'x'",
        "state = CASE state WHEN 'processed' THEN 'quarantined' ELSE 'processed' END", "topic_id = topic_id || 'x'",
        "partition = (partition + 1) % 3", "partition = partition + 3", '"offset" = "offset" + 1', "body_sha256 = sha256('x')",
        "event_created = event_created - interval '1 second'",
    ),
    "outcome": (
        "seq = seq + 1000", "lane = 2 - lane, seq = seq + 1000", "ce_id = gen_random_uuid()", "outcome_id = gen_random_uuid()",
        "revision = revision + 1", "type = 'x'", "key = 'x'", "value = '{}'", "headers = '{\"x\": \"1\"}'", "cause = 'x'",
        "withheld = 'x'", "created_at = created_at + interval '1 second'",
    ),
}  # fmt: skip
DOUBLED = {
    "quarantine": (
        'INSERT INTO onceflow.quarantine (topic_id, partition, "offset", topic, code, detail, headers, value)'
        " SELECT topic_id, (SELECT partition FROM onceflow.inbox WHERE state = 'processed' ORDER BY event_id LIMIT 1),"
        " (SELECT \"offset\" FROM onceflow.inbox WHERE state = 'processed' ORDER BY event_id LIMIT 1), topic, code, detail, headers, value "
    ),
    "inbox": (
        "INSERT INTO onceflow.inbox SELECT account, mode, event_id || '2', state, type, object_id, api_version, topic_id,"
        ' partition, "offset", body_sha256, event_created, received_at, processed_at, handler_set '
    ),
    "outcome": (
        "INSERT INTO onceflow.outcome SELECT lane, (SELECT max(seq) + 1 FROM onceflow.outcome), gen_random_uuid(), revision,"
        " gen_random_uuid(), type, key, value, headers, cause, withheld, created_at "
    ),
}


class Doctor:
    """Shows one record, entry or row of a proved system otherwise."""

    def __init__(self, road: ReconcilerRoad, monkeypatch: pytest.MonkeyPatch) -> None:
        self._road = road
        self._monkeypatch = monkeypatch

    def record(self, topic: str, place: tuple[int, int], change: Change) -> list[str]:
        """The kinds of what is unexplained while a record of a topic is read otherwise."""
        real = TopicScan.messages

        def messages(scan: TopicScan, first: Any, bounds: Any) -> Iterator[list[Any]]:
            for page in real(scan, first, bounds):
                yield [
                    shown
                    for one in page
                    for shown in (
                        change(one) if (one.topic(), one.partition(), one.offset()) == (topic, *place) else [one]
                    )
                ]

        with self._monkeypatch.context() as patched:
            patched.setattr(TopicScan, "messages", messages)
            return self.kinds()

    def entry(self, number: int, change: Change) -> list[str]:
        """The same while an entry of Stripe's event list is shown otherwise."""
        real, shown = StripeLists._ask, 0

        def ask(lists: StripeLists, account: str, path: str, asked: Any, *, permission: str) -> bytes:
            nonlocal shown
            body = real(lists, account, path, asked, permission=permission)
            told = json.loads(body)
            entries = told["data"]
            if path != "/v1/events" or "created[gte]" not in asked or number >= len(entries):
                return body
            shown += 1
            return json.dumps(
                {**told, "data": [*entries[:number], *change(entries[number]), *entries[number + 1 :]]}
            ).encode()

        with self._monkeypatch.context() as patched:
            patched.setattr(StripeLists, "_ask", ask)
            kinds = self.kinds()
        assert shown, "the entry was not listed at all"
        return kinds

    def row(self, statement: str) -> list[str]:
        """The same while a statement has changed a row."""
        with _kept(self._road.database_url):
            with psycopg.connect(self._road.database_url) as connection:
                assert connection.execute(statement.encode()).rowcount == 1, statement
            return self.kinds()

    def kinds(self) -> list[str]:
        return [kind for kind, _, _ in self._road.answer().unexplained]


@contextmanager
def _kept(database_url: str) -> Iterator[None]:
    """Put the two tables back at the end."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        for table in DOUBLED:
            connection.execute(f"CREATE TABLE public.kept_{table} AS TABLE onceflow.{table}".encode())
        try:
            yield
        finally:
            for table in DOUBLED:
                connection.execute(f"DELETE FROM onceflow.{table}".encode())
                connection.execute(f"INSERT INTO onceflow.{table} SELECT * FROM public.kept_{table}".encode())
                connection.execute(f"DROP TABLE public.kept_{table}".encode())


def places(road: ReconcilerRoad, topic: str) -> list[tuple[int, int]]:
    found = read_all(road.bootstrap, topic, partitions=3)
    return [(number, offset) for number in found for one in found[number] if (offset := one.offset()) is not None]


def make_events(road: ReconcilerRoad) -> None:
    """Some are done, and one is kept for a person: it does not say its mode."""
    road.customers(EVENTS - 1)
    now = int(road.stripe.advance(5))
    subject = {"id": "cus_1", "object": "customer"}
    road.stripe.tell_events(
        [{"id": "evt_odd", "type": "customer.updated", "created": now - 2, "data": {"object": subject}}]
    )
    road.once()
    road.settle(EVENTS)
    # Young events may be late at Stripe's list as well as here.
    road.stripe.advance(3600)


Case = tuple[str, Callable[[], list[str]]]


def cases(doctor: Doctor, road: ReconcilerRoad, *, number: int) -> Iterator[list[Case]]:
    """Yield, for each ledger, what may be done to one of its records, entries or rows: what drops and doubles it comes first."""
    for topic, changes in ((road.events, OF_BOTH), (road.outcomes, OF_OUTCOMES)):
        found = places(road, topic)
        place = found[number % len(found)]
        yield [
            (f"{topic} {place}: {name}", partial(doctor.record, topic, place, change))
            for name, change in changes.items()
        ]
    # The newest entry is the one that is kept for a person.
    listed = 1 + number % (EVENTS - 1)
    yield [(f"entry {listed}: {name}", partial(doctor.entry, listed, change)) for name, change in ENTRIES.items()]
    for table, where in WHERE.items():
        [(rows,)] = [tuple(row.values()) for row in road.rows(f"SELECT count(*) FROM onceflow.{table}")]
        rest = where.format(number=number % rows)
        statements = [f"DELETE {rest}", DOUBLED[table] + rest]
        statements += [f"UPDATE onceflow.{table} SET {change} {rest.partition(table)[2]}" for change in ROWS[table]]
        yield [(statement, partial(doctor.row, statement)) for statement in statements]


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("is_whole", [pytest.param(True, marks=pytest.mark.long), False])
def test_whatever_is_doctored_is_convicted(
    road: ReconcilerRoad,
    monkeypatch: pytest.MonkeyPatch,
    is_whole: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    """In every run some of the ways are tried; among the long tests each of them is, on each record, entry and row."""
    make_events(road)
    assert road.answer().unexplained == ()
    doctor, chance = Doctor(road, monkeypatch), random.Random(road.deployment)
    tried: list[Case] = []
    for number in range(EVENTS) if is_whole else [chance.randrange(EVENTS)]:
        for each in cases(doctor, road, number=number):
            tried += each if is_whole else [*each[:2], *chance.sample(each[2:], 1)]
    acquitted = [name for name, kinds in tried if not kinds()]
    assert acquitted == []
    assert road.answer().unexplained == (), "nothing was really changed"
    # A record that stands twice in a topic really does.
    for topic in (road.events, road.outcomes):
        double_first(road, topic)
        assert any(one.endswith("doubled") for one in doctor.kinds()), topic


def double_first(road: ReconcilerRoad, topic: str) -> None:
    found = read_all(road.bootstrap, topic, partitions=3)
    [first, *_] = [one for number in found for one in found[number]]
    producer = Producer({"bootstrap.servers": road.bootstrap})
    producer.produce(topic, first.value(), first.key(), headers=first.headers(), partition=first.partition() or 0)
    assert producer.flush(20) == 0
