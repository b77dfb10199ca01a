"""Where settings come from: turns flags, environment and files into raw values by name, each with its origin.

Rule: nothing is checked here but the names.  A name that looks like one of ours and is none is a fault, with the
name that was probably meant: a mistyped setting must not be silently without effect.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from onceflow.kafka_settings import flat_properties, is_secret_property, property_name
from onceflow.settings_model import INPUTS, is_secret, sections, setting_names

PREFIX = "ONCEFLOW_"
CONFIG_VARIABLE = "ONCEFLOW_CONFIG"
ALIASES: Mapping[str, str] = {
    "DATABASE_URL": "database.url",
    "STRIPE_WEBHOOK_SECRET": "stripe.webhook_secret",
    "STRIPE_API_KEY": "stripe.api_key",
}
"""Names that other tools use too; the one with our prefix wins over it."""

LIKENESS_MIN = 0.6
"""How much of two names must be the same for one to be taken for the other, from 0 to 1."""

EVERYTHING = ""
_FILE_SUFFIX = "_FILE"
_SERVICE_LINK = re.compile(r"_SERVICE_(?:HOST|PORT)(?:_|$)|_PORT_\d+_(?:TCP|UDP|SCTP)(?:_|$)")
_SERVICE_ADDRESS = re.compile(r"(?:tcp|udp|sctp)://")


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value came from: the kind, and the flag, the variable or the path."""

    kind: Literal["default", "file", "environment", "flag"]
    place: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.place}".strip()


@dataclass(frozen=True, slots=True)
class Given:
    """One raw value as it was found."""

    value: Any = field(repr=False)
    origin: Origin


@dataclass(slots=True)
class Found:
    """What one source gave: values by ``section.name`` or ``kafka.<property>``, and faults.

    ``blamed`` are settings that a fault is about although they have no value: ``section.name``, ``section.`` for a
    whole section, ``EVERYTHING`` for all.  That they are not set only follows from that fault.
    """

    values: dict[str, Given] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    blamed: set[str] = field(default_factory=set)


def nearest(name: str, known: Collection[str]) -> str | None:
    """Return the known name that was probably meant, None when none is near enough."""
    close = difflib.get_close_matches(name, known, n=1, cutoff=LIKENESS_MIN)
    return close[0] if close else None


def likely_setting(name: str) -> str | None:
    """Return the setting that was probably meant by ``section.name``.

    Within a section that exists only its own names count: what two names have in common must be more than the section.
    """
    section, _, field_name = name.partition(".")
    known = sections().get(section)
    if known is None:
        return nearest(name, setting_names())
    meant = nearest(field_name, known.model_fields) if section != "kafka" else None
    return None if meant is None else f"{section}.{meant}"


def did_you_mean(meant: str | None) -> str:
    """Return ``; did you mean ...?``, or nothing."""
    return "" if meant is None else f"; did you mean {meant}?"


def is_secret_setting(name: str) -> bool:
    """Say whether the value of this setting or Kafka property must never be shown."""
    if name.startswith("kafka."):
        return is_secret_property(name)
    return is_secret(name)


def variable_of(name: str) -> str:
    """Return the environment variable of ``section.name``."""
    return PREFIX + name.replace(".", "_").upper()


def from_flags(flags: Mapping[str, tuple[str, Any]]) -> Found:
    """Take the flags that were given: setting name to (flag as typed, value)."""
    found = Found()
    for name, (flag, value) in flags.items():
        if name not in setting_names() and not name.startswith("kafka."):
            meant = likely_setting(name)
            found.faults.append(f"{name} ({flag}) is not a setting{did_you_mean(meant)}")
            found.blamed |= {meant} if meant else set()
            continue
        found.values[name] = Given(value, Origin("flag", flag))
    return found


def from_table(table: Mapping[str, Any], *, place: str) -> Found:
    """Take a parsed TOML document."""
    found = Found()
    known = sections()
    for section, content in table.items():
        if section == INPUTS and isinstance(content, list):
            found.values[INPUTS] = Given(content, Origin("file", place))
        elif section == INPUTS:
            found.faults.append(f"{INPUTS} ({place}) must be a list of tables: write [[{INPUTS}]] above each topic")
            found.blamed.add(INPUTS)
        elif section not in known:
            meant = nearest(section, (*known, INPUTS))
            found.faults.append(f"[{section}] ({place}) is not a section{did_you_mean(meant)}")
            found.blamed |= {f"{meant}."} if meant else set()
        elif not isinstance(content, Mapping):
            found.faults.append(f"{section} ({place}) must be a section: write [{section}] and its settings below")
            found.blamed.add(f"{section}.")
        elif section == "kafka":
            for name, value in flat_properties(content).items():
                found.values[f"kafka.{name}"] = Given(value, Origin("file", place))
        else:
            _take_section(found, section, content=content, place=place)
    return found


def _take_section(found: Found, section: str, *, content: Mapping[str, Any], place: str) -> None:
    fields = sections()[section].model_fields
    for name, value in content.items():
        if name in fields:
            found.values[f"{section}.{name}"] = Given(value, Origin("file", place))
        else:
            meant = nearest(name, fields)
            found.faults.append(f"{section}.{name} ({place}) is not a setting{did_you_mean(meant)}")
            found.blamed |= {f"{section}.{meant}"} if meant else set()


def from_environment(environment: Mapping[str, str]) -> Found:
    """Take our variables, those of ``ALIASES``, and for secrets the same names with ``_FILE``.

    An empty variable counts as not set, as compose files and manifests pass on what they do not have.  What
    Kubernetes injects for a service called ``onceflow-...`` is left alone: ``ONCEFLOW_BRIDGE_PORT=tcp://...``.
    """
    found = Found()
    for variable in (*ALIASES, *sorted(name for name in environment if name.startswith(PREFIX))):
        if environment.get(variable, "").strip() and variable != CONFIG_VARIABLE:
            _take_variable(found, variable, value=environment[variable])
    for alias, name in ALIASES.items():
        if environment.get(alias + _FILE_SUFFIX, "").strip():
            path = environment[alias + _FILE_SUFFIX]
            _take_file(found, name, variable=alias + _FILE_SUFFIX, path=path, taken=bool(environment.get(alias)))
    return found


def _take_variable(found: Found, variable: str, *, value: str) -> None:
    if _SERVICE_LINK.search(variable) or (variable.endswith("_PORT") and _SERVICE_ADDRESS.match(value)):
        return
    name = setting_of(variable)
    if name is not None:
        # libpq's address is taken as it is; everywhere else white space around a value is an accident.
        text = value if name == "database.url" else value.strip()
        found.values[name] = Given(text, Origin("environment", variable))
        return
    base = setting_of(variable.removesuffix(_FILE_SUFFIX)) if variable.endswith(_FILE_SUFFIX) else None
    if base is not None and is_secret_setting(base):
        taken = base in found.values and found.values[base].origin.place == variable.removesuffix(_FILE_SUFFIX)
        _take_file(found, base, variable=variable, path=value, taken=taken)
        return
    section, _, rest = variable.removeprefix(PREFIX).lower().partition("_")
    meant = likely_setting(f"{section}.{rest}")
    shown = None if meant is None else variable_of(meant)
    found.faults.append(f"{variable} (environment) is not a setting{did_you_mean(shown)}")
    found.blamed |= {meant} if meant else set()


def _take_file(found: Found, name: str, *, variable: str, path: str, taken: bool) -> None:
    plain = variable.removesuffix(_FILE_SUFFIX)
    if taken:
        found.faults.append(f"{name}: both {plain} and {variable} are set; keep one of them")
        return
    if variable.startswith(PREFIX) or name not in found.values:
        try:
            text = Path(path.strip()).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            found.faults.append(f"{name}: the file {path.strip()} that {variable} names cannot be read: {reason}")
            found.blamed.add(name)
            return
        found.values[name] = Given(text, Origin("environment", variable))


def setting_of(variable: str) -> str | None:
    """Return the setting that a variable means, ``kafka.<property>`` included; None when it means none."""
    if variable in ALIASES:
        return ALIASES[variable]
    section, _, rest = variable.removeprefix(PREFIX).partition("_")
    if section == "KAFKA" and rest:
        name = property_name(rest)
        is_file = name.endswith(".file") and is_secret_property(name.removesuffix(".file"))
        return None if is_file else f"kafka.{name}"
    name = f"{section.lower()}.{rest.lower()}".removesuffix(".")
    return name if name in setting_names() else None
