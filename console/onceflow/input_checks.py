"""What contradicts what in ``[[inputs]]``.

Rule: a trust rule that would let anybody forge events is taken only when it is asked for by its name, and a table that
says two things that cannot both be meant is refused at start.  Pure; every fault is returned.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from onceflow.input_settings import InputSettings
from onceflow.settings_model import Settings
from onceflow_producer.endpoint_secrets import EndpointSecret
from onceflow_schemas.failure import Misconfigured

_SIGNED_FORMATS = ("stripe-json", "cloudevents-binary")
"""Those whose value is byte for byte what Stripe signed."""


class _Fault(NamedTuple):
    """A fault of one input; ``fields`` of its table and ``settings`` are what must have been readable to tell it."""

    fields: tuple[str, ...]
    text: str
    settings: tuple[str, ...] = ()


def input_faults(settings: Settings) -> Iterator[tuple[tuple[str, ...], str]]:
    """Return the faults, each with the settings that must be fine by themselves first."""
    seen: dict[str, int] = {}
    for one in settings.inputs:
        for fault in (*_own_faults(one), *_trust_faults(one), *_deployment_faults(one, settings)):
            yield (*_names(one, *fault.fields), *fault.settings), f"inputs[{one.number}].{fault.text}"
        if one.topic and one.topic in seen:
            first = seen[one.topic]
            yield (), f"inputs[{one.number}].topic is {one.topic}, which inputs[{first}] has too: keep one of them"
        seen.setdefault(one.topic, one.number)
    yield from _shared_secret_faults(settings)
    if settings.stripe.webhook_secret:
        for text in _foreign_bridge_faults(settings):
            yield ("topics.events",), text


def _names(one: InputSettings, *fields: str) -> tuple[str, ...]:
    """Return fields of a table as the settings' names know them."""
    return tuple(f"inputs[{one.number}].{field}" for field in fields)


def unread_topic_faults(settings: Settings) -> Iterator[str]:
    """Return a fault for each topic of ``topics.events`` that no input reads; the topics of all inputs are known."""
    read = {one.topic for one in settings.inputs}
    for topic in settings.topics.events if settings.inputs else ():
        if topic not in read:
            yield (
                f"topics.events names {topic}, which no [[inputs]] reads: its events would never be processed; "
                f'add [[inputs]] with topic = "{topic}"'
            )


def require_read_topics(settings: Settings) -> None:
    """Refuse inputs that leave out the topic of a bridge that runs with these settings, or read it as somebody else's.

    Raises:
        Misconfigured: ``settings_invalid``.
    """
    faults = (*unread_topic_faults(settings), *_foreign_bridge_faults(settings))
    if faults:
        raise Misconfigured("settings_invalid", faults[0], faults=faults)


def _foreign_bridge_faults(settings: Settings) -> Iterator[str]:
    """What the bridge attests would be read without a look at its attestations."""
    for one in settings.inputs:
        if one.topic == settings.topics.events[0] and not one.is_ours and "format" not in one.unreadable:
            yield (
                f"inputs[{one.number}].format is {one.format}, but {one.topic} is where the bridge writes its attested "
                "records; a good value is onceflow, or give the other records a topic of their own"
            )


def _shared_secret_faults(settings: Settings) -> Iterator[tuple[tuple[str, ...], str]]:
    """One signed event must be one event wherever it lies: no signature says in which topic, or under whose name."""
    account = settings.stripe.account
    holders: list[tuple[tuple[str, ...], str, tuple[EndpointSecret, ...], str]] = []
    if account is not None:
        holders.append(((), "stripe.webhook_secret", settings.stripe.webhook_secret, account))
    for one in settings.inputs:
        default = one.default_account or account
        names = _names(one, "secrets", "default_account")
        for other_names, other, secrets, other_default in holders if default is not None else ():
            if default != other_default and {key.secret for key in secrets} & {key.secret for key in one.secrets}:
                text = (
                    f"inputs[{one.number}].secrets has a secret that is in {other} too, and an event without an account is "
                    f"{default}'s here and {other_default}'s there, so a copied one would take effect twice; a good value "
                    "is the same default_account, or a secret of its own for each account"
                )
                yield (*names, *other_names, "stripe.account", "stripe.webhook_secret"), text
        if default is not None and one.secrets:
            holders.append((names, f"inputs[{one.number}].secrets", one.secrets, default))


def _own_faults(one: InputSettings) -> Iterator[_Fault]:
    """What cannot be meant because of the format."""
    if not one.is_ours:
        return
    for name, given in (("key", one.key == "object"), ("default_account", one.default_account is not None)):
        if given:
            yield _Fault(
                ("format",),
                f"{name} is set, but the bridge's records have their own key and account in attested headers; "
                f"leave {name} out, or set format to stripe-json, cloudevents-binary ...",
            )


def _trust_faults(one: InputSettings) -> Iterator[_Fault]:
    if (text := _trust_fault(one)) is not None:
        yield _Fault(("format", "trust"), text)
    signed = one.trust == "stripe-signature"
    if signed and not one.secrets:
        yield _Fault(
            ("trust", "secrets"), "secrets is not set, so no signature could be checked; a good value is whsec_..."
        )
    if not signed and one.secrets:
        yield _Fault(
            ("trust",),
            "secrets is set, but only trust stripe-signature looks at signatures; leave secrets out, or set trust to it",
        )
    if not signed and one.signature_header is not None:
        yield _Fault(
            ("trust",), "signature_header is set, but only trust stripe-signature looks at signatures; leave it out"
        )


def _trust_fault(one: InputSettings) -> str | None:
    """Why this format cannot be believed by this trust."""
    if one.is_ours and one.effective_trust != "attested":
        return (
            f"trust is {one.trust}, and format is onceflow, whose records are attested; a good value is attested, or "
            "set format to cloudevents-binary"
        )
    if not one.is_ours and one.trust is None:
        good = "stripe-signature" if one.format in _SIGNED_FORMATS else "transport"
        return (
            f"trust is not set, and nothing in format {one.format} proves by itself that a record is Stripe's; a good "
            f"value is {good} (transport believes whoever may write to the topic, and has to be asked for by name)"
        )
    if not one.is_ours and one.trust == "attested":
        return f"trust is attested, but only format onceflow carries attestations; {_good_trust(one)}"
    if one.trust == "stripe-signature" and one.format not in _SIGNED_FORMATS:
        return (
            f"trust is stripe-signature, but format {one.format} does not hold the bytes that Stripe signed; "
            "a good value is transport"
        )
    return None


def _good_trust(one: InputSettings) -> str:
    if one.format in _SIGNED_FORMATS:
        return "a good value is stripe-signature"
    return "a good value is transport, which believes whoever may write to the topic"


def _deployment_faults(one: InputSettings, settings: Settings) -> Iterator[_Fault]:
    stripe = settings.stripe
    served = {stripe.account, *stripe.accounts} - {None}
    if one.topic == settings.topics.outcomes:
        yield _Fault(
            ("topic",),
            f"topic is {one.topic}, which is topics.outcomes too: outcomes would be read as events; a good value is "
            "stripe.events.v1",
            ("topics.outcomes",),
        )
    if one.mode is not None and one.mode != stripe.mode:
        text = f"mode is {one.mode}, but stripe.mode is {stripe.mode}; a good value is {stripe.mode}"
        yield _Fault(("mode",), text, ("stripe.mode",))
    accounts = ("stripe.account", "stripe.accounts")
    # Without an account of the deployment nothing can be compared, and that is a fault of its own where it is needed.
    for name in one.accounts if stripe.account is not None else ():
        if name not in served:
            text = f"accounts names {name}, which this deployment does not serve; add it to stripe.accounts"
            yield _Fault(("accounts",), text, accounts)
    default = one.default_account
    if default is not None and stripe.account is not None and default not in served:
        text = f"default_account is {default}, which this deployment does not serve; add it to stripe.accounts"
        yield _Fault(("default_account",), text, accounts)
    if one.accounts and not one.is_ours and (default or stripe.account) not in (*one.accounts, None):
        yield _Fault(
            ("accounts", "format", "default_account"),
            f"accounts does not name {default or stripe.account}, whose events those are that name no account; "
            f"a good value for default_account is {one.accounts[0]}",
            accounts,
        )
