"""What a bridge is told, and the faults that keep it from starting.

Rule: a setting that cannot work is refused at start, all faults at once, with a good value named.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from onceflow_producer.connection import CONNECTIONS_MAX
from onceflow_producer.endpoint_secrets import EndpointSecret
from onceflow_producer.kafka_properties import message_timeout_ms, producer_properties
from onceflow_producer.publisher import IN_FLIGHT_MAX
from onceflow_producer.rate import RatePolicy
from onceflow_producer.signing_key import signing_key
from onceflow_producer.sizes import BODY_BYTES_MAX_DEFAULT
from onceflow_schemas.attestation import AttestationKey
from onceflow_schemas.failure import Misconfigured

ANSWER_DEADLINE_MAX_SECONDS = 9.5
"""Stripe does not publish its timeout; ten seconds is what senders of webhooks are known to wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BridgeOptions:
    """Everything that a bridge is told; sizes in bytes, times in seconds.

    Attributes:
        kafka: librdkafka properties, ``bootstrap.servers`` among them.
        topic: the event topic; it must exist.
        secrets: signing secrets of the endpoints, as ``parse_secrets`` gives them.
        attestation_keys: the newest one in its lifetime signs.
        deployment: id of the deployment, the same as the processor's.
        default_account: account of events that name none.
        default_mode: stands in for an unusable ``livemode``.
        host, port: where to listen; port 0 takes a free one.
        metrics_host, metrics_port: where the metrics are served; port 0 takes a free one.
        tolerance_seconds: how far a signed time may lie in the past or in the future.
        body_bytes_max: a larger body is answered with 413.
        body_budget_bytes: all bodies in memory together.
        read_deadline_seconds: a body that takes longer is answered with 408.
        answer_deadline_seconds: by then each request has an answer, 503 at the worst.
        in_flight_max: events that wait for the broker at once.
        connections_max: open connections; one more is closed at once.
        invalid_rate: how many invalid requests per client address are answered in full.
        state_file: where ``{"pid", "url", "metrics_url"}`` is written when ready.
        announce: called with the same when ready.
        parent_pid: stop when this process is no longer our parent.
    """

    kafka: Mapping[str, object] = field(repr=False)
    topic: str
    secrets: tuple[EndpointSecret, ...]
    attestation_keys: tuple[AttestationKey, ...]
    deployment: str
    default_account: str
    default_mode: Literal["live", "test"]
    host: str = "127.0.0.1"
    port: int = 0
    metrics_host: str = "127.0.0.1"
    metrics_port: int = 0
    tolerance_seconds: int = 300
    body_bytes_max: int = BODY_BYTES_MAX_DEFAULT
    body_budget_bytes: int = 134_217_728
    read_deadline_seconds: float = 4.0
    answer_deadline_seconds: float = 8.0
    in_flight_max: int = IN_FLIGHT_MAX
    connections_max: int = CONNECTIONS_MAX
    invalid_rate: RatePolicy = field(default_factory=RatePolicy)
    state_file: Path | None = None
    announce: Callable[[Mapping[str, object]], None] | None = None
    parent_pid: int | None = None

    @property
    def message_timeout_ms(self) -> int:
        """After this long the client gives a record up."""
        return message_timeout_ms(self.answer_deadline_seconds)


def check_options(options: BridgeOptions, *, now: datetime | None = None) -> None:
    """Refuse options that cannot work.

    Args:
        options: to be checked.
        now: this moment, aware; the clock's when left out.

    Raises:
        Misconfigured: ``settings_invalid`` with every fault.
    """
    faults = [*_faults(options, datetime.now(UTC) if now is None else now), *_kafka_faults(options)]
    if faults:
        raise Misconfigured("settings_invalid", "; ".join(faults), faults=tuple(faults))


def _faults(options: BridgeOptions, now: datetime) -> list[str]:
    rules = (
        (bool(options.secrets), "there is no webhook secret; set STRIPE_WEBHOOK_SECRET"),
        (options.tolerance_seconds > 0, "the tolerance of signed times must be above 0 s; 300 is good"),
        (
            0 < options.read_deadline_seconds < options.answer_deadline_seconds <= ANSWER_DEADLINE_MAX_SECONDS,
            f"the deadlines must rise: 0 s, reading, answering, {ANSWER_DEADLINE_MAX_SECONDS} s; 4 and 8 are good",
        ),
        (
            signing_key(options.attestation_keys, now) is not None,
            "no attestation key may sign now; add one whose lifetime has begun and not ended",
        ),
        (
            0 < options.body_bytes_max <= options.body_budget_bytes,
            "the body limit must be above 0 and within the budget for all bodies",
        ),
        (options.in_flight_max > 0, "the number of events in flight must be above 0; 4096 is good"),
        (options.connections_max > 0, "the number of connections must be above 0; 1000 is good"),
        (
            options.invalid_rate.per_second > 0 and options.invalid_rate.burst > 0,
            "the rate of invalid requests must be above 0; 10 per second is good",
        ),
    )
    return [text for holds, text in rules if not holds]


def _kafka_faults(options: BridgeOptions) -> tuple[str, ...]:
    faults: tuple[str, ...] = ()
    if "bootstrap.servers" not in options.kafka:
        faults = ("kafka property bootstrap.servers is missing",)
    try:
        producer_properties(options.kafka, record_bytes_max=1, message_timeout_ms=1)
    except Misconfigured as refused:
        faults += refused.faults
    return faults
