"""Reads ``[[inputs]]``: one table per topic that the processor reads.

Rule: each table is read as far as it can be, and every fault in it is told with its number, its name and a good value; no
fault repeats a secret.  What contradicts what is said in ``input_checks``.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

from onceflow_processor.inputs.input_topic import SIGNATURE_HEADER, Format, KeyPolicy, Trust
from onceflow_producer.endpoint_secrets import EndpointSecret, parse_secrets
from onceflow_schemas.failure import Misconfigured
from onceflow_schemas.identity import ACCOUNT_PATTERN

INPUTS_MAX = 32
SHOWN_CHARACTERS_MAX = 60
ENDPOINT_SECRETS = "STRIPE_WEBHOOK_SECRET: "
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_HEADER = re.compile(r"[A-Za-z0-9_.-]{1,100}")


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSettings:
    """One table of ``[[inputs]]``, field by field as it was given; None where it says nothing.

    ``number`` counts the tables from 1, for the texts of faults.  ``unreadable`` names the fields that were given and could
    not be read: they are as if they said nothing (``topic`` is empty then), and nothing may be concluded from them.
    """

    number: int
    topic: str
    format: Format = "onceflow"
    trust: Trust | None = None
    key: KeyPolicy | None = None
    accounts: tuple[str, ...] = ()
    mode: str | None = None
    default_account: str | None = None
    secrets: tuple[EndpointSecret, ...] = field(default=(), repr=False)
    signature_header: str | None = None
    unreadable: frozenset[str] = frozenset()

    @property
    def is_ours(self) -> bool:
        """True for records of the bridge."""
        return self.format == "onceflow" and "format" not in self.unreadable

    @property
    def effective_trust(self) -> Trust:
        """Who vouches for a record: only the bridge's own say it by themselves."""
        return self.trust or "attested"

    @property
    def effective_key(self) -> KeyPolicy:
        """By what events are parked: the key of a foreign record may mean anything."""
        return self.key or ("record" if self.is_ours else "object")


def attested_input(topic: str, *, number: int) -> InputSettings:
    """Return what a topic of ``topics.events`` is where nobody wrote ``[[inputs]]``."""
    return InputSettings(number=number, topic=topic)


def read_inputs(value: Any, *, origin: str) -> tuple[tuple[InputSettings, ...], list[str]]:
    """Return the inputs, each as far as it can be read, and what is wrong with them.

    A list that is none is one table of which nothing can be read: somebody did say what the processor reads.

    Args:
        value: a list of tables, or the same as JSON text, which is how the environment has it.
        origin: where it came from.
    """
    tables = _tables(value)
    if isinstance(tables, str):
        nothing = InputSettings(number=1, topic="", unreadable=frozenset(FIELDS))
        return (nothing,), [f"inputs ({origin}): {tables}"]
    found, faults = [], []
    for number, table in enumerate(tables, start=1):
        fields, wrong = _fields(table)
        faults += [f"inputs[{number}].{name} ({origin}): {text}" for name, text in wrong]
        found.append(InputSettings(number=number, **fields))
    return tuple(found), faults


def _tables(value: Any) -> list[Mapping[str, Any]] | str:
    good = 'a good value is [[inputs]] with topic = "stripe.events.v1", or in the environment [{"topic": "stripe.events.v1"}]'
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return f"is not JSON; {good}"
    if not isinstance(value, list) or not all(isinstance(table, Mapping) for table in value):
        return f"must be a list of tables; {good}"
    if not value:
        return f"names no topic, so nothing would ever be read; {good}"
    if len(value) > INPUTS_MAX:
        return f"has {len(value)} tables; at most {INPUTS_MAX} are allowed; {good}"
    return list(value)


def _fields(table: Mapping[str, Any]) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    fields: dict[str, Any] = {"topic": ""}
    unreadable: set[str] = set()
    faults: list[tuple[str, str]] = []
    for name, given in table.items():
        if name not in FIELDS:
            near = difflib.get_close_matches(name, FIELDS, n=1)
            # What was meant was given, and nobody knows how: it must not be told as missing too.
            unreadable.update(one for one in near if one not in table)
            meant = f"; did you mean {near[0]}?" if near else f"; known are {', '.join(FIELDS)}"
            faults.append((name, f"is not a setting{meant}"))
            continue
        read = FIELDS[name].read
        try:
            fields[name] = read(given)
        except ValueError as error:
            unreadable.add(name)
            faults += [(name, f"{line}; a good value is {FIELDS[name].good}") for line in str(error).splitlines()]
    if "topic" not in table and "topic" not in unreadable:
        unreadable.add("topic")
        faults.append(("topic", f"is not set; a good value is {FIELDS['topic'].good}"))
    return {**fields, "unreadable": frozenset(unreadable)}, faults


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("must be a text")
    return value.strip()


def _matching(pattern: re.Pattern[str], what: str) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        text = _text(value)
        if not pattern.fullmatch(text):
            raise ValueError(f"is not {what} (it is {text[:SHOWN_CHARACTERS_MAX]!r})")
        return text

    return read


def _one_of(*words: str) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        text = _text(value)
        if text not in words:
            raise ValueError(f"is {text[:SHOWN_CHARACTERS_MAX]!r}, and must be one of {', '.join(words)}")
        return text

    return read


def _accounts(value: Any) -> tuple[str, ...]:
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list | tuple) or not parts:
        raise ValueError("must be a list of accounts")
    return tuple(dict.fromkeys(_ACCOUNT(part) for part in parts))


def _secrets(value: Any) -> tuple[EndpointSecret, ...]:
    text = ",".join(value) if isinstance(value, list | tuple) and all(isinstance(one, str) for one in value) else value
    if not isinstance(text, str):
        raise ValueError("must be a list of whsec_... or id=whsec_...")  # noqa: TRY004 - collected with the other faults.
    try:
        return parse_secrets(text)
    except Misconfigured as failure:
        raise ValueError("\n".join(fault.removeprefix(ENDPOINT_SECRETS) for fault in failure.faults)) from None


_ACCOUNT = _matching(ACCOUNT_PATTERN, "acct_ and letters, digits, underscores")


@dataclass(frozen=True, slots=True)
class InputField:
    """How one field is read, a good value, and what it means, for the page of settings."""

    read: Callable[[Any], Any]
    good: str
    default: str
    meaning: str


_TOPIC_NAME = _matching(_TOPIC, "1 to 249 letters, digits, dots, dashes and underscores")


def _topic(value: Any) -> str:
    name = _TOPIC_NAME(value)
    if name in (".", "..") or name.startswith("__"):
        raise ValueError(f"is {name}: no topic may be called so, or it is Kafka's own")
    return name


FIELDS: Mapping[str, InputField] = {
    "topic": InputField(
        _topic,
        "stripe.events.v1",
        "required",
        "The topic; each may stand in one table only.",
    ),
    "format": InputField(_one_of(*get_args(Format)), "stripe-json", "`onceflow`", "How an event stands in a record."),
    "trust": InputField(
        _one_of(*get_args(Trust)),
        "stripe-signature",
        "`attested` for `onceflow`, else required",
        "Who vouches for a record: the bridge, Stripe's signature in a header, or (`transport`) whoever may write there.",
    ),
    "key": InputField(
        _one_of(*get_args(KeyPolicy)),
        "object",
        "`record` for `onceflow`, else `object`",
        "What has to wait behind a parked event: what has its record key, or what is about its object.",
    ),
    "accounts": InputField(
        _accounts, "acct_1AbCdEfGhIjKlMnO", "all that are served", "The accounts whose events it may carry."
    ),
    "mode": InputField(_one_of("test", "live"), "test", "`stripe.mode`", "Must be that of the deployment."),
    "default_account": InputField(
        _ACCOUNT, "acct_1AbCdEfGhIjKlMnO", "`stripe.account`", "Whose an event is that names no account."
    ),
    "secrets": InputField(
        _secrets, "whsec_...", "none", "For `stripe-signature`: the secrets of the endpoints, all that may have signed."
    ),
    "signature_header": InputField(
        _matching(_HEADER, "a header name"),
        SIGNATURE_HEADER,
        f"`{SIGNATURE_HEADER}`",
        "For `stripe-signature`: where the signature stands; upper and lower case are the same.",
    ),
}
"""The fields in the order in which the page shows them."""
