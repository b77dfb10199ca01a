"""A block is proved only where its records are its rows: whatever words are in them, and in whatever order they come."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import psycopg
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from onceflow_processor.inputs.rendering import digest_of
from onceflow_reconciler.verify import folding
from onceflow_reconciler.verify.folding import EventBlocks, OutcomeBlocks, Sum, outcome_words
from onceflow_schemas.sql import queries

_SQL = queries("verify_blocks")
PLACES = 2
LANE = 1
SOURCE = b"urn:onceflow:test"
CE_ID = "8f3c7e2a-0000-5000-8000-00000000000{}"
SEVERAL = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

# So few letters that two fields run into each other, were it not for what parts them.
WORDS = st.text(alphabet="a1!\n", min_size=1, max_size=3)


FACTS = (None, None, "a", "a,1", 'a"', 'a","b":"c', "")


class Event(NamedTuple):
    account: str
    mode: str
    event_id: str
    type: str
    body: bytes


class Outcome(NamedTuple):
    seq: int
    ce_id: int
    type: str
    key: str
    cause: str
    value: bytes
    facts: str | None = None


EVENTS = st.builds(Event, WORDS, st.sampled_from(["test", "live"]), WORDS, WORDS, st.sampled_from([b"{}", b"[]"]))
OUTCOMES = st.builds(
    Outcome,
    st.integers(1, 5),
    st.integers(0, 1),
    WORDS,
    WORDS,
    WORDS,
    st.sampled_from([b"{}", b"[]"]),
    st.sampled_from(FACTS),
)
PLAIN = frozenset("a1")


@pytest.fixture(scope="module", autouse=True)
def small_blocks() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(folding, "BLOCK_PLACES", PLACES)
        yield


@pytest.fixture
def connection(fresh_database: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(fresh_database) as opened:
        opened.execute("INSERT INTO onceflow.lane (lane, topic_id) VALUES (1, 't')")
        opened.commit()
        yield opened


def marker(connection: psycopg.Connection[Any], offset: int, event: Event, *, digest: bytes, state: str) -> None:
    connection.execute(
        'INSERT INTO onceflow.inbox (account, mode, event_id, state, type, object_id, topic_id, partition, "offset", body_sha256,'
        " received_at, handler_set) VALUES (%s, %s, %s, %s, %s, 'x', 't', 0, %s, %s, now(), 'x') ON CONFLICT DO NOTHING",
        [event.account, event.mode, event.event_id, state, event.type, offset, digest],
    )


def marker_blocks(connection: psycopg.Connection[Any], high: int) -> dict[int, Sum]:
    connection.execute(_SQL["begin_blocks"])
    given = {"topic_id": "t", "partitions": [0], "firsts": [0], "highs": [high], "places": PLACES}
    rows = connection.execute(_SQL["event_blocks"], given).fetchall()
    return {block: Sum(records, digest) for _, block, records, digest, *_ in rows}


def headers_of(event: Event, **more: bytes) -> list[tuple[str, bytes | None]]:
    source = f"urn:stripe:{event.account}:{event.mode}".encode()
    event_type = f"com.stripe.{event.type}".encode()
    return [("ce_source", source), ("ce_id", event.event_id.encode()), ("ce_type", event_type), *more.items()]


@SEVERAL
@given(records=st.lists(EVENTS, min_size=1, max_size=4), others=st.dictionaries(st.integers(0, 3), EVENTS, max_size=2))
@example(records=[Event("a", "test", "a", "x", b"{}")] * 2, others={})
def test_a_block_of_events_is_proved_exactly_where_each_record_has_its_marker(
    connection: psycopg.Connection[Any], records: list[Event], others: dict[int, Event]
) -> None:
    blocks = EventBlocks()
    for offset, event in enumerate(records):
        blocks.add(offset, headers_of(event), event.body)
        row = others.get(offset, event)
        marker(connection, offset, row, digest=hashlib.sha256(row.body).digest(), state="processed")
    kept = connection.execute(
        'SELECT "offset", account, mode, event_id, type, body_sha256 FROM onceflow.inbox'
    ).fetchall()
    found = {offset: tuple(words) for offset, *words in kept}
    compared = blocks.compare(marker_blocks(connection, len(records)))
    connection.rollback()
    expected = set()
    for block in range((len(records) + 1) // PLACES):
        places = range(block * PLACES, min((block + 1) * PLACES, len(records)))
        if all(
            is_plain(records[one].account) and "\n" not in records[one].event_id + records[one].type for one in places
        ) and all(found.get(one) == (*records[one][:4], hashlib.sha256(records[one].body).digest()) for one in places):
            expected.add(block)
    assert compared.proved == expected


def is_plain(word: str) -> bool:
    return set(word) <= PLAIN


def test_one_marker_with_the_words_of_two_is_not_two(connection: psycopg.Connection[Any]) -> None:
    blocks = EventBlocks()
    first, second = Event("a", "test", "1", "x", b"{}"), Event("a", "test", "2", "x", b"{}")
    for offset, event in enumerate((first, second)):
        blocks.add(offset, headers_of(event), event.body)
    digest = hashlib.sha256(b"{}")
    words = Event("a", "test", f"1\ncom.stripe.x\n\n0\n{digest.hexdigest()}\na\ntest\n2", "x", b"{}")
    marker(connection, 1, words, digest=digest.digest(), state="processed")
    rows = marker_blocks(connection, 2)
    assert blocks.compare(rows).proved == frozenset()
    assert {one.digest for one in rows.values()} == {
        hashlib.sha256(
            b"".join(
                b"a\ntest\n%d\ncom.stripe.x\n\n%d\n%b\n" % (n + 1, n, digest.hexdigest().encode()) for n in range(2)
            )
        ).digest()
    }, "without the count they would be the same"


@pytest.mark.parametrize(
    ("state", "kept", "is_proved"),
    [
        ("processed", False, True),
        ("ignored", False, True),
        ("parked", False, True),
        ("quarantined", False, False),
        ("parked", True, False),
    ],
)
def test_what_is_kept_for_a_person_is_looked_at(
    connection: psycopg.Connection[Any], state: str, *, kept: bool, is_proved: bool
) -> None:
    event, blocks = Event("a", "test", "1", "x", b'{"a": 1}'), EventBlocks()
    blocks.add(0, headers_of(event, onceflow_endpoint=b"stripe:events"), event.body)
    # Of what the reconciler brought, the marker has the digest of what it says.
    marker(connection, 0, event, digest=digest_of(b'{"a":1}'), state=state)
    if kept:
        connection.execute(
            'INSERT INTO onceflow.quarantine (topic_id, topic, partition, "offset", code, detail, headers)'
            " VALUES ('t', 't', 0, 1, 'x', 'x', '[]')"
        )
    assert bool(blocks.compare(marker_blocks(connection, 2)).proved) == is_proved


def outcome_headers(one: Outcome) -> list[tuple[str, bytes | None]]:
    ce_id = CE_ID.format(one.ce_id).encode()
    return [
        ("ce_specversion", b"1.0"),
        ("content-type", b"application/json"),
        ("ce_source", SOURCE),
        ("ce_subject", one.key.encode()),
        ("ce_time", b"2026-01-01T00:00:00.100000Z"),
        ("onceflow_lane", b"1"),
        ("onceflow_sequence", b"%d" % one.seq),
        ("ce_id", ce_id),
        ("onceflow_outcome_id", CE_ID.format(one.seq).encode()),
        ("onceflow_revision", b"1"),
        ("ce_type", one.type.encode()),
        ("onceflow_cause", one.cause.encode()),
        *([] if one.facts is None else [("onceflow_facts", one.facts.encode())]),
    ]


def own_headers(one: Outcome) -> str:
    return "{}" if one.facts is None else json.dumps({"onceflow_facts": one.facts}, separators=(",", ":"))


def outcome_sums(connection: psycopg.Connection[Any], rows: Sequence[Outcome]) -> dict[int, Sum]:
    for one in rows:
        connection.execute(
            "INSERT INTO onceflow.outcome (lane, seq, outcome_id, ce_id, type, key, value, cause, created_at, headers)"
            " VALUES (1, %s, %s, %s, %s, %s, %s, %s, '2026-01-01T00:00:00.1Z', %s)",
            [
                one.seq,
                CE_ID.format(one.seq),
                CE_ID.format(one.ce_id),
                one.type,
                one.key,
                one.value,
                one.cause,
                own_headers(one),
            ],
        )
    connection.execute(_SQL["begin_blocks"])
    found = connection.execute(_SQL["outcome_blocks"], {"places": PLACES}).fetchall()
    return {block: Sum(records, digest) for _, block, records, digest in found}


@SEVERAL
@given(
    records=st.lists(OUTCOMES, max_size=6),
    in_order=st.booleans(),
    others=st.dictionaries(st.integers(1, 6), OUTCOMES, max_size=2),
)
def test_a_block_of_outcomes_is_proved_exactly_where_each_stands_once_and_in_order(
    connection: psycopg.Connection[Any], records: list[Outcome], *, in_order: bool, others: dict[int, Outcome]
) -> None:
    if in_order:
        records = [one._replace(seq=number + 1) for number, one in enumerate(records)]
    blocks = OutcomeBlocks()
    odd = set()
    for offset, one in enumerate(records):
        words = outcome_words(b"1", key=one.key.encode(), value=one.value, headers=outcome_headers(one), source=SOURCE)
        assert (words is None) == ("\n" in one.type + one.key + one.cause or one.facts in ('a"', 'a","b":"c', ""))
        if words is None:
            odd.add(one.seq // PLACES)
        blocks.add(offset, one.seq, None if words is None else words[1])
    rows = {one.seq: others.get(one.seq, one)._replace(seq=one.seq) for one in records}
    compared = blocks.compare(outcome_sums(connection, list(rows.values())))
    connection.rollback()
    for before, after in pairwise(records):
        if after.seq != before.seq + 1:
            odd |= {before.seq // PLACES, after.seq // PLACES}
    differing = {one.seq // PLACES for one in records if rows[one.seq] != one} | odd
    assert compared.differing == differing
    assert compared.proved == {one.seq // PLACES for one in records} - differing
    assert (blocks.first_seq, blocks.last_seq) == (
        min((one.seq for one in records), default=None),
        max((one.seq for one in records), default=None),
    )
    # Whatever is looked at again lies between these offsets.
    again = [offset for offset, one in enumerate(records) if one.seq // PLACES in differing]
    assert compared.read_again == ((min(again), max(again) + 1) if again else None)


def test_refills_and_what_is_none_of_ours_are_looked_at() -> None:
    blocks = OutcomeBlocks()
    blocks.add(0, 1, b"1\n")
    blocks.add_foreign(3)
    blocks.add_foreign(5)
    blocks.add_refill(7, 1)
    blocks.add_refill(8, 9)
    compared = blocks.compare({0: Sum(1, hashlib.sha256(b"1\n").digest())})
    assert compared == folding.Compared(frozenset(), frozenset({0, 4, folding.NO_BLOCK}), (0, 9))
