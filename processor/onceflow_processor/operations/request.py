"""Asking for an operation: everything is checked and frozen here, in the moment of the call.

Rule: whoever asks for something impossible gets the error, in the handler; the tail only writes, and a worker only sends.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, Protocol
from uuid import UUID

import orjson

from onceflow_processor.operations.effect import Effect
from onceflow_schemas.failure import Refused
from onceflow_schemas.identity import operation_id
from onceflow_schemas.operations.calls import Call
from onceflow_schemas.operations.freeze import freeze, steps_json
from onceflow_schemas.operations.request_checks import check_json, check_request
from onceflow_schemas.outcome_record import canonical_value

API_VERSION = "2026-10-28.endive"
"""The Stripe API version that calls are frozen with: the one that the pinned SDK speaks."""

ARGS_BYTES_MAX = 100_000
STEPS_BYTES_MAX = 1_000_000


class Origin(Protocol):
    """What an operation is asked for by: an event, a settled operation, or an application."""

    @property
    def account(self) -> str:
        """The account that it acts on when none is named."""

    @property
    def mode(self) -> str:
        """``live`` or ``test``."""

    @property
    def created(self) -> datetime | None:
        """When it happened, by Stripe's or the application's word; the safe window starts there.  None: now."""


@dataclass(frozen=True, slots=True)
class RequestRules:
    """What may be asked for here.

    Attributes:
        accounts: the accounts that this deployment serves.
        effects: the registered effects by name; None where any may be asked for (an application).
        api_version: frozen with each call.
        deployment: that objects of operations carry; empty where nobody knows it.
    """

    accounts: frozenset[str]
    effects: Mapping[str, Effect] | None
    api_version: str = API_VERSION
    deployment: str = ""


class Asked(NamedTuple):
    """An operation that was asked for, before it has a row.

    ``args`` and ``steps`` are JSON, ``args_sha256`` covers the order key too, ``call`` is for tests.
    """

    id: UUID
    account: str
    mode: str
    effect: str
    subject: str
    occurrence: int
    order_key: str | None
    kind: str
    args: bytes
    args_sha256: bytes
    cause: str
    steps: bytes
    api_version: str
    happened_at: datetime | None
    call: Call


def make_request(
    effect: Effect,
    *,
    subject: str,
    occurrence: int,
    order_key: str | None,
    account: str | None,
    args: Mapping[str, Any],
    cause: str,
    origin: Origin,
    rules: RequestRules,
) -> Asked:
    """Check what is asked for, run the effect's function and freeze the call that it returns.

    Raises:
        Refused: ``operation_refused``, or a more special code, with what to change.
        Whatever the effect's function itself raises.
    """
    _check_effect(effect, rules)
    where = origin.account if account is None else account
    check_request(effect=effect.name, subject=subject, occurrence=occurrence, order_key=order_key, account=where)
    if where not in rules.accounts:
        message = f"effect {effect.name!r}: {where} is not an account of this deployment"
        raise Refused("account_not_served", message)
    kept = _canonical_args(effect, args)
    made = operation_id(account=where, mode=origin.mode, effect=effect.name, subject=subject, occurrence=occurrence)
    # The function gets what is stored: nothing of the handler's that it could change, and the same at another time.
    given = orjson.loads(kept)
    _check_signature(effect, given)
    call = _call(effect, effect.function(**given))
    frozen = freeze(call, operation_id=made, deployment=rules.deployment)
    steps = orjson.dumps(steps_json(frozen))
    if len(steps) > STEPS_BYTES_MAX:
        raise _refused(effect, f"its call is longer than {STEPS_BYTES_MAX} bytes")
    return Asked(
        id=made,
        account=where,
        mode=origin.mode,
        effect=effect.name,
        subject=subject,
        occurrence=occurrence,
        order_key=order_key,
        kind=frozen[0].kind,
        args=kept,
        args_sha256=_wish_sha256(kept, order_key),
        cause=cause,
        steps=steps,
        api_version=rules.api_version,
        happened_at=origin.created,
        call=call,
    )


def _check_effect(effect: object, rules: RequestRules) -> None:
    if not isinstance(effect, Effect):
        name = getattr(effect, "__name__", type(effect).__name__)
        message = f"{name} is no effect: ask with what handlers.effect or handlers.use gave back"
        raise Refused("effect_not_registered", message)
    if rules.effects is not None and rules.effects.get(effect.name) is not effect:
        message = f"effect {effect.name!r}: it is not registered with the handlers that run here"
        raise Refused("effect_not_registered", message)


def _check_signature(effect: Effect, args: Mapping[str, Any]) -> None:
    """Tell wrong arguments from a fault inside the function: both are a TypeError."""
    try:
        if effect.signature is not None:
            effect.signature.bind(**args)
    except TypeError as error:
        raise Refused("arguments_refused", f"effect {effect.name!r}: {error}") from None


def _call(effect: Effect, returned: object) -> Call:
    if isinstance(returned, Call):
        return returned
    if inspect.iscoroutine(returned):
        returned.close()
    raise _refused(effect, f"its function returned {type(returned).__name__}, not a call such as StripeCall")


def _canonical_args(effect: Effect, args: Mapping[str, Any]) -> bytes:
    try:
        check_json(args, "")
    except Refused as error:
        raise Refused(error.code, f"effect {effect.name!r}: {error.message}") from error
    try:
        kept = canonical_value(args)
    except Refused as error:
        raise _refused(effect, f"its arguments are {error.message.partition(' is ')[2]}") from error
    if len(kept) > ARGS_BYTES_MAX:
        raise _refused(effect, f"its arguments are longer than {ARGS_BYTES_MAX} bytes")
    return kept


def _wish_sha256(args: bytes, order_key: str | None) -> bytes:
    """What the same id must be asked for with again: its place in an order is frozen like its arguments."""
    return hashlib.sha256(args if order_key is None else b"\x00".join([args, order_key.encode()])).digest()


def _refused(effect: Effect, why: str) -> Refused:
    return Refused("operation_refused", f"effect {effect.name!r}: {why}")
