"""The registry: which function runs for which event type, and which effects operations may have.

Rule: a mistake in a registration is found at start, all of them at once, and never by the first event that meets it.
"""

from __future__ import annotations

import hashlib
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, cast, get_args

from onceflow_processor.event import Event
from onceflow_processor.operations.effect import Effect, EffectFunction
from onceflow_processor.tx import Tx
from onceflow_schemas.failure import Misconfigured

HandlerFunction = Callable[[Event, Tx], None]
FactsFunction = Callable[[Event], Iterable[tuple[str, ...]]]
InOrder = Literal["as_is", "latest", "each"]
"""Which events of an object a handler meets: all as they come, those that tell newer state, each transition once."""
WithLines = Literal["as_sent", "all"]
"""Whether a handler meets the lines of an object as the event shows them, which are the first ones, or all of them."""
InReplay = Literal["always", "never"]
"""Whether a handler may run when a person reads a stretch of a topic again."""
InRerun = Literal["rolled_back", "safe"]
"""What becomes of a handler's own SQL when an event that was processed is run again."""

NAME_PATTERN = re.compile(r"[A-Za-z0-9_.\-]{1,100}")
_TYPE_PATTERN = re.compile(r"[A-Za-z0-9_.\[\]]{1,200}(\.\*)?")
_ANY_SUFFIX = ".*"
_POSITIONAL_COUNT = 2
_RESOLVED_TYPES_MAX = 10_000
_NOT_PLAIN = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)


@dataclass(frozen=True, slots=True)
class Handler:
    """One registered function; ``name`` is part of the ids of its outcomes, so a rename is a new handler."""

    name: str
    function: HandlerFunction
    facts: FactsFunction | None
    order: InOrder = "as_is"
    replay: InReplay = "always"
    rerun: InRerun = "rolled_back"
    lines: WithLines = "as_sent"


class Handlers:
    """What a platform team registers its functions in.

    A type may end in ``.*`` (``customer.subscription.*``).  Several handlers of one type run in the order of their
    registration, in the same transaction.
    """

    def __init__(self) -> None:
        self._registered: list[tuple[str, Handler]] = []
        self._faults: list[str] = []
        self._resolved: dict[str, tuple[Handler, ...]] = {}
        self._effects: dict[str, Effect] = {}

    def on(
        self,
        *types: str,
        name: str | None = None,
        facts: FactsFunction | None = None,
        order: InOrder = "as_is",
        replay: InReplay = "always",
        rerun: InRerun = "rolled_back",
        lines: WithLines = "as_sent",
    ) -> Callable[[HandlerFunction], HandlerFunction]:
        """Register a function ``(event, tx) -> None`` for event types.

        Args:
            types: exact types, or a prefix and ``.*``.
            name: the handler's stable name; the function's own name when left out.  The ids of its outcomes
                depend on it: give a name before you rename a function that has run in production.
            facts: tells from an event which facts (namespace, key parts ...) its handler may claim with
                ``tx.once``; they are then looked up before the handler runs, which saves a rerun of the batch
                where facts are often taken already.
            order: ``"as_is"``: events are met as they come.  ``"latest"``: for handlers that write down the object's
                state; an event that tells an older state than was applied, or the same again, is marked but not met.
                ``"each"``: for handlers that act on transitions; every event is met, ``event.is_stale`` tells the older
                ones, and two event ids of one change are met once.
            replay: ``"never"`` leaves the handler out of ``onceflow replay``: it runs for live events, and for what waited in
                parking, however it came there.
            rerun: ``"safe"`` says that its own SQL may be kept when ``onceflow replay --rerun --execute`` runs it a
                second time for the same event; otherwise only its outcomes and operations count, and its SQL is undone.
            lines: ``"all"``: an event whose object shows only its first lines waits until the others were read at Stripe
                (with the setting ``processor.read_objects``); where they are too many, ``event.lines_truncated`` stays True.
        """
        asked: tuple[object, ...] = types
        if any(callable(event_type) for event_type in asked):
            # ``@handlers.on`` without brackets: Python then calls no decorator, and the function would never run.
            self._faults.append('@handlers.on needs event types in brackets: @handlers.on("invoice.paid")')

        def register(function: HandlerFunction) -> HandlerFunction:
            given = cast("object", name if name is not None else getattr(function, "__name__", ""))
            self._faults.extend(_choice_faults(given, order=order, replay=replay, rerun=rerun, lines=lines))
            self._add(types, Handler(cast("str", given), function, facts, order, replay, rerun, lines))
            return function

        return register

    def effect(self, name: str) -> Callable[[EffectFunction], Effect]:
        """Register a pure function that says which call an operation makes.

        It runs in the transaction that asks for the operation (``tx.request``), and what it returns is frozen there: the
        same arguments must give the same call, so it asks no database and no clock.

        Args:
            name: the effect's stable name; operation ids depend on it.
        """
        asked: object = name
        if callable(asked):
            # ``@handlers.effect`` without brackets.  An effect comes back all the same, so that the module can be read to
            # its end and all faults are found.
            self._faults.append('@handlers.effect needs a name in brackets: @handlers.effect("refund_fee")')
            return cast("Callable[[EffectFunction], Effect]", self.use(cast("EffectFunction", asked)))
        return lambda function: self._add_effect(name, function)

    def use(self, function: EffectFunction, *, name: str | None = None) -> Effect:
        """Register a ready-made effect of ``onceflow.effects``, by its own name unless another is given."""
        return self._add_effect(getattr(function, "__name__", "") if name is None else name, function)

    def _add_effect(self, name: str, function: EffectFunction) -> Effect:
        effect = Effect(name, function, faults=self._faults)
        if self._effects.setdefault(str(name), effect) is not effect:
            self._faults.append(f"two effects are called {name!r}: give one of them another name")
        return effect

    @property
    def effects(self) -> Mapping[str, Effect]:
        """The registered effects by name."""
        return MappingProxyType(self._effects)

    def _add(self, types: tuple[str, ...], handler: Handler) -> None:
        chosen, function = handler.name, handler.function
        self._faults.extend(_faults_of(types, function, chosen))
        self._faults.extend(_facts_faults(handler.facts, chosen))
        if any(other.name == chosen and other.function is not function for _, other in self._registered):
            self._faults.append(f"two handlers are called {chosen!r}: give one of them another name=")
        for event_type in types:
            if any(known == event_type and other.name == chosen for known, other in self._registered):
                self._faults.append(f"the handler {chosen!r} is registered twice for {event_type!r}")
            self._registered.append((event_type, handler))
        self._resolved.clear()

    def check(self) -> None:
        """Check all registrations.

        Raises:
            Misconfigured: ``handlers_invalid`` with every fault found.
        """
        faults = list(self._faults)
        if not self._registered and not self._effects and not faults:
            faults.append('no handler is registered: decorate a function with @handlers.on("invoice.paid")')
        if faults:
            raise Misconfigured("handlers_invalid", "; ".join(faults), faults=tuple(faults))

    def for_replay(self) -> Handlers:
        """Return the registry without the handlers that are never run in a replay."""
        kept = Handlers()
        kept._registered = [(event_type, one) for event_type, one in self._registered if one.replay != "never"]
        kept._effects = self._effects
        return kept

    def left_out_of_replay(self) -> tuple[str, ...]:
        """Return the names of the handlers that ``for_replay`` leaves out, sorted."""
        return tuple(sorted({one.name for _, one in self._registered if one.replay == "never"}))

    def for_type(self, event_type: str) -> tuple[Handler, ...]:
        """Return the handlers of a type in the order of their registration; empty when it is ignored."""
        found = self._resolved.get(event_type)
        if found is None:
            found = tuple(handler for pattern, handler in self._registered if _matches(pattern, event_type))
            # Types come from the outside, so what is remembered about them is bounded.
            if len(self._resolved) >= _RESOLVED_TYPES_MAX:
                self._resolved.clear()
            self._resolved[event_type] = found
        return found

    def asks_for_order(self, event_type: str) -> bool:
        """Tell whether a handler of a type has an order, so that the guards of its objects are needed."""
        return any(handler.order != "as_is" for handler in self.for_type(event_type))

    def types(self) -> tuple[str, ...]:
        """Return the registered types and prefixes, sorted."""
        return tuple(sorted({event_type for event_type, _ in self._registered}))

    def fingerprint(self) -> str:
        """Return a short text that changes when a handler, a type or an effect is added, dropped or renamed."""
        lines = [f"{event_type} {handler.name}" for event_type, handler in self._registered]
        lines.extend(f"effect: {name}" for name in self._effects)
        lines.sort()
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def _matches(pattern: str, event_type: str) -> bool:
    if pattern.endswith(_ANY_SUFFIX):
        return event_type.startswith(pattern[:-1])
    return pattern == event_type


def _faults_of(types: tuple[object, ...], function: object, name: object) -> list[str]:
    faults = []
    if not types:
        faults.append(f"the handler {name!r} names no event type")
    faults.extend(
        f"the handler {name!r} has the type {event_type!r}, which no event can have"
        for event_type in types
        if not _is_type(event_type)
    )
    if not isinstance(name, str) or not NAME_PATTERN.fullmatch(name):
        faults.append(f"the handler name {name!r} is not 1 to 100 letters, digits, '_', '.', '-': give it a name=")
    if not callable(function):
        faults.append(f"the handler {name!r} is not a function")
        return faults
    if any(is_another(function) for is_another in _NOT_PLAIN):
        faults.append(f"the handler {name!r} is a coroutine or generator: handlers are plain functions")
    if not _takes(function, _POSITIONAL_COUNT):
        faults.append(f"the handler {name!r} cannot be called with (event, tx)")
    return faults


def _choice_faults(name: object, *, order: object, replay: object, rerun: object, lines: object) -> list[str]:
    given = (
        ("order", order, get_args(InOrder)),
        ("replay", replay, get_args(InReplay)),
        ("rerun", rerun, get_args(InRerun)),
        ("lines", lines, get_args(WithLines)),
    )
    faults = [
        f"{argument}= of the handler {name!r} is {value!r}: write {' or '.join(map(repr, choices))}"
        for argument, value, choices in given
        if value not in choices
    ]
    if not faults and (replay, rerun) == ("never", "safe"):
        faults.append(f'the handler {name!r} is declared replay="never" and rerun="safe": it is never run again')
    return faults


def _facts_faults(facts: object, name: object) -> list[str]:
    if facts is None:
        return []
    if not callable(facts):
        return [f"facts= of the handler {name!r} is not a function of the event"]
    if inspect.iscoroutinefunction(facts) or inspect.isasyncgenfunction(facts):
        return [f"facts= of the handler {name!r} is a coroutine: it is a plain function"]
    return [] if _takes(facts, 1) else [f"facts= of the handler {name!r} cannot be called with (event)"]


def _takes(function: Callable[..., object], count: int) -> bool:
    """Say whether the function can be called with so many arguments."""
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError:
        return False
    except ValueError:  # Some builtins have no signature to look at.
        return True
    return True


def _is_type(value: object) -> bool:
    return isinstance(value, str) and _TYPE_PATTERN.fullmatch(value) is not None
