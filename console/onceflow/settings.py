"""The one place that reads the environment: sources in, checked settings out.

Rule: flags over environment over ``--kafka-config`` over ``onceflow.toml`` over defaults; every fault is reported at
once; each value remembers where it came from.  No other module of the product reads the environment or a settings
file (``tests/tidy`` holds that), so what a process runs with can be shown by ``onceflow config show``.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from onceflow.input_checks import unread_topic_faults
from onceflow.input_settings import InputSettings, read_inputs
from onceflow.kafka_settings import likely_property, read_properties, variable_rest
from onceflow.settings_checks import cross_faults, kafka_settings, missing_faults, needed, value_fault
from onceflow.settings_model import INPUTS, Settings
from onceflow.settings_sources import (
    ALIASES,
    CONFIG_VARIABLE,
    EVERYTHING,
    PREFIX,
    Found,
    Given,
    Origin,
    from_environment,
    from_flags,
    from_table,
    variable_of,
)
from onceflow.transport_checks import broker_faults, call_faults, database_faults
from onceflow_schemas.failure import Misconfigured

CONFIG_FILE = "onceflow.toml"
_UNREADABLE_ADDRESS = (
    "database.url (DATABASE_URL) is not an address that libpq can read (not shown, it may hold a password); "
    "a good value is postgresql://onceflow@127.0.0.1:5432/payments"
)
_LIBPQ_VARIABLES = ("PGHOST", "PGHOSTADDR", "PGSERVICE", "PGDATABASE", "PGSERVICEFILE")


@dataclass(frozen=True, slots=True)
class SettingSources:
    """What the command line said about settings.

    Args:
        flags: setting name to (flag as typed, value), such as ``{"bridge.port": ("--port", 8080)}``.
        config: the file of ``--config``; must exist when given.
        kafka_config: the file of ``--kafka-config``, in the form of ``java.util.Properties``.
        live: ``--live`` was given; also sets ``stripe.mode``.
    """

    flags: Mapping[str, tuple[str, Any]] = field(default_factory=dict)
    config: Path | None = None
    kafka_config: Path | None = None
    live: bool = False


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """Checked settings with the raw values they came from; ``faults`` is empty unless they were read leniently."""

    settings: Settings
    given: Mapping[str, Given]
    faults: tuple[str, ...] = ()


def load_settings(
    sources: SettingSources, *, needs: Collection[str] = (), environment: Mapping[str, str] | None = None
) -> LoadedSettings:
    """Read and check all settings.

    Args:
        sources: flags and files that were named on the command line.
        needs: settings that must have a value, such as ``database.url`` or ``kafka.bootstrap.servers``.
        environment: the process's own when left out.

    Raises:
        Misconfigured: ``settings_invalid`` with every fault.
    """
    loaded = read_settings(sources, needs=needs, environment=environment)
    if loaded.faults:
        count = len(loaded.faults)
        message = loaded.faults[0] if count == 1 else f"{count} settings are not usable"
        raise Misconfigured("settings_invalid", message, faults=loaded.faults)
    return loaded


def read_settings(
    sources: SettingSources,
    *,
    needs: Collection[str] = (),
    uses: Collection[str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> LoadedSettings:
    """Do what ``load_settings`` does, and return the faults: their settings have defaults then.

    Args:
        sources: as there.
        needs: as there.
        uses: settings that are looked at as closely as those of ``needs``, which they are when left out, and may be
            missing.
        environment: as there.
    """
    uses = needs if uses is None else uses
    environment = os.environ if environment is None else environment
    given, faults, blamed = _collected(sources, environment)
    kafka, kafka_faults = kafka_settings(given)
    inputs, input_faults = _inputs(given)
    settings, bad, value_faults = _validated(given)
    settings = settings.model_copy(update={"kafka": kafka, "inputs": inputs})
    faults += [*value_faults, *kafka_faults, *input_faults]
    bad |= {f"{INPUTS}[{one.number}].{name}" for one in inputs for name in one.unreadable}
    needs = needed(needs, settings)
    # Without a file that cannot be read everything else would only be guessed about.
    if EVERYTHING not in blamed:
        crossed = cross_faults(settings, live_flag=sources.live, now=datetime.now(UTC))
        libpq_is_set = any(environment.get(variable) for variable in _LIBPQ_VARIABLES)
        faults += [
            *(fault.text for fault in crossed if not bad.intersection(fault.names)),
            *_topic_faults(settings, bad=bad, given="topics.events" in given or "stripe.webhook_secret" in needs),
            *missing_faults(needs, given=given, blamed=blamed, libpq_is_set=libpq_is_set),
            *_database_faults(settings, wanted="database.url" in uses),
            *_transport_faults(settings, environment, uses=uses),
            *_client_faults(settings, given, wanted="kafka.bootstrap.servers" in uses and "kafka." not in blamed),
        ]
    return LoadedSettings(settings, given, tuple(faults))


def process_environment() -> dict[str, str]:
    """Return the environment of this process, for children that shall inherit it."""
    return dict(os.environ)


def forget_libpq_variables() -> None:
    """Take libpq's variables out of this process: they are about another database than the embedded one."""
    for name in [name for name in os.environ if name.startswith("PG")]:
        del os.environ[name]


def user_cache_folder() -> Path:
    """Return the user's cache folder for onceflow, as the XDG rules say; it need not exist."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if base.startswith("/") else Path("~/.cache").expanduser()) / "onceflow"


def environment_for_child(
    base: Mapping[str, str], given: Mapping[str, Given], *, overrides: Mapping[str, Any]
) -> dict[str, str]:
    """Return the environment that gives a child these settings and no others, whatever files lie about.

    Args:
        base: the environment to inherit; every variable that is a setting is taken out of it.
        given: the raw values of ``LoadedSettings``; its Kafka properties and database are left out.
        overrides: raw values by ``section.name`` or ``kafka.<property>``; they win.
    """
    child = {name: text for name, text in base.items() if not name.startswith(PREFIX) and name not in _OURS}
    child[CONFIG_VARIABLE] = os.devnull
    kept = {name: value.value for name, value in given.items() if not name.startswith(("kafka.", "database."))}
    for name, value in {**kept, **overrides}.items():
        if value is not None:
            variable = f"{PREFIX}KAFKA_{variable_rest(name[6:])}" if name.startswith("kafka.") else variable_of(name)
            alias = next((alias for alias, setting in ALIASES.items() if setting == name), variable)
            child[alias] = _variable_text(value)
    return child


def demo_environment() -> dict[str, str]:
    """Return the environment of a child that shall know no settings but where this user's jars are kept."""
    given = from_environment(os.environ).values
    kept = {name: value for name, value in given.items() if name == "runtime.cache_folder"}
    return environment_for_child(process_environment(), kept, overrides={})


_OURS = {*ALIASES, *(f"{alias}_FILE" for alias in ALIASES)}


def _variable_text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return ",".join(f"{name}={text}" for name, text in value.items())
    if isinstance(value, list | tuple):
        if all(isinstance(part, str) for part in value):
            return ",".join(value)
        return json.dumps(value, default=str)
    return str(value)


def _collected(sources: SettingSources, environment: Mapping[str, str]) -> tuple[dict[str, Given], list[str], set[str]]:
    """Return the raw values, the faults, and what is blamed by them (see ``Found``)."""
    flags = dict(sources.flags)
    if sources.live:
        flags["stripe.mode"] = ("--live", "live")
    found = (
        _from_file(sources.config, environment),
        _from_kafka_config(sources.kafka_config),
        from_environment(environment),
        from_flags(flags),
    )
    given: dict[str, Given] = {}
    for source in found:
        given |= source.values
    blamed = {name for source in found for name in source.blamed}
    blamed |= {f"kafka.{likely_property(name[6:])}" for name in given if name.startswith("kafka.")}
    return given, [fault for source in found for fault in source.faults], blamed


def _from_file(named: Path | None, environment: Mapping[str, str]) -> Found:
    variable = environment.get(CONFIG_VARIABLE, "").strip()
    path = named or (Path(variable) if variable else Path(CONFIG_FILE))
    if named is None and not variable and not path.exists():
        return Found()
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        return Found(faults=[f"the settings file {path} cannot be read: {error.strerror}"], blamed={EVERYTHING})
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        reason = error if isinstance(error, tomllib.TOMLDecodeError) else "it is not UTF-8 text"
        return Found(faults=[f"the settings file {path} is not TOML: {reason}"], blamed={EVERYTHING})
    return from_table(table, place=str(path))


def _from_kafka_config(path: Path | None) -> Found:
    if path is None:
        return Found()
    try:
        properties = read_properties(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        return Found(faults=[f"the file {path} of --kafka-config cannot be read: {reason}"], blamed={"kafka."})
    origin = Origin("file", str(path))
    return Found(values={f"kafka.{name}": Given(value, origin) for name, value in properties.items()})


def _topic_faults(settings: Settings, *, bad: Collection[str], given: bool) -> list[str]:
    """What reads the topics of the bridge, where both sides of the comparison could be read."""
    known = given and "topics.events" not in bad and all(one.topic for one in settings.inputs)
    return list(unread_topic_faults(settings)) if known else []


def _inputs(given: Mapping[str, Given]) -> tuple[tuple[InputSettings, ...], list[str]]:
    found = given.get(INPUTS)
    return ((), []) if found is None else read_inputs(found.value, origin=str(found.origin))


def _validated(given: Mapping[str, Given]) -> tuple[Settings, set[str], list[str]]:
    """Return the settings, the names of faulty ones (they have their defaults) and the faults."""
    tables: dict[str, dict[str, Any]] = {}
    for name, value in given.items():
        section, _, field_name = name.partition(".")
        if section not in ("kafka", INPUTS):
            tables.setdefault(section, {})[field_name] = value.value
    try:
        return Settings.model_validate(tables), set(), []
    except ValidationError as error:
        found = [value_fault(one, given) for one in error.errors(include_url=False, include_input=False)]
    bad = {name for name, _ in found}
    for name in bad:
        section, _, field_name = name.partition(".")
        tables[section].pop(field_name)
    faults = [text for _, texts in found for text in texts]
    return Settings.model_validate(tables), bad, faults


def _database_faults(settings: Settings, *, wanted: bool) -> list[str]:
    """Let libpq read the address now: its own error text repeats the address, password included."""
    url = settings.database.url.get_secret_value()
    if not wanted or not url:
        return []
    from psycopg import ProgrammingError  # noqa: PLC0415 - only commands that use the database pay for it
    from psycopg.conninfo import conninfo_to_dict  # noqa: PLC0415

    try:
        conninfo_to_dict(url)
    except ProgrammingError:
        return [_UNREADABLE_ADDRESS]
    return []


def _transport_faults(settings: Settings, environment: Mapping[str, str], *, uses: Collection[str]) -> list[str]:
    """Of Kafka and database only what the command uses is looked at; the way of calls and mail whoever reads the settings."""
    if settings.deployment.profile != "production":
        return []
    mail = settings.mail
    faults = call_faults(api_base=settings.stripe.api_base, mail_host=mail.host, mail_security=mail.security)
    faults += broker_faults(settings.kafka) if "kafka.bootstrap.servers" in uses else []
    url = settings.database.url.get_secret_value()
    if "database.url" in uses and not _database_faults(settings, wanted=True):
        from psycopg.conninfo import conninfo_to_dict  # noqa: PLC0415 - only commands that use the database pay for it

        faults += database_faults(conninfo_to_dict(url), environment=environment)
    return faults


def _client_faults(settings: Settings, given: Mapping[str, Given], *, wanted: bool) -> list[str]:
    if not wanted:
        return []
    from onceflow.kafka_probe import probe_faults  # noqa: PLC0415 - only commands that use Kafka load its client

    return probe_faults(settings, given)
