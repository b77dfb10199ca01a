"""Reading a body: limit, deadline, budget, hang-up."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from onceflow_producer.body import BodyBudget, HungUp, read_body
from onceflow_producer.refusal import Refusal
from tests.producer.asgi import HANG_UP, Message, Script, body_message


def read(
    messages: Sequence[Message],
    *,
    declared_bytes: int | None = None,
    bytes_max: int = 10,
    seconds: float = 5.0,
    budget: BodyBudget | None = None,
    is_here: bool = False,
) -> bytes | Refusal | HungUp:
    async def run() -> bytes | Refusal | HungUp:
        return await read_body(
            Script(messages).receive,
            declared_bytes=declared_bytes,
            bytes_max=bytes_max,
            deadline=asyncio.get_running_loop().time() + seconds,
            budget=BodyBudget(1_000) if budget is None else budget,
            is_here=is_here,
        )

    return asyncio.run(run())


def code(found: bytes | Refusal | HungUp) -> str:
    assert isinstance(found, Refusal)
    return found.code


def test_one_piece_and_many_pieces() -> None:
    assert read([body_message(b"abc")], declared_bytes=3) == b"abc"
    pieces = [body_message(b"a", more=True), body_message(b"", more=True), body_message(b"bc")]
    assert read(pieces) == b"abc"


def test_a_body_that_is_here_needs_no_deadline_and_meets_every_other_limit() -> None:
    assert read([body_message(b"abc")], declared_bytes=3, seconds=-1.0, is_here=True) == b"abc"
    assert code(read([body_message(b"abc")], declared_bytes=2, is_here=True)) == "body_incomplete"
    assert code(read([body_message(b"x" * 11)], is_here=True)) == "body_too_large"
    assert read([HANG_UP], is_here=True) == HungUp(0)


def test_the_limit_is_met_while_reading() -> None:
    assert read([body_message(b"x" * 10)]) == b"x" * 10
    assert code(read([body_message(b"x" * 11)])) == "body_too_large"
    endless = [body_message(b"xxxx", more=True)] * 1_000
    assert code(read(endless)) == "body_too_large"


def test_an_empty_body_and_a_wrong_length() -> None:
    assert code(read([body_message(b"")], declared_bytes=0)) == "empty_body"
    assert code(read([body_message(b"")])) == "empty_body"
    assert code(read([body_message(b"ab")], declared_bytes=3)) == "body_incomplete"
    assert code(read([body_message(b"abc")], declared_bytes=2)) == "body_incomplete"


def test_a_slow_body_is_cut_off_at_the_deadline() -> None:
    found = read([body_message(b"a", more=True)], seconds=0.05)
    assert code(found) == "body_timeout"


def test_a_hang_up_is_no_refusal() -> None:
    assert read([body_message(b"ab", more=True), HANG_UP]) == HungUp(received_bytes=2)
    assert read([HANG_UP]) == HungUp(received_bytes=0)


@pytest.mark.parametrize(
    "messages",
    [
        [body_message(b"a" * 6, more=True), HANG_UP],
        [body_message(b"a" * 6, more=True), body_message(b"a" * 6)],
        [body_message(b"a" * 6, more=True)],
        [body_message(b"")],
    ],
)
def test_nothing_is_held_after_a_fault(messages: list[Message]) -> None:
    budget = BodyBudget(100)
    assert not isinstance(read(messages, seconds=0.05, budget=budget), bytes)
    assert budget.held_bytes == 0


def test_bodies_together_stay_within_the_budget() -> None:
    budget = BodyBudget(12)
    assert read([body_message(b"a" * 7)], budget=budget) == b"a" * 7
    assert code(read([body_message(b"b" * 7)], budget=budget)) == "queue_full"
    assert budget.held_bytes == 7
    budget.give_back(7)
    assert read([body_message(b"b" * 7)], budget=budget) == b"b" * 7
