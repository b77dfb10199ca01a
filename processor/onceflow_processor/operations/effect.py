"""Effects: the user's pure functions that say which call an operation makes, and what is told when it is settled.

Rule: the function runs once, when the operation is asked for; what it returns is frozen.  So no later version of it can
change an operation, and nothing of the user's runs at sending time.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

from onceflow_schemas.identity import operation_cause
from onceflow_schemas.operations.calls import Call
from onceflow_schemas.operations.request_checks import EFFECT_PATTERN

if TYPE_CHECKING:
    from onceflow_processor.tx import Tx

EffectFunction = Callable[..., Call]
SettledFunction = Callable[["Settled", "Tx"], None]

RESERVED_NAMES = ("account", "occurrence", "order_key", "subject")
"""Arguments of ``tx.request`` itself; an effect that takes one could never be given it."""

_NOT_PLAIN = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD)
_SETTLED_ARGUMENTS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """An operation that has reached an end, as its settled callback sees it.

    Attributes:
        id: the operation's id.
        effect, subject, occurrence, order_key, args: as it was asked for.
        account, mode: where it acted, ``acct_...`` and ``live`` or ``test``.
        state: ``succeeded``, ``failed`` or ``canceled``.  ``failed`` may come after ``succeeded``: a bank may return a refund.
        external_id: the object at the other side (``pi_...``, ``re_...``), None when there is none.
        result: what is known of that object (status, amount, failure code ...), plain JSON; empty when nothing is.
    """

    id: str
    effect: str
    subject: str
    occurrence: int
    account: str
    mode: str
    state: str
    order_key: str | None = None
    args: Mapping[str, Any]
    external_id: str | None = None
    result: Mapping[str, Any]

    @property
    def cause(self) -> str:
        """The cause text that outcomes and facts of the callback carry."""
        return operation_cause(UUID(self.id), self.state)


class Effect:
    """A registered effect: what ``tx.request`` takes.  Made by ``handlers.effect``; call it as the function it was."""

    __slots__ = ("_faults", "callback", "function", "name", "signature")

    def __init__(self, name: str, function: EffectFunction, *, faults: list[str]) -> None:
        """``faults`` takes what is wrong with the registration, to be told at start."""
        self.name = name
        self.function = function
        self.signature = _signature_of(function)
        self.callback: SettledFunction | None = None
        self._faults = faults
        faults.extend(_effect_faults(name, function, self.signature))

    def __call__(self, **args: Any) -> Call:
        """Return the call that the function says, without asking for anything."""
        return self.function(**args)

    def settled(self, function: SettledFunction) -> SettledFunction:
        """Register the function ``(settled, tx) -> None`` that runs in the transaction that closes an operation."""
        if self.callback is not None:
            self._faults.append(f"the effect {self.name!r} has two functions for its end: settled is given once")
        self._faults.extend(_settled_faults(self.name, function))
        self.callback = function
        return function


def _signature_of(function: object) -> inspect.Signature | None:
    """Looked at once, since it takes longer than all else that asking for an operation checks."""
    try:
        return inspect.signature(function) if callable(function) else None
    except ValueError:  # Some builtins have no signature to look at.
        return None


def _effect_faults(name: object, function: object, signature: inspect.Signature | None) -> list[str]:
    faults = []
    if not isinstance(name, str) or not EFFECT_PATTERN.fullmatch(name):
        faults.append(f"the effect name {name!r} is not 1 to 100 letters, digits, '_', '.', '-'")
    if not callable(function):
        return [*faults, f"the effect {name!r} is not a function"]
    if any(is_another(function) for is_another in _NOT_PLAIN):
        faults.append(f"the effect {name!r} is a coroutine or generator: effects are plain, pure functions")
    for parameter in () if signature is None else signature.parameters.values():
        if parameter.name in RESERVED_NAMES and parameter.kind in _BY_NAME:
            faults.append(f"the effect {name!r} takes {parameter.name!r}, which tx.request keeps for itself: rename it")
        if parameter.kind not in _BY_NAME and parameter.default is inspect.Parameter.empty:
            faults.append(f"the effect {name!r} takes {parameter.name!r} by position: its arguments are given by name")
    return faults


def _settled_faults(name: object, function: object) -> list[str]:
    if not callable(function):
        return [f"what is settled of the effect {name!r} is not a function"]
    if any(is_another(function) for is_another in _NOT_PLAIN):
        return [f"what is settled of the effect {name!r} is a coroutine or generator: it is a plain function"]
    try:
        inspect.signature(function).bind(*range(_SETTLED_ARGUMENTS))
    except TypeError:
        return [f"what is settled of the effect {name!r} cannot be called with (settled, tx)"]
    except ValueError:
        pass
    return []
