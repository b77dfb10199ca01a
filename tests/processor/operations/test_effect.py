"""Registering effects: every mistake is found at start, all at once."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, cast

import pytest

from onceflow_processor.handlers import Handlers
from onceflow_processor.operations.effect import Effect, Settled
from onceflow_processor.tx import Tx
from onceflow_schemas.failure import Misconfigured
from onceflow_schemas.operations.calls import StripeCall


def refund(charge: str, amount: int = 1) -> StripeCall:
    return StripeCall.refund(charge=charge, amount=amount)


def told(operation: Settled, tx: Tx) -> None:
    """A settled function."""


async def coroutine(charge: str) -> StripeCall:
    return refund(charge)


def generator(charge: str) -> Iterator[StripeCall]:
    yield refund(charge)


async def async_generator(charge: str) -> AsyncIterator[StripeCall]:
    yield refund(charge)


async def told_later(operation: Settled, tx: Tx) -> None:
    """A coroutine."""


def by_position(charge: str, /) -> StripeCall:
    return refund(charge)


def takes_subject(subject: str) -> StripeCall:
    return refund(subject)


def takes_account(*, account: str = "") -> StripeCall:
    return refund(account)


def told_more(operation: Settled, tx: Tx, more: int = 1) -> None:
    """A default does no harm."""


def told_too_little(operation: Settled) -> None:
    """Too few arguments."""


def any_names(**names: Any) -> StripeCall:
    return refund(**names)


def faults_of(register: Callable[[Handlers], object]) -> tuple[str, ...]:
    handlers = Handlers()
    register(handlers)
    with pytest.raises(Misconfigured) as error:
        handlers.check()
    assert error.value.code == "handlers_invalid"
    return error.value.faults


@pytest.mark.parametrize(
    "register",
    [
        lambda handlers: handlers.effect("refund_fee")(refund),
        lambda handlers: handlers.effect("a.B-1")(any_names),
        lambda handlers: handlers.effect("x")(functools.partial(refund, "ch_1")),
        lambda handlers: handlers.use(refund),
        lambda handlers: handlers.use(refund, name="give_back").settled(told),
        lambda handlers: handlers.effect("x")(refund).settled(told_more),
    ],
)
def test_what_may_be_registered(register: Callable[[Handlers], object]) -> None:
    handlers = Handlers()
    register(handlers)
    handlers.check()


@pytest.mark.parametrize(
    ("register", "fault"),
    [
        (lambda handlers: handlers.effect("")(refund), "the effect name '' is not 1 to 100"),
        (lambda handlers: handlers.effect("a b")(refund), "the effect name 'a b' is not"),
        (lambda handlers: handlers.effect(5)(refund), "the effect name 5 is not"),
        (lambda handlers: handlers.effect("x" * 101)(refund), "is not 1 to 100"),
        (lambda handlers: handlers.use(lambda: None), "the effect name '<lambda>' is not"),
        (lambda handlers: handlers.effect("x")(5), "the effect 'x' is not a function"),
        (lambda handlers: handlers.effect("x")(coroutine), "the effect 'x' is a coroutine or generator"),
        (lambda handlers: handlers.effect("x")(generator), "the effect 'x' is a coroutine or generator"),
        (lambda handlers: handlers.effect("x")(async_generator), "the effect 'x' is a coroutine or generator"),
        (lambda handlers: handlers.effect("x")(by_position), "takes 'charge' by position"),
        (lambda handlers: handlers.effect("x")(takes_subject), "takes 'subject', which tx.request keeps"),
        (
            lambda handlers: handlers.effect("x")(takes_account),
            "takes 'account', which tx.request keeps",
        ),
        (
            lambda handlers: handlers.effect("x")(refund).settled(5),
            "what is settled of the effect 'x' is not a function",
        ),
        (lambda handlers: handlers.effect("x")(refund).settled(told_later), "is a coroutine or generator"),
        (
            lambda handlers: handlers.effect("x")(refund).settled(told_too_little),
            "cannot be called with (settled, tx)",
        ),
    ],
)
def test_what_cannot_work_is_told(register: Callable[[Handlers], object], fault: str) -> None:
    [found] = faults_of(register)
    assert fault in found


def test_all_faults_are_told_at_once() -> None:
    def register(handlers: Handlers) -> None:
        handlers.effect("x")(refund)
        one = handlers.effect("x")(by_position)
        one.settled(told)
        one.settled(told)
        handlers.on("invoice.paid")(cast("Any", 5))

    faults = faults_of(register)
    assert len(faults) >= 4
    assert "two effects are called 'x': give one of them another name" in faults
    assert "the effect 'x' has two functions for its end: settled is given once" in faults


def test_an_effect_without_brackets_is_told_and_the_module_is_read_to_its_end() -> None:
    def register(handlers: Handlers) -> None:
        effect = cast("Effect", handlers.effect(cast("Any", refund)))
        effect.settled(told)

    [fault] = faults_of(register)
    assert '@handlers.effect("refund_fee")' in fault


def test_an_effect_can_be_called_as_the_function_it_was() -> None:
    effect = Handlers().effect("refund_fee")(refund)
    assert effect(charge="ch_1", amount=5) == refund("ch_1", 5)
    assert effect.settled(told) is told
    assert effect.callback is told


def test_effects_are_found_by_name() -> None:
    handlers = Handlers()
    one, two = handlers.use(refund), handlers.effect("other")(refund)
    assert handlers.effects == {"refund": one, "other": two}


def test_the_fingerprint_changes_with_effects() -> None:
    def fingerprint(*effects: str) -> str:
        handlers = Handlers()
        handlers.on("invoice.paid", name="h")(lambda _event, _tx: None)
        for name in effects:
            handlers.effect(name)(refund)
        return handlers.fingerprint()

    assert len({fingerprint(), fingerprint("a"), fingerprint("b"), fingerprint("a", "b")}) == 4
    assert fingerprint("a", "b") == fingerprint("b", "a")


def test_a_settled_operation_has_a_cause() -> None:
    one = Settled(
        id="6f1a2f0e-5a43-5d0c-9a3e-0d6f6e636566", effect="refund", subject="s", occurrence=1, account="acct_1",
        mode="test", state="failed", args={}, result={},
    )  # fmt: skip
    assert one.cause == "operation:6f1a2f0e-5a43-5d0c-9a3e-0d6f6e636566/failed"


def test_handlers_that_only_have_effects_can_be_used() -> None:
    """A worker, or an application, may know no event type."""
    handlers = Handlers()
    handlers.use(refund)
    handlers.check()
    assert handlers.for_type("invoice.paid") == ()
