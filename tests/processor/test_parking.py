"""Who waits behind whom, decided from values alone."""

from __future__ import annotations

import pytest

from onceflow_processor.admission import ORDER_KEY_BYTES_MAX, Fault, Item, order_key_of
from onceflow_processor.parking import Waiting, exhausted, give_way, line_of, stand_behind
from onceflow_processor.records import Partition, Record
from onceflow_schemas.failure_course import Course, RetryRules

RULES = RetryRules(wait_seconds_min=10.0, wait_seconds_max=100.0, attempts_max=3)
PARKS = Fault("dependency_failed", "down", "h", course=Course.PARK, blocks=True)
BLOCKS = Fault("handler_failed", "bad", "h", blocks=True)
CONTENT = Fault("bad_amount", "1.5")


def item(key: str, fault: Fault | None = None) -> Item:
    return Item(Record(Partition("t", 0), 0, 0, b"", b"", [], 1), None, fault, order_key=key)


def test_nobody_waits_behind_nothing() -> None:
    assert stand_behind([item("a"), item("b", CONTENT), item("b")], frozenset()) == []


def test_items_of_parked_keys_and_those_after_a_failed_one_wait() -> None:
    before, failed, after, other, of_parked = item("a"), item("a", BLOCKS), item("a"), item("b"), item("c")
    assert stand_behind([before, failed, after, other, of_parked], frozenset({"c"})) == [after, of_parked]


def test_what_failed_itself_is_not_behind_anything() -> None:
    assert stand_behind([item("a", PARKS), item("a", BLOCKS)], frozenset({"a"})) == []


def test_what_failed_behind_another_of_its_key_gives_way() -> None:
    first, second, third = item("a", PARKS), item("a", BLOCKS), item("a", PARKS)
    content, other, of_parked = item("a", CONTENT), item("b", BLOCKS), item("c", BLOCKS)
    second.tries = 3
    late = give_way([item("a"), first, second, third, content, other, of_parked], frozenset({"c"}))
    assert late == [second, third, of_parked]
    assert [(one.fault, one.tries) for one in late] == [(None, 0)] * 3
    assert (first.fault, content.fault, other.fault) == (PARKS, CONTENT, BLOCKS)


def test_the_line_keeps_the_order_of_the_batch() -> None:
    parks, behind, blocks, content = item("a", PARKS), item("a"), item("b", BLOCKS), item("b", CONTENT)
    parks.attempts = 1
    line = line_of([parks, item("x"), behind, content, blocks], [behind], rules=RULES, share=lambda: 0.5)
    assert line == [Waiting(parks, PARKS, 25.0), Waiting(behind, None, 0.0), Waiting(blocks, BLOCKS, None)]


@pytest.mark.parametrize(
    ("attempts", "course"), [(0, Course.PARK), (2, Course.PARK), (3, Course.QUARANTINE), (9, Course.QUARANTINE)]
)
def test_what_was_tried_too_often_needs_a_person(attempts: int, course: Course) -> None:
    assert exhausted(PARKS, attempts=attempts, rules=RULES).course is course
    assert exhausted(BLOCKS, attempts=attempts, rules=RULES) is BLOCKS


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (b"acct_1/in_1", "acct_1/in_1"),
        ("acct_1/ü".encode(), "acct_1/ü"),
        (b"a" * ORDER_KEY_BYTES_MAX, "a" * ORDER_KEY_BYTES_MAX),
    ],
)
def test_an_order_key_is_the_records_key(key: bytes, text: str) -> None:
    assert order_key_of(key) == text


@pytest.mark.parametrize("key", [b"a" * (ORDER_KEY_BYTES_MAX + 1), b"acct_1/\xff", b"acct_1/\x00"])
def test_a_key_that_cannot_be_kept_as_text_is_its_digest(key: bytes) -> None:
    assert order_key_of(key).startswith("sha256:")
    assert len(order_key_of(key)) == 71
    assert order_key_of(key) != order_key_of(key + b"b")
