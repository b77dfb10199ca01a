"""The settings: their names, kinds, defaults and limits, and nothing about where they come from.

Rule: every value is checked here, so that a process that has started never meets an unusable one later.  The names
are contracts (``[section] name`` in the file, ``ONCEFLOW_<SECTION>_<NAME>`` outside of it).  A section or a setting
that is not named here is a fault.  ``docs/reference/settings.md`` is held against this file by a test.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, InstanceOf, SecretStr

from onceflow.attestation_settings import parse_keys, zoned_time
from onceflow.input_settings import InputSettings, attested_input
from onceflow.settings_operations import MailSettings, OperationsSettings
from onceflow.settings_reconciler import ReconcilerSettings
from onceflow.settings_retention import RetentionSettings
from onceflow.settings_section import Port, Seconds, Section, split, table
from onceflow_producer.endpoint_secrets import EndpointSecret, parse_secrets
from onceflow_producer.sizes import TOPIC_BYTES_DEFAULT
from onceflow_schemas.attestation import AttestationKey
from onceflow_schemas.failure import Misconfigured
from onceflow_schemas.identity import ACCOUNT_PATTERN
from onceflow_schemas.times import format_time

ANSWER_DEADLINE_MAX_SECONDS = 9.5
"""Stripe does not publish its timeout; ten seconds is what senders of webhooks are known to wait."""
API_VERSION = "2026-10-28.endive"
"""What the pinned SDK speaks; a test compares the two."""
_API_KEY = re.compile(r"(?:sk|rk)_(?:live|test)_[A-Za-z0-9]{1,255}")
_HANDLERS = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


def _endpoint_secrets(value: Any) -> Any:
    if not isinstance(value, str):
        raise ValueError("must be one text: a comma list of whsec_... or id=whsec_...")  # noqa: TRY004 - pydantic collects these
    try:
        return parse_secrets(value)
    except Misconfigured as failure:
        raise ValueError("\n".join(fault.removeprefix("STRIPE_WEBHOOK_SECRET: ") for fault in failure.faults)) from None


def _account(value: str) -> str:
    if not ACCOUNT_PATTERN.fullmatch(value):
        raise ValueError("is not acct_ and letters, digits, underscores")
    return value


def _api_key(value: SecretStr) -> SecretStr:
    if not _API_KEY.fullmatch(value.get_secret_value()):
        raise ValueError("is not an API key: sk_test_..., rk_test_..., sk_live_... or rk_live_...")
    return value


def _start(value: Any) -> Any:
    if value == "earliest":
        return value
    try:
        return format_time(zoned_time(value))
    except ValueError:
        raise ValueError("is neither earliest nor an RFC 3339 time with its zone") from None


def _handlers(value: str) -> str:
    if not _HANDLERS.fullmatch(value):
        raise ValueError("is not in the form module:attribute")
    return value


Account = Annotated[str, AfterValidator(_account)]
ApiKey = Annotated[SecretStr, AfterValidator(_api_key)]
TopicName = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,249}$")]


class DeploymentSettings(Section):
    """Which installation this is."""

    id: str | None = Field(
        None,
        pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$",
        examples=["payments-eu"],
        description="Name of this installation; bridge and processor must share it. Fixed at the first start.",
    )
    profile: Literal["dev", "production"] = Field(
        "production",
        description="`production` refuses unencrypted connections to other machines; `up` and `demo` are `dev`.",
    )


class StripeSettings(Section):
    """Whose events are taken."""

    account: Account | None = Field(
        None, examples=["acct_1AbCdEfGhIjKlMnO"], description="The account of events that name none (all but Connect)."
    )
    accounts: Annotated[tuple[Account, ...], BeforeValidator(split)] = Field(
        (), examples=["acct_A,acct_B"], description="Connected accounts whose events are served too."
    )
    mode: Literal["test", "live"] = Field("test", description="Which events are served; `--live` sets it to live.")
    webhook_secret: Annotated[tuple[InstanceOf[EndpointSecret], ...], BeforeValidator(_endpoint_secrets)] = Field(
        (),
        examples=["whsec_..."],
        description="Signing secrets of the endpoints: a comma list of `whsec_...` or `id=whsec_...`.",
        json_schema_extra={"secret": True},
    )
    api_key: ApiKey | None = Field(
        None,
        examples=["rk_test_..."],
        description="API key; a live one also needs the flag `--live`.",
        json_schema_extra={"secret": True},
    )
    api_keys: Annotated[dict[Account, ApiKey], BeforeValidator(table)] = Field(
        default_factory=dict,
        examples=["acct_A=rk_test_..."],
        description="One API key per account: `acct_A=rk_test_...,acct_B=...`, or a table in the file.",
        json_schema_extra={"secret": True},
    )
    api_base: str = Field(
        "https://api.stripe.com",
        pattern=r"^https?://[^/?#@\s]+/?$",
        description="Where Stripe is called; another one is for a simulator or a proxy of yours.",
    )
    api_version: str = Field(
        API_VERSION,
        pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}(\.[a-z]+)?$",
        description="The API version that new operations are frozen with.",
    )


class KafkaSettings(Section):
    """librdkafka properties by name; see ``kafka_settings`` for what is refused."""

    properties: Mapping[str, str] = Field(default_factory=dict, repr=False)
    consumer: Mapping[str, str] = Field(default_factory=dict, repr=False)
    producer: Mapping[str, str] = Field(default_factory=dict, repr=False)

    def for_consumer(self) -> dict[str, object]:
        """Return the properties of a consumer: the shared ones, overridden by those of ``[kafka.consumer]``."""
        return {**self.properties, **self.consumer}

    def for_producer(self) -> dict[str, object]:
        """Return the properties of a producer: the shared ones, overridden by those of ``[kafka.producer]``."""
        return {**self.properties, **self.producer}


class DatabaseSettings(Section):
    """Where the PostgreSQL is."""

    # The address is libpq's, to the last blank.
    model_config = ConfigDict(str_strip_whitespace=False)

    url: SecretStr = Field(
        SecretStr(""),
        examples=["postgresql://onceflow@127.0.0.1:5432/payments"],
        description="Given to libpq as it is; empty: libpq's own PG* variables.",
        json_schema_extra={"secret": True},
    )
    prepared: bool = Field(
        default=True, description="Prepared statements; `false` behind PgBouncer in transaction mode."
    )


class TopicSettings(Section):
    """The topics, and how `onceflow topics apply` makes them."""

    events: Annotated[tuple[TopicName, ...], BeforeValidator(split), Field(min_length=1, max_length=32)] = Field(
        ("stripe.events.v1",),
        description="Topics with events: the bridge writes to the first, the processor reads all.",
    )
    outcomes: TopicName = Field("stripe.outcomes.v1", description="Topic of the outcomes; one lane per partition.")
    dead_letters: TopicName | None = Field(
        None,
        examples=["stripe.deadletters.v1"],
        description="Topic to which the processor also publishes what is quarantined; unset: nowhere.",
    )
    partitions: int = Field(
        6, ge=1, le=1000, description="Partitions of a new topic; a topic keeps its count for ever."
    )
    replication_factor: int | None = Field(
        None, ge=1, le=32, examples=[3], description="Copies of a new topic; unset: 3, or fewer on fewer brokers."
    )
    min_insync_replicas: int | None = Field(
        None,
        ge=1,
        le=32,
        examples=[2],
        description="Copies that confirm a record; unset: 2 with 3 copies or more, else 1.",
    )
    retention_days: int = Field(35, ge=1, le=36_500, description="Records are kept at least so long.")
    message_bytes_max: int = Field(
        TOPIC_BYTES_DEFAULT,
        ge=65_536,
        le=104_857_600,
        description="Largest batch of records, in bytes (max.message.bytes).",
    )


class BridgeSettings(Section):
    """The webhook endpoint."""

    host: str = Field("127.0.0.1", min_length=1, description="Address to listen on; `0.0.0.0` in a container.")
    port: Port = Field(8080, description="Port to listen on; 0 takes a free one.")
    tolerance_seconds: int = Field(300, gt=0, le=3600, description="Allowed age of a signature, in both directions.")
    body_bytes_max: int = Field(
        1_040_396, ge=65_536, le=104_857_600, description="Largest body that is taken, in bytes."
    )
    read_deadline_seconds: Seconds = Field(4.0, le=9, description="A body that takes longer is answered with 408.")
    answer_deadline_seconds: Seconds = Field(
        8.0,
        le=ANSWER_DEADLINE_MAX_SECONDS,
        description="A request is answered within this time, with 503 at the worst.",
    )


class MetricsSettings(Section):
    """Where the Prometheus metrics of a service are."""

    host: str = Field("127.0.0.1", min_length=1, description="Address to listen on.")
    port: Port = Field(0, description="Port to listen on; 0 takes a free one and logs it.")


class ProcessorSettings(Section):
    """Events to effects."""

    handlers: Annotated[str, AfterValidator(_handlers)] | None = Field(
        None, examples=["shop.webhooks:handlers"], description="Your handlers, as `module:attribute`."
    )
    start: Annotated[str, BeforeValidator(_start)] = Field(
        "earliest", description="Where a partition without progress begins: `earliest` or an RFC 3339 time."
    )
    horizon_days: int = Field(35, ge=1, le=3650, description="Events older than this are quarantined as `too_old`.")
    batch_records_max: int = Field(1000, ge=1, le=100_000, description="Most records of one transaction.")
    batch_bytes_max: int = Field(
        16_777_216, ge=1_048_576, le=1_073_741_824, description="Most bytes of one transaction; one record may be more."
    )
    batch_seconds_max: Seconds = Field(5.0, le=60, description="A batch whose handlers take longer is cut here.")
    group_protocol: Literal["auto", "consumer", "classic"] = Field(
        "auto", description="Kafka's group protocol; `auto` takes `consumer` (KIP-848) where the brokers have it."
    )
    handler_deadline_seconds: Seconds = Field(10.0, le=240, description="A handler that runs longer has failed.")
    retry_wait_seconds_min: Seconds = Field(
        1.0, le=86_400, description="A parked event waits at least so long for its retry."
    )
    retry_wait_seconds_max: Seconds = Field(
        3_600.0, le=604_800, description="And at most so long, unless its handler asks for more."
    )
    retry_attempts_max: int = Field(
        30, ge=1, le=10_000, description="After so many tries from parking an event is quarantined."
    )
    read_objects: bool = Field(
        default=False,
        description="Events that need a look at Stripe (thin ones, ties, long lists of lines) wait until `operate` has read there.",
    )


class RelaySettings(Section):
    """Outcomes to the topic."""

    lease_ttl_seconds: Seconds = Field(8.0, ge=2, le=300, description="A dead relay is replaced after this time.")
    batch_records_max: int = Field(5000, ge=1, le=100_000, description="Most outcomes of one Kafka transaction.")
    poll_seconds: Seconds = Field(
        0.03, le=10, description="Pause before looking again when there was nothing to publish."
    )


class AttestationSettings(Section):
    """The keys by which the processor knows the bridge's records."""

    keys: Annotated[tuple[InstanceOf[AttestationKey], ...], BeforeValidator(parse_keys)] = Field(
        (),
        examples=["2026a=<43 characters of base64url>"],
        description="`id=secret,id2=secret2`, or tables in the file. The newest in its lifetime signs; all are accepted.",
        json_schema_extra={"secret": True},
    )


class RuntimeSettings(Section):
    """The process itself; `up` sets most of these."""

    parent_pid: int | None = Field(
        None, ge=1, examples=[4711], description="The service ends when this parent is gone."
    )
    state_file: Path | None = Field(
        None, examples=["/run/onceflow/bridge.json"], description="Where the service writes that it is ready."
    )
    cache_folder: Path | None = Field(
        None,
        examples=["/var/cache/onceflow"],
        description="Where `up` keeps the Kafka jars; unset: the user's cache folder.",
    )


class LogSettings(Section):
    """Logs go to standard error."""

    level: Literal["debug", "info", "warning", "error"] = Field("info", description="The least level that is written.")
    format: Literal["auto", "json", "console"] = Field("auto", description="`auto`: JSON lines, text on a terminal.")


class Settings(Section):
    """All settings of all commands; a command says which of them it cannot do without."""

    deployment: DeploymentSettings = DeploymentSettings()
    stripe: StripeSettings = StripeSettings()
    kafka: KafkaSettings = KafkaSettings()
    database: DatabaseSettings = DatabaseSettings()
    topics: TopicSettings = TopicSettings()
    inputs: tuple[InstanceOf[InputSettings], ...] = ()
    attestation: AttestationSettings = AttestationSettings()
    bridge: BridgeSettings = BridgeSettings()
    processor: ProcessorSettings = ProcessorSettings()
    relay: RelaySettings = RelaySettings()
    retention: RetentionSettings = RetentionSettings()
    operations: OperationsSettings = OperationsSettings()
    mail: MailSettings = MailSettings()
    reconciler: ReconcilerSettings = ReconcilerSettings()
    metrics: MetricsSettings = MetricsSettings()
    logs: LogSettings = LogSettings()
    runtime: RuntimeSettings = RuntimeSettings()

    @property
    def all_inputs(self) -> tuple[InputSettings, ...]:
        """The topics that the processor reads: ``[[inputs]]``, else those of ``topics.events``, with the bridge's records."""
        topics = enumerate(self.topics.events, start=1)
        return self.inputs or tuple(attested_input(topic, number=number) for number, topic in topics)

    @property
    def input_topics(self) -> tuple[str, ...]:
        """The names of the topics that the processor reads."""
        return tuple(one.topic for one in self.all_inputs if one.topic)


INPUTS = "inputs"
"""The one setting without a section: a list of tables in the file, JSON in the environment."""


def sections() -> dict[str, type[Section]]:
    """Return the sections by name, ``kafka`` among them."""
    found: dict[str, type[Section]] = {}
    for name, field in Settings.model_fields.items():
        if name == INPUTS:
            continue
        kind = field.annotation
        assert isinstance(kind, type), f"{name} is not a section"
        assert issubclass(kind, Section), f"{name} is not a section"
        found[name] = kind
    return found


def setting_names() -> tuple[str, ...]:
    """Return ``section.name`` of every setting but the Kafka properties, whose names are librdkafka's, and ``inputs``."""
    names = (
        f"{section}.{name}" for section, kind in sections().items() if section != "kafka" for name in kind.model_fields
    )
    return (*names, INPUTS)


def is_secret(name: str) -> bool:
    """Say whether the value of ``section.name`` must never be shown."""
    if name == INPUTS:
        return True
    section, _, field = name.partition(".")
    extra = sections()[section].model_fields[field].json_schema_extra
    return isinstance(extra, dict) and bool(extra.get("secret"))
