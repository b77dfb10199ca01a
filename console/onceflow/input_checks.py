"""What contradicts what in ``[[inputs]]``.

Rule: a trust rule that would let anybody forge events is taken only when it is asked for by its name, and a table that
says two things that cannot both be meant is refused at start.  Pure; every fault is returned.
"""

from __future__ import annotations

from collections.abc import Iterator

from onceflow.input_settings import InputSettings
from onceflow.settings_model import Settings
from onceflow_schemas.failure import Misconfigured

_SIGNED_FORMATS = ("stripe-json", "cloudevents-binary")
"""Those whose value is byte for byte what Stripe signed."""
_NAMES = ("stripe.account", "stripe.accounts", "stripe.mode", "topics.events", "topics.outcomes")


def input_faults(settings: Settings) -> Iterator[tuple[tuple[str, ...], str]]:
    """Return the faults, each with the settings that must be fine by themselves first."""
    seen: dict[str, int] = {}
    for one in settings.inputs:
        for text in (*_own_faults(one), *_trust_faults(one)):
            yield (), f"inputs[{one.number}].{text}"
        for text in _deployment_faults(one, settings):
            yield _NAMES, f"inputs[{one.number}].{text}"
        if one.topic in seen:
            first = seen[one.topic]
            yield (), f"inputs[{one.number}].topic is {one.topic}, which inputs[{first}] has too: keep one of them"
        seen.setdefault(one.topic, one.number)


def unread_topic_faults(settings: Settings, *, given: bool) -> Iterator[str]:
    """Return a fault for each topic of ``topics.events`` that no input reads.

    Args:
        settings: with inputs.
        given: ``topics.events`` was set by somebody, or the bridge runs with these settings and writes there.
    """
    read = {one.topic for one in settings.inputs}
    for topic in settings.topics.events if given and settings.inputs else ():
        if topic not in read:
            yield (
                f"topics.events names {topic}, which no [[inputs]] reads: its events would never be processed; "
                f'add [[inputs]] with topic = "{topic}"'
            )


def require_read_topics(settings: Settings) -> None:
    """Refuse inputs that leave out the topic of a bridge that runs with these settings.

    Raises:
        Misconfigured: ``settings_invalid``.
    """
    faults = tuple(unread_topic_faults(settings, given=True))
    if faults:
        raise Misconfigured("settings_invalid", faults[0], faults=faults)


def _own_faults(one: InputSettings) -> Iterator[str]:
    """What cannot be meant because of the format."""
    if not one.is_ours:
        return
    for name, given in (("key", one.key == "object"), ("default_account", one.default_account is not None)):
        if given:
            yield (
                f"{name} is set, but the bridge's records have their own key and account in attested headers; "
                f"leave {name} out, or set format to stripe-json, cloudevents-binary ..."
            )


def _trust_faults(one: InputSettings) -> Iterator[str]:
    if one.is_ours and one.effective_trust != "attested":
        yield (
            f"trust is {one.trust}, and format is onceflow, whose records are attested; a good value is attested, or "
            "set format to cloudevents-binary"
        )
    elif not one.is_ours and one.trust is None:
        good = "stripe-signature" if one.format in _SIGNED_FORMATS else "transport"
        yield (
            f"trust is not set, and nothing in format {one.format} proves by itself that a record is Stripe's; a good "
            f"value is {good} (transport believes whoever may write to the topic, and has to be asked for by name)"
        )
    elif not one.is_ours and one.trust == "attested":
        yield f"trust is attested, but only format onceflow carries attestations; {_good_trust(one)}"
    elif one.trust == "stripe-signature" and one.format not in _SIGNED_FORMATS:
        yield (
            f"trust is stripe-signature, but format {one.format} does not hold the bytes that Stripe signed; "
            "a good value is transport"
        )
    signed = one.trust == "stripe-signature"
    if signed and not one.secrets:
        yield "secrets is not set, so no signature could be checked; a good value is whsec_..."
    if not signed and one.secrets:
        yield "secrets is set, but only trust stripe-signature looks at signatures; leave secrets out, or set trust to it"
    if not signed and one.signature_header is not None:
        yield "signature_header is set, but only trust stripe-signature looks at signatures; leave it out"


def _good_trust(one: InputSettings) -> str:
    if one.format in _SIGNED_FORMATS:
        return "a good value is stripe-signature"
    return "a good value is transport, which believes whoever may write to the topic"


def _deployment_faults(one: InputSettings, settings: Settings) -> Iterator[str]:
    stripe = settings.stripe
    served = {stripe.account, *stripe.accounts} - {None}
    if one.topic == settings.topics.outcomes:
        yield (
            f"topic is {one.topic}, which is topics.outcomes too: outcomes would be read as events; a good value is "
            "stripe.events.v1"
        )
    if one.mode is not None and one.mode != stripe.mode:
        yield f"mode is {one.mode}, but stripe.mode is {stripe.mode}; a good value is {stripe.mode}"
    # Without an account of the deployment nothing can be compared, and that is a fault of its own where it is needed.
    for name in one.accounts if stripe.account is not None else ():
        if name not in served:
            yield f"accounts names {name}, which this deployment does not serve; add it to stripe.accounts"
    default = one.default_account
    if default is not None and stripe.account is not None and default not in served:
        yield f"default_account is {default}, which this deployment does not serve; add it to stripe.accounts"
    if one.accounts and not one.is_ours and (default or stripe.account) not in (*one.accounts, None):
        yield (
            f"accounts does not name {default or stripe.account}, whose events those are that name no account; "
            f"a good value for default_account is {one.accounts[0]}"
        )
