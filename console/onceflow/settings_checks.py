"""Rules about settings that no single field can know, and the texts of faults.

Rule: a fault names the setting, where the value came from, what is wrong and a good value; it never repeats a
secret.  All functions are pure, and return every fault instead of the first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from onceflow.input_checks import input_faults
from onceflow.kafka_settings import property_fault, property_text
from onceflow.redaction import MASK, redacted
from onceflow.settings_model import KafkaSettings, Settings, sections
from onceflow.settings_sources import ALIASES, Given, is_secret_setting, variable_of
from onceflow_processor.retention.needs import TopicAge, decide
from onceflow_producer.signing_key import signing_key
from onceflow_producer.sizes import RECORD_OVERHEAD_BYTES

SHOWN_CHARACTERS_MAX = 60
RELAY_POLLS_PER_LEASE_MIN = 10

_LIVE_PREFIXES = ("sk_live_", "rk_live_")
_TEST_PREFIXES = ("sk_test_", "rk_test_")


class CrossFault(NamedTuple):
    """A fault of several settings together; ``names`` are those that must be valid by themselves first."""

    names: tuple[str, ...]
    text: str


def value_fault(error: Mapping[str, Any], given: Mapping[str, Given]) -> tuple[str, list[str]]:
    """Return the setting that one error of pydantic is about, and its faults as texts.

    Args:
        error: an entry of ``ValidationError.errors()``.
        given: the raw values, for their origins.
    """
    name = ".".join(str(part) for part in error["loc"][:2])
    reason = error["ctx"]["error"] if error["type"] == "value_error" else error["msg"]
    found = given.get(name)
    place = f" ({found.origin})" if found is not None else ""
    shown = ""
    if found is not None and not is_secret_setting(name):
        shown = f" (it is {redacted(repr(found.value))[:SHOWN_CHARACTERS_MAX]})"
    inner = "".join(f" [{part}]" for part in error["loc"][2:])
    texts = [_lower_first(redacted(line)) for line in str(reason).splitlines()]
    return name, [f"{name}{inner}{place}: {text}{shown}; {good_value(name)}" for text in texts]


def good_value(name: str) -> str:
    """Return ``a good value is ...`` for a setting."""
    section, _, field_name = name.partition(".")
    field = sections()[section].model_fields[field_name]
    if field.examples:
        return f"a good value is {field.examples[0]}"
    default = ",".join(field.default) if isinstance(field.default, tuple) else field.default
    return f"a good value is {str(default).lower() if isinstance(default, bool) else default}"


def needed(needs: Collection[str], settings: Settings) -> tuple[str, ...]:
    """Return what a command cannot do without: keys of attestations only where records with attestations are read."""
    bridge = "stripe.webhook_secret" in needs
    foreign_only = not any(one.is_ours for one in settings.all_inputs)
    return tuple(name for name in needs if bridge or not foreign_only or name != "attestation.keys")


def missing_faults(
    needs: Collection[str], *, given: Collection[str], blamed: Collection[str], libpq_is_set: bool
) -> list[str]:
    """Return a fault for each setting that the command needs and nobody gave.

    Args:
        needs: names of settings, or ``kafka.<property>``.
        given: the names that have a value.
        blamed: names, and sections with their dot, that another fault is about already.
        libpq_is_set: libpq's own variables say where the database is.
    """
    faults = []
    for name in needs:
        if name in given or (name == "database.url" and libpq_is_set):
            continue
        if name in blamed or f"{name.partition('.')[0]}." in blamed:
            continue
        variable = next((alias for alias, setting in ALIASES.items() if setting == name), variable_of(name))
        good = "a good value is 127.0.0.1:9092" if name == "kafka.bootstrap.servers" else good_value(name)
        faults.append(f"{name} is not set: set {variable}, or {_in_file(name)} in onceflow.toml; {good}")
    return faults


def kafka_settings(given: Mapping[str, Given]) -> tuple[KafkaSettings, list[str]]:
    """Sort the Kafka properties by role, without those that may not be set, and return what is wrong with them."""
    tables: dict[str, dict[str, str]] = {"properties": {}, "consumer": {}, "producer": {}}
    faults: list[str] = []
    for name, value in given.items():
        if not name.startswith("kafka."):
            continue
        text = property_text(value.value)
        fault = "must be a text, a number or true or false" if text is None else property_fault(name[6:], text)
        if name == "kafka.bootstrap.servers" and text == "":
            fault = "is empty; a good value is 127.0.0.1:9092"
        if fault is not None or text is None:
            faults.append(f"{name} ({value.origin}): {fault}")
            continue
        role, _, rest = name[6:].partition(".")
        if role in ("consumer", "producer"):
            tables[role][rest] = text
        else:
            tables["properties"][name[6:]] = text
    return KafkaSettings(**tables), faults


def cross_faults(settings: Settings, *, live_flag: bool, now: datetime) -> Iterator[CrossFault]:
    """Return what is wrong between settings that are fine by themselves.

    Args:
        settings: with defaults in the place of faulty values.
        live_flag: ``--live`` was given.
        now: for the lifetimes of attestation keys.
    """
    for rule in _RULES:
        yield from rule(settings)
    yield from _api_key_faults(settings, live_flag=live_flag)
    if settings.attestation.keys and signing_key(settings.attestation.keys, now) is None:
        yield CrossFault(
            ("attestation.keys",),
            "attestation.keys: no key is in its lifetime now, so nothing could be signed; add one without retired_at",
        )


def _retention_rule(settings: Settings) -> Iterator[CrossFault]:
    kept, horizon = settings.topics.retention_days, settings.processor.horizon_days
    if kept < horizon:
        yield CrossFault(
            ("topics.retention_days", "processor.horizon_days"),
            f"topics.retention_days is {kept}, shorter than processor.horizon_days = {horizon}: "
            f"records would be gone that could still be replayed; a good value is {horizon}",
        )


def _marker_rule(settings: Settings) -> Iterator[CrossFault]:
    """What the settings alone tell; how long other people's topics keep records is asked by the relay at its start."""
    days = settings.topics.retention_days
    own = TopicAge(f"a topic (topics.retention_days = {days})", days)
    wishes = settings.retention.wishes(horizon_days=settings.processor.horizon_days)
    names = ("retention.markers_days", "retention.outcomes_days", "processor.horizon_days", "topics.retention_days")
    for fault in decide(wishes, events=[own], outcomes=own).faults:
        yield CrossFault(names, fault)


def _retry_rule(settings: Settings) -> Iterator[CrossFault]:
    least, most = settings.processor.retry_wait_seconds_min, settings.processor.retry_wait_seconds_max
    if least > most:
        yield CrossFault(
            ("processor.retry_wait_seconds_min", "processor.retry_wait_seconds_max"),
            f"processor.retry_wait_seconds_min is {least:g}, more than processor.retry_wait_seconds_max = {most:g}: "
            f"a good maximum is {max(3_600.0, least):g}",
        )


def _size_rule(settings: Settings) -> Iterator[CrossFault]:
    body, topic = settings.bridge.body_bytes_max, settings.topics.message_bytes_max
    if body + RECORD_OVERHEAD_BYTES > topic:
        yield CrossFault(
            ("bridge.body_bytes_max", "topics.message_bytes_max"),
            f"bridge.body_bytes_max is {body}, but a body needs {RECORD_OVERHEAD_BYTES} bytes for key and headers "
            f"below topics.message_bytes_max = {topic}; a good value is {topic - RECORD_OVERHEAD_BYTES}",
        )


def _topic_rule(settings: Settings) -> Iterator[CrossFault]:
    topics = settings.topics
    if topics.outcomes in topics.events:
        yield CrossFault(
            ("topics.outcomes", "topics.events"),
            f"topics.outcomes is {topics.outcomes}, which is an event topic too: outcomes would be read as events; the "
            "two need topics of their own, such as stripe.events.v1 and stripe.outcomes.v1",
        )
    if topics.dead_letters is not None and topics.dead_letters in (
        *settings.input_topics,
        *topics.events,
        topics.outcomes,
    ):
        yield CrossFault(
            ("topics.dead_letters", "topics.events", "topics.outcomes"),
            f"topics.dead_letters is {topics.dead_letters}, which is read or written for something else: dead letters need a "
            "topic of their own, such as stripe.deadletters.v1",
        )
    if len(set(topics.events)) != len(topics.events):
        yield CrossFault(("topics.events",), "topics.events names a topic twice; a good value is stripe.events.v1")


def _input_rule(settings: Settings) -> Iterator[CrossFault]:
    for names, text in input_faults(settings):
        yield CrossFault(names, text)


def _replica_rule(settings: Settings) -> Iterator[CrossFault]:
    copies, confirm = settings.topics.replication_factor, settings.topics.min_insync_replicas
    if copies is not None and confirm is not None and confirm > copies:
        yield CrossFault(
            ("topics.replication_factor", "topics.min_insync_replicas"),
            f"topics.min_insync_replicas is {confirm}, more than topics.replication_factor = {copies}: "
            f"nothing could ever be written; a good value is {max(copies - 1, 1)}",
        )


def _deadline_rule(settings: Settings) -> Iterator[CrossFault]:
    read, answer = settings.bridge.read_deadline_seconds, settings.bridge.answer_deadline_seconds
    if read >= answer:
        yield CrossFault(
            ("bridge.read_deadline_seconds", "bridge.answer_deadline_seconds"),
            f"bridge.read_deadline_seconds is {read:g}, not shorter than bridge.answer_deadline_seconds = {answer:g}: "
            "nothing would be left for Kafka; good values are 4 and 8",
        )


def _lease_rule(settings: Settings) -> Iterator[CrossFault]:
    lease, poll = settings.relay.lease_ttl_seconds, settings.relay.poll_seconds
    if lease < poll * RELAY_POLLS_PER_LEASE_MIN:
        yield CrossFault(
            ("relay.lease_ttl_seconds", "relay.poll_seconds"),
            f"relay.lease_ttl_seconds is {lease}, shorter than {RELAY_POLLS_PER_LEASE_MIN} x relay.poll_seconds = "
            f"{poll * RELAY_POLLS_PER_LEASE_MIN:g}: the lease would run out between two looks; a good value is "
            f"{max(8.0, poll * RELAY_POLLS_PER_LEASE_MIN):g}",
        )


_RULES: tuple[Callable[[Settings], Iterator[CrossFault]], ...] = (
    _retention_rule,
    _retry_rule,
    _marker_rule,
    _size_rule,
    _topic_rule,
    _input_rule,
    _replica_rule,
    _deadline_rule,
    _lease_rule,
)


def _api_key_faults(settings: Settings, *, live_flag: bool) -> Iterator[CrossFault]:
    stripe = settings.stripe
    keys = {"stripe.api_key": stripe.api_key} if stripe.api_key is not None else {}
    keys |= {f"stripe.api_keys.{account}": key for account, key in stripe.api_keys.items()}
    for name, key in keys.items():
        setting = ".".join(name.split(".")[:2])
        text = key.get_secret_value()
        if text.startswith(_LIVE_PREFIXES) and stripe.mode == "test":
            yield CrossFault(
                (setting, "stripe.mode"),
                f"{name} is a live key ({text[:8]}{MASK}) and stripe.mode is test; use a test key, or give --live",
            )
        elif text.startswith(_LIVE_PREFIXES) and not live_flag:
            yield CrossFault(
                (setting,), f"{name} is a live key ({text[:8]}{MASK}): real money moves only with the flag --live"
            )
        elif text.startswith(_TEST_PREFIXES) and stripe.mode == "live":
            yield CrossFault(
                (setting, "stripe.mode"),
                f"{name} is a test key ({text[:8]}{MASK}) and stripe.mode is live; use a live key",
            )


def _in_file(name: str) -> str:
    section, _, field = name.partition(".")
    return f'[{section}] "{field}"' if section == "kafka" else f"[{section}] {field}"


def _lower_first(text: str) -> str:
    return text[:1].lower() + text[1:]
