"""Registration: every mistake is found at start, all at once."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, cast

import pytest

from onceflow_processor import handlers as handlers_module
from onceflow_processor.event import Event
from onceflow_processor.handlers import HandlerFunction, Handlers
from onceflow_processor.tx import Tx
from onceflow_schemas.failure import Misconfigured


def paid(event: Event, tx: Tx) -> None:
    """A handler."""


def refunded(event: Event, tx: Tx) -> None:
    """Another."""


class Callable2:
    """An object that can be called."""

    def __call__(self, event: Event, tx: Tx) -> None:
        """Do nothing."""


async def coroutine(event: Event, tx: Tx) -> None:
    """An async function."""


def generator(event: Event, tx: Tx) -> Iterator[None]:
    """A generator."""
    yield


async def async_generator(event: Event, tx: Tx) -> AsyncIterator[None]:
    """An async generator."""
    yield


def one_argument(event: Event) -> None:
    """Too few arguments."""


def three_arguments(event: Event, tx: Tx, more: int) -> None:
    """Too many."""


def keyword_only(event: Event, *, tx: Tx) -> None:
    """Not called so."""


def with_default(event: Event, tx: Tx, more: int = 1) -> None:
    """A default does no harm."""


def faults_of(register: Callable[[Handlers], object]) -> tuple[str, ...]:
    handlers = Handlers()
    register(handlers)
    with pytest.raises(Misconfigured) as error:
        handlers.check()
    assert error.value.code == "handlers_invalid"
    assert all(fault in error.value.message for fault in error.value.faults)
    return error.value.faults


@pytest.mark.parametrize(
    "register",
    [
        lambda handlers: handlers.on("invoice.paid")(paid),
        lambda handlers: handlers.on("invoice.paid", "charge.refunded")(paid),
        lambda handlers: handlers.on("customer.subscription.*")(paid),
        lambda handlers: handlers.on("v1.billing.meter[preview]")(paid),
        lambda handlers: handlers.on("invoice.paid")(with_default),
        lambda handlers: handlers.on("invoice.paid", name="object")(Callable2()),
        lambda handlers: handlers.on("invoice.paid", name="partial")(functools.partial(three_arguments, more=1)),
        lambda handlers: handlers.on("invoice.paid", name="built-in")(max),
        lambda handlers: handlers.on("invoice.paid", name="type")(type),
        lambda handlers: handlers.on("invoice.paid", facts=lambda event: [("a", event.id)])(paid),
        lambda handlers: handlers.on("invoice.paid", facts=sorted)(paid),
        lambda handlers: [handlers.on("invoice.paid")(paid), handlers.on("invoice.paid", name="again")(paid)],
        lambda handlers: [handlers.on("invoice.paid")(paid), handlers.on("charge.refunded")(paid)],
        lambda handlers: [handlers.on("invoice.paid")(paid), handlers.on("invoice.*")(refunded)],
    ],
)
def test_registrations_without_a_fault(register: Callable[[Handlers], object]) -> None:
    handlers = Handlers()
    register(handlers)
    handlers.check()


@pytest.mark.parametrize(
    ("register", "words"),
    [
        (lambda _handlers: None, "no handler is registered"),
        (lambda handlers: handlers.on()(paid), "'paid' names no event type"),
        (lambda handlers: handlers.on("")(paid), "which no event can have"),
        (lambda handlers: handlers.on("invoice paid")(paid), "which no event can have"),
        (lambda handlers: handlers.on("*")(paid), "which no event can have"),
        (lambda handlers: handlers.on(".*")(paid), "which no event can have"),
        (lambda handlers: handlers.on("invoice.*.paid")(paid), "which no event can have"),
        (lambda handlers: handlers.on("x" * 201)(paid), "which no event can have"),
        (lambda handlers: handlers.on(5)(paid), "which no event can have"),
        (lambda handlers: handlers.on(["invoice.paid"])(paid), "which no event can have"),
        (lambda handlers: handlers.on("invoice.paid")(lambda _event, _tx: None), "give it a name="),
        (lambda handlers: handlers.on("invoice.paid")(functools.partial(paid)), "give it a name="),
        (lambda handlers: handlers.on("invoice.paid", name="a b")(paid), "give it a name="),
        (lambda handlers: handlers.on("invoice.paid", name="x" * 101)(paid), "give it a name="),
        (lambda handlers: handlers.on("invoice.paid", name=5)(paid), "give it a name="),
        (lambda handlers: handlers.on("invoice.paid", name="none")(None), "'none' is not a function"),
        (lambda handlers: handlers.on("invoice.paid")(coroutine), "coroutine or generator"),
        (lambda handlers: handlers.on("invoice.paid")(generator), "coroutine or generator"),
        (lambda handlers: handlers.on("invoice.paid")(async_generator), "coroutine or generator"),
        (lambda handlers: handlers.on("a", name="p")(functools.partial(coroutine)), "coroutine or generator"),
        (lambda handlers: handlers.on("invoice.paid")(one_argument), "cannot be called with (event, tx)"),
        (lambda handlers: handlers.on("invoice.paid")(three_arguments), "cannot be called with (event, tx)"),
        (lambda handlers: handlers.on("invoice.paid")(keyword_only), "cannot be called with (event, tx)"),
        (
            lambda handlers: handlers.on("a", facts=5)(paid),
            "facts= of the handler 'paid' is not a function of the event",
        ),
        (
            lambda handlers: handlers.on("a", facts=paid)(paid),
            "facts= of the handler 'paid' cannot be called with (event)",
        ),
        (lambda handlers: handlers.on("a", facts=lambda: [("a",)])(paid), "cannot be called with (event)"),
        (lambda handlers: handlers.on("a", facts=coroutine)(paid), "facts= of the handler 'paid' is a coroutine"),
        (lambda handlers: [handlers.on("a")(paid), handlers.on("a")(paid)], "registered twice for 'a'"),
        (lambda handlers: handlers.on("a", "a")(paid), "registered twice for 'a'"),
        (lambda handlers: [handlers.on("a")(paid), handlers.on("b", name="paid")(refunded)], "two handlers are called"),
        (
            lambda handlers: [handlers.on(paid), handlers.on("a")(refunded)],
            "@handlers.on needs event types in brackets",
        ),
    ],
)
def test_a_faulty_registration_is_named(register: Callable[[Handlers], object], words: str) -> None:
    [fault] = faults_of(register)
    assert words in fault


def test_all_faults_are_told_at_once() -> None:
    def register(handlers: Handlers) -> None:
        handlers.on("a b", name="c d")(cast("Any", one_argument))
        handlers.on()(cast("Any", coroutine))

    assert len(faults_of(register)) == 5


def test_a_decorator_gives_the_function_back() -> None:
    handlers = Handlers()
    assert handlers.on("invoice.paid")(paid) is paid


def names(handlers: Handlers, event_type: str) -> list[str]:
    return [handler.name for handler in handlers.for_type(event_type)]


def test_handlers_of_a_type_run_in_the_order_of_their_registration() -> None:
    handlers = Handlers()
    handlers.on("customer.subscription.*", name="any")(paid)
    handlers.on("customer.subscription.deleted", "invoice.paid", name="exact")(refunded)
    assert names(handlers, "customer.subscription.deleted") == ["any", "exact"]
    assert names(handlers, "customer.subscription.updated") == ["any"]
    assert names(handlers, "invoice.paid") == ["exact"]
    for event_type in (
        "customer.subscription",
        "customer.subscription_schedule.created",
        "customer",
        "",
        "invoice.paid.x",
    ):
        assert names(handlers, event_type) == []


def test_a_later_registration_counts_for_types_that_were_asked_before() -> None:
    handlers = Handlers()
    handlers.on("a", name="first")(paid)
    assert names(handlers, "b") == []
    handlers.on("b", name="second")(refunded)
    assert names(handlers, "b") == ["second"]


def test_what_is_remembered_about_types_from_outside_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handlers_module, "_RESOLVED_TYPES_MAX", 10)
    handlers = Handlers()
    handlers.on("a.*", name="any")(paid)
    for number in range(100):
        assert names(handlers, f"a.{number}") == ["any"]
        assert len(handlers._resolved) <= 10


def test_declared_facts_belong_to_the_handler() -> None:
    handlers = Handlers()

    def declared(event: Event) -> list[tuple[str, ...]]:
        return [("paid", event.id)]

    handlers.on("invoice.paid", facts=declared)(paid)
    [handler] = handlers.for_type("invoice.paid")
    assert handler.facts is declared
    assert handler.function is paid


def fingerprint(*registrations: tuple[str, HandlerFunction, str]) -> str:
    handlers = Handlers()
    for event_type, function, name in registrations:
        handlers.on(event_type, name=name)(function)
    return handlers.fingerprint()


def test_the_fingerprint_changes_with_types_and_names_and_with_nothing_else() -> None:
    base = fingerprint(("a", paid, "x"), ("b", paid, "y"))
    assert len(base) == 16
    assert base == fingerprint(("b", refunded, "y"), ("a", refunded, "x"))
    others = {
        fingerprint(("a", paid, "x")),
        fingerprint(("a", paid, "x"), ("c", paid, "y")),
        fingerprint(("a", paid, "x"), ("b", paid, "z")),
        fingerprint(("a", paid, "x"), ("b", paid, "y"), ("c", paid, "y")),
    }
    assert len(others | {base}) == 5


def test_the_types_are_listed_for_the_log() -> None:
    handlers = Handlers()
    handlers.on("b", "a.*", name="x")(paid)
    handlers.on("b", name="y")(refunded)
    assert handlers.types() == ("a.*", "b")


def test_a_handler_says_whether_it_runs_in_a_replay_and_whether_its_sql_may_be_kept() -> None:
    handlers = Handlers()
    handlers.on("invoice.paid", name="books")(_plain)
    handlers.on("invoice.*", name="mails", replay="never")(_plain_too)
    handlers.on("invoice.paid", name="counts", rerun="safe")(lambda _event, _tx: None)
    handlers.check()
    assert [one.name for one in handlers.for_type("invoice.paid")] == ["books", "mails", "counts"]
    assert [one.name for one in handlers.for_replay().for_type("invoice.paid")] == ["books", "counts"]
    assert handlers.for_replay().for_type("invoice.sent") == ()
    assert handlers.left_out_of_replay() == ("mails",)
    assert [one.rerun for one in handlers.for_replay().for_type("invoice.paid")] == ["rolled_back", "safe"]


def test_what_is_said_about_replays_is_checked_at_start() -> None:
    handlers = Handlers()
    handlers.on("a.b", name="one", replay="sometimes")(_plain)  # type: ignore[arg-type]
    handlers.on("a.b", name="two", rerun=True)(_plain_too)  # type: ignore[arg-type]
    handlers.on("a.b", name="three", replay="never", rerun="safe")(lambda _event, _tx: None)
    with pytest.raises(Misconfigured) as refused:
        handlers.check()
    assert refused.value.faults == (
        "replay= of the handler 'one' is 'sometimes': write 'always' or 'never'",
        "rerun= of the handler 'two' is True: write 'rolled_back' or 'safe'",
        'the handler \'three\' is declared replay="never" and rerun="safe": it is never run again',
    )


def _plain(_event: object, _tx: object) -> None:
    """Does nothing."""


def _plain_too(_event: object, _tx: object) -> None:
    """Does nothing either."""
