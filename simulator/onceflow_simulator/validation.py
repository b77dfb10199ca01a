"""What is checked before an endpoint begins to execute.

Rule: a refusal here leaves the idempotency key free; a refusal later is kept under the key like any other answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

import orjson

from onceflow_simulator.errors import invalid
from onceflow_simulator.params import Params

METADATA_KEYS_MAX = 50
METADATA_KEY_MAX = 40
METADATA_VALUE_MAX = 500
KEY_MAX = 255
LIMIT_MAX = 100
_AMOUNT_MAX = 10**12
SIGNED = (-_AMOUNT_MAX, _AMOUNT_MAX)
FROM_ZERO = (0, _AMOUNT_MAX)
FROM_ONE = (1, _AMOUNT_MAX)
"""Bounds of whole numbers; what a currency allows is checked elsewhere."""
_WHOLE = re.compile(r"-?[0-9]{1,18}")
_RANGE = frozenset({"gt", "gte", "lt", "lte"})
_KNOWN: dict[str, list[str]] = orjson.loads(
    resources.files("onceflow_simulator").joinpath("parameters.json").read_bytes()
)


@dataclass(frozen=True)
class Spec:
    """The parameters of an endpoint.

    Args:
        required: must be there and not empty.
        whole: whole numbers, with the smallest and the largest.
        switches: ``true`` or ``false``.
        choices: texts of a closed set.
        more: names beyond those of Stripe's own library: older versions' names, which its tools still use.
        rule: what else must hold of the parameters together; it raises StripeError.
    """

    required: tuple[str, ...] = ()
    whole: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    switches: tuple[str, ...] = ()
    choices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    more: tuple[str, ...] = ()
    rule: Callable[[Params], None] | None = None


PLAIN = Spec()
LIST = Spec(whole={"limit": (1, LIMIT_MAX)})


def known_parameters(method: str, template: str) -> frozenset[str] | None:
    """The names that an endpoint takes; None when Stripe's library does not know the endpoint."""
    names = _KNOWN.get(f"{method} {re.sub(r'{[a-z_0-9]+}', '{}', template)}")
    return None if names is None else frozenset(names)


def check(params: Params, spec: Spec, *, known: frozenset[str] | None) -> None:
    """Refuse parameters that the endpoint would not execute.

    Raises:
        StripeError: 400.
    """
    if known is not None:
        _check_names(params, known | frozenset(spec.more))
    for name in spec.required:
        if params.get(name) in (None, "", {}, []):
            raise invalid(f"Missing required param: {name}.", code="parameter_missing", param=name)
    for name, (low, high) in spec.whole.items():
        if name in params:
            whole(params, name, low=low, high=high)
    for name in spec.switches:
        switch(params, name)
    _check_choices(params, spec)
    if "metadata" in params:
        check_metadata(params["metadata"])
    if spec.rule is not None:
        spec.rule(params)


def _check_choices(params: Params, spec: Spec) -> None:
    for name, texts in spec.choices.items():
        if name in params and params[name] not in texts:
            raise invalid(f"Invalid {name}: must be one of {', '.join(texts)}", param=name)


def _check_names(params: Params, known: frozenset[str]) -> None:
    for name in params:
        if name not in known:
            raise invalid(f"Received unknown parameter: {name}", code="parameter_unknown", param=name)
    created = params.get("created")
    for bound in created if isinstance(created, dict) else ():
        if bound not in _RANGE:
            raise invalid(f"Received unknown parameter: created[{bound}]", code="parameter_unknown", param="created")


def whole(params: Params, name: str, *, low: int, high: int) -> int:
    """A whole number within its bounds.

    Raises:
        StripeError: 400, code ``parameter_invalid_integer``.
    """
    text = params[name]
    if not isinstance(text, str) or not _WHOLE.fullmatch(text):
        raise invalid(f"Invalid integer: {text}", code="parameter_invalid_integer", param=name)
    number = int(text)
    if number < low:
        message = f"This value must be greater than or equal to {low}."
        raise invalid(message, code="parameter_invalid_integer", param=name)
    if number > high:
        message = f"This value must be less than or equal to {high}."
        raise invalid(message, code="parameter_invalid_integer", param=name)
    return number


def switch(params: Params, name: str, *, default: bool = False) -> bool:
    """True or false.

    Raises:
        StripeError: 400, it is another text.
    """
    text = params.get(name)
    if text is None:
        return default
    if text not in ("true", "false"):
        raise invalid(f"Invalid boolean: {text}", param=name)
    return bool(text == "true")


def check_metadata(metadata: Any) -> None:
    """At most 50 keys of 40 characters with values of 500; an empty text unsets.

    Raises:
        StripeError: 400.
    """
    if metadata == "":
        return
    if not isinstance(metadata, dict):
        raise invalid("Invalid metadata: must be a hash", param="metadata")
    if len(metadata) > METADATA_KEYS_MAX:
        raise invalid(f"Metadata is limited to {METADATA_KEYS_MAX} keys; {len(metadata)} were given", param="metadata")
    for name, value in metadata.items():
        if len(name) > METADATA_KEY_MAX:
            raise invalid(f"Metadata keys have at most {METADATA_KEY_MAX} characters: {name}", param="metadata")
        if not isinstance(value, str):
            raise invalid(f"Metadata values must be strings: {name}", param=f"metadata[{name}]")
        if len(value) > METADATA_VALUE_MAX:
            raise invalid(
                f"Metadata values have at most {METADATA_VALUE_MAX} characters: {name} has {len(value)}",
                param=f"metadata[{name}]",
            )


def check_key(key: str) -> None:
    """An idempotency key is at most 255 printable ASCII characters.

    Raises:
        StripeError: 400.
    """
    if len(key) > KEY_MAX:
        raise invalid(f"Idempotency keys have at most {KEY_MAX} characters; this one has {len(key)}")
    if not key.isascii() or not key.isprintable():
        raise invalid("Idempotency keys are printable ASCII characters")
