"""A call becomes steps: everything that will be sent, and how to find out what became of it, fixed for ever.

Rule: what is frozen is what is sent, on every attempt, whatever code or settings are deployed meanwhile; every object that
a call makes carries the operation's id.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any, assert_never
from uuid import UUID

from onceflow_schemas.operations.calls import Call, Charge, HttpCall, Mail, StripeCall
from onceflow_schemas.operations.operation import DEPLOYMENT_KEY, METADATA_KEY, Operation, Policy, Role, Step
from onceflow_schemas.operations.request_checks import METADATA_KEYS_MAX
from onceflow_schemas.operations.resources import INTENTS, MADE, Resource, action_of, object_path

STORED = "{external_id}"
"""Stands in a path for the id of the stored object."""

_STEP_FIELDS = tuple(field.name for field in fields(Step))


def freeze(call: Call, *, operation_id: UUID, deployment: str = "") -> tuple[Step, ...]:
    """Return the steps of a checked call.

    Args:
        call: what is asked for.
        operation_id: that objects and keys carry.
        deployment: that objects carry too; empty where it is not known.
    """
    match call:
        case StripeCall():
            return (_stripe_step(call, operation_id, deployment),)
        case Charge():
            return _charge_steps(call, operation_id, deployment)
        case HttpCall():
            return (_http_step(call, operation_id),)
        case Mail():
            request = {name: value for name, value in asdict(call).items() if value is not None}
            return (_step(Role.CALL, operation_id, Policy.AT_LEAST_ONCE, request, kind="mail"),)
    assert_never(call)


def steps_json(steps: Sequence[Step]) -> list[dict[str, Any]]:
    """Return steps as they are stored."""
    return [{name: value for name in _STEP_FIELDS if (value := getattr(step, name)) is not None} for step in steps]


def steps_from(stored: Sequence[Mapping[str, Any]]) -> tuple[Step, ...]:
    """Return steps as they were stored by ``steps_json``."""
    return tuple(Step(**{**frozen, "policy": Policy(frozen["policy"])}) for frozen in stored)


def rekeyed(steps: str, *, former: UUID, again: UUID) -> str:
    """Return stored steps (JSON text) for another operation: keys, metadata and look-ups name it instead of the former."""
    return steps.replace(str(former), str(again))


def closing_step(operation: Operation, object_id: str) -> Step:
    """Return the cancel of a surplus intent of a charge: the frozen cancel, for another id and with a key of its own."""
    cancel = next(step for step in operation.steps if step.name == Role.CANCEL)
    request = {**cancel.request, "path": cancel.request["path"].replace(STORED, object_id)}
    return Step(Role.CANCEL, cancel.kind, f"{cancel.key}.{object_id}", cancel.policy, request, None, cancel.expect)


def _step(
    role: Role,
    operation_id: UUID,
    policy: Policy,
    request: Mapping[str, Any],
    *,
    kind: str = "stripe",
    lookup: Mapping[str, Any] | None = None,
    expect: Mapping[str, Any] | None = None,
) -> Step:
    key = str(operation_id) if role is Role.CALL else f"{operation_id}.{role}"
    return Step(role.value, kind, key, policy, request, lookup, expect)


def _post(path: str, params: Mapping[str, Any]) -> dict[str, Any]:
    return {"method": "POST", "path": path, "params": params}


def _stripe_step(call: StripeCall, operation_id: UUID, deployment: str) -> Step:
    if made := MADE.get(call.path):
        return _making_step(call, made, operation_id=operation_id, deployment=deployment)
    if (action := action_of(call.path)) and call.lookup is None:
        compared = {name: call.params[param] for param, name in action.compared.items() if param in call.params}
        expect = {"object": action.kind, **compared, **call.expect}
        lookup = {"retrieve": object_path(call.path)}
        request = _post(call.path, call.params)
        return _step(Role.CALL, operation_id, Policy.FENCED, request, lookup=lookup, expect=expect)
    return _step(
        Role.CALL,
        operation_id,
        Policy.STRIPE,
        _post(call.path, call.params),
        lookup=call.lookup,
        expect=call.expect or None,
    )


def _making_step(call: StripeCall, made: Resource, *, operation_id: UUID, deployment: str) -> Step:
    request = _post(call.path, _marked(call.params, operation_id, deployment))
    expect = {**_made_expect(call.params, made, operation_id), **call.expect}
    lookup = _made_lookup(call.path, call.params, made)
    return _step(Role.CALL, operation_id, Policy.STRIPE, request, lookup=lookup, expect=expect)


def _marked(params: Mapping[str, Any], operation_id: UUID, deployment: str) -> dict[str, Any]:
    given = params.get("metadata") or {}
    # Stripe takes one key more than callers may give; the operation's own is the one that must be there.
    named = {DEPLOYMENT_KEY: deployment} if deployment and len(given) < METADATA_KEYS_MAX else {}
    return {**params, "metadata": {**given, METADATA_KEY: str(operation_id), **named}}


def _made_lookup(path: str, params: Mapping[str, Any], made: Resource) -> dict[str, Any]:
    filters = {name: params[name] for name in made.filters if name in params}
    return {"list": path, "params": {**made.listed, **filters}, "retrieve": f"{path}/{STORED}"}


def _made_expect(params: Mapping[str, Any], made: Resource, operation_id: UUID) -> dict[str, Any]:
    compared = {name: params[name] for name in made.compared if name in params}
    return {"object": made.kind, "operation": str(operation_id), **compared}


def _charge_steps(call: Charge, operation_id: UUID, deployment: str) -> tuple[Step, ...]:
    intent = f"{INTENTS}/{STORED}"
    made = MADE[INTENTS]
    params = _create_params(call)
    expect = _made_expect(params, made, operation_id)
    create = _post(INTENTS, _marked(params, operation_id, deployment))
    confirm = _post(f"{intent}/confirm", _confirm_params(call))
    cancel = _post(f"{intent}/cancel", {"cancellation_reason": "abandoned"})
    lookup = {"retrieve": intent}
    made_lookup = _made_lookup(INTENTS, params, made)
    return (
        _step(Role.CREATE, operation_id, Policy.HARMLESS, create, lookup=made_lookup, expect=expect),
        _step(Role.CONFIRM, operation_id, Policy.FENCED, confirm, lookup=lookup, expect=expect),
        _step(Role.CANCEL, operation_id, Policy.FENCED, cancel, lookup=lookup, expect=expect),
    )


def _create_params(call: Charge) -> dict[str, Any]:
    given = {
        "amount": call.amount,
        "currency": call.currency,
        "customer": call.customer,
        "capture_method": None if call.capture else "manual",
        "description": call.description,
        "metadata": dict(call.metadata) or None,
        **call.create,
    }
    params = {name: value for name, value in given.items() if value is not None}
    chosen = {"payment_method_types", "automatic_payment_methods", "payment_method_configuration"} & set(params)
    if not chosen and "return_url" not in call.confirm:
        # Without a page to return to, Stripe refuses a confirm that could redirect.
        params["automatic_payment_methods"] = {"enabled": True, "allow_redirects": "never"}
    return params


def _confirm_params(call: Charge) -> dict[str, Any]:
    flags = {"off_session": call.off_session, "error_on_requires_action": call.error_on_requires_action}
    return {
        "payment_method": call.payment_method,
        **{name: True for name, value in flags.items() if value},
        **{name: value for name, value in call.confirm.items() if value is not None},
    }


def _http_step(call: HttpCall, operation_id: UUID) -> Step:
    headers = dict(call.headers)
    if call.json is not None and "content-type" not in {name.lower() for name in headers}:
        headers["Content-Type"] = "application/json"
    request = {"method": "POST", "url": call.url, "headers": headers, "body": call.text, "credential": call.credential}
    lookup = None
    if call.lookup is not None:
        address = call.lookup.replace("{key}", str(operation_id))
        lookup = {"method": "GET", "url": address, "headers": dict(call.headers), "credential": call.credential}
    return _step(Role.CALL, operation_id, Policy(call.policy), request, kind="http", lookup=lookup)
