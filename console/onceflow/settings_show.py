"""The settings as rows that a person may see.

Rule: a secret shows that it is set, and nothing of itself; of a database address all but the passwords is shown.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from onceflow.input_settings import InputSettings
from onceflow.redaction import MASK, redacted
from onceflow.settings import LoadedSettings
from onceflow.settings_model import INPUTS, setting_names
from onceflow.settings_sources import is_secret_setting

BROKERS = "kafka.bootstrap.servers"
"""The only Kafka property that no service can do without."""

NOT_SET = "not set"


class ShownSetting(NamedTuple):
    """One row: ``value`` is masked where ``secret`` is true."""

    name: str
    value: str
    source: str
    secret: bool


def shown_settings(loaded: LoadedSettings) -> list[ShownSetting]:
    """Return a row for each setting in the order of the model, then for the Kafka properties.

    Of these only what is set is shown, and the one that must be set.

    A value that cannot be used is shown as it was given, since a person is looking for the mistake.
    """
    kafka = sorted({BROKERS, *(name for name in loaded.given if name.startswith("kafka."))})
    names = (*(name for name in setting_names() if name != INPUTS), *kafka)
    return [*(_shown(name, loaded) for name in names), *_shown_inputs(loaded)]


def _shown_inputs(loaded: LoadedSettings) -> list[ShownSetting]:
    """Return a row for each topic that is read, with what holds for it."""
    given = loaded.given.get(INPUTS)
    if given is not None and not loaded.settings.input_topics:
        return [ShownSetting(INPUTS, MASK, str(given.origin), secret=True)]
    source = "default" if given is None else str(given.origin)
    return [
        ShownSetting(f"{INPUTS}[{one.number}]", _input_text(one), source, secret=False)
        for one in loaded.settings.all_inputs
    ]


def _input_text(one: InputSettings) -> str:
    given = {
        "topic": one.topic,
        "format": one.format,
        "trust": one.effective_trust,
        "key": one.effective_key,
        "accounts": ",".join(one.accounts),
        "mode": one.mode,
        "default_account": one.default_account,
        "secrets": MASK if one.secrets else "",
        "signature_header": one.signature_header,
    }
    known = {name: "?" if name in one.unreadable else value for name, value in given.items()}
    return " ".join(f"{name}={value}" for name, value in known.items() if value)


def _shown(name: str, loaded: LoadedSettings) -> ShownSetting:
    given = loaded.given.get(name)
    secret = is_secret_setting(name)
    if given is not None:
        value, source = given.value, str(given.origin)
    elif name == BROKERS:
        return ShownSetting(name, "", NOT_SET, secret=False)
    else:
        section, _, field = name.partition(".")
        value = getattr(getattr(loaded.settings, section), field)
        value = "" if secret else value
        source = NOT_SET if value in (None, "", ()) else "default"
    if secret:
        return ShownSetting(name, _masked(name, value), source, secret=True)
    return ShownSetting(name, redacted(_text(value)), source, secret=False)


def _masked(name: str, value: Any) -> str:
    if not value:
        return ""
    return _address_without_passwords(str(value)) if name == "database.url" else MASK


def _address_without_passwords(url: str) -> str:
    """Return what libpq reads in the address, with every password masked; only the mask when it reads nothing."""
    from psycopg import ProgrammingError  # noqa: PLC0415 - only shown addresses pay for it
    from psycopg.conninfo import conninfo_to_dict  # noqa: PLC0415

    try:
        parts = conninfo_to_dict(url)
    except ProgrammingError:
        return MASK
    secret = ("password", "secret", "token")
    return " ".join(f"{key}={MASK if any(word in key for word in secret) else value}" for key, value in parts.items())


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple | list):
        return ",".join(str(part) for part in value)
    return str(value)
