"""Settings to the options of each service: explicit values, nothing that a service would have to look up itself."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from onceflow.kafka_names import processor_group, relay_group, transactional_id
from onceflow.settings_model import Settings

if TYPE_CHECKING:
    from onceflow_processor.handlers import Handlers
    from onceflow_processor.relay.service import RelayOptions
    from onceflow_processor.service import ProcessorOptions
    from onceflow_producer.options import BridgeOptions

Announce = Callable[[Mapping[str, object]], None]
"""Called once, with what a service says about itself, when it is ready."""


def owner() -> str:
    """Return a name of this process for lease and progress rows: host, process id and a random part."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"


def bridge_options(settings: Settings, *, announce: Announce | None = None) -> BridgeOptions:
    """Return the options of the bridge; every setting that it needs is set."""
    from onceflow_producer.options import BridgeOptions  # noqa: PLC0415 - each service loads its own libraries only

    assert settings.deployment.id is not None
    assert settings.stripe.account is not None
    return BridgeOptions(
        kafka=settings.kafka.for_producer(),
        topic=settings.topics.events[0],
        secrets=settings.stripe.webhook_secret,
        attestation_keys=settings.attestation.keys,
        deployment=settings.deployment.id,
        default_account=settings.stripe.account,
        default_mode=settings.stripe.mode,
        host=settings.bridge.host,
        port=settings.bridge.port,
        metrics_host=settings.metrics.host,
        metrics_port=settings.metrics.port,
        tolerance_seconds=settings.bridge.tolerance_seconds,
        body_bytes_max=settings.bridge.body_bytes_max,
        read_deadline_seconds=settings.bridge.read_deadline_seconds,
        answer_deadline_seconds=settings.bridge.answer_deadline_seconds,
        state_file=settings.runtime.state_file,
        announce=announce,
        parent_pid=settings.runtime.parent_pid,
    )


def processor_options(settings: Settings, *, handlers: Handlers, announce: Announce | None = None) -> ProcessorOptions:
    """Return the options of the processor; every setting that it needs is set."""
    from onceflow_processor.service import ProcessorOptions  # noqa: PLC0415

    assert settings.deployment.id is not None
    assert settings.stripe.account is not None
    own = settings.stripe.account
    return ProcessorOptions(
        kafka=settings.kafka.for_consumer(),
        database_url=settings.database.url.get_secret_value(),
        deployment=settings.deployment.id,
        accounts=(own, *(account for account in dict.fromkeys(settings.stripe.accounts) if account != own)),
        mode=settings.stripe.mode,
        topics=settings.topics.events,
        outcome_topic=settings.topics.outcomes,
        group=processor_group(settings.deployment.id),
        relay_group=relay_group(settings.deployment.id),
        handlers=handlers,
        attestation_keys={key.id: key for key in settings.attestation.keys},
        horizon_days=settings.processor.horizon_days,
        start=settings.processor.start,
        group_protocol=settings.processor.group_protocol,
        batch_records_max=settings.processor.batch_records_max,
        batch_bytes_max=settings.processor.batch_bytes_max,
        batch_seconds_max=settings.processor.batch_seconds_max,
        handler_deadline_seconds=settings.processor.handler_deadline_seconds,
        owner=owner(),
        metrics_host=settings.metrics.host,
        metrics_port=settings.metrics.port,
        state_file=settings.runtime.state_file,
        announce=announce,
        parent_pid=settings.runtime.parent_pid,
        prepared=settings.database.prepared,
    )


def relay_options(settings: Settings, *, announce: Announce | None = None) -> RelayOptions:
    """Return the options of the relay; every setting that it needs is set."""
    from onceflow_processor.relay.service import RelayOptions  # noqa: PLC0415

    assert settings.deployment.id is not None
    return RelayOptions(
        kafka=settings.kafka.for_producer(),
        database_url=settings.database.url.get_secret_value(),
        deployment=settings.deployment.id,
        outcome_topic=settings.topics.outcomes,
        group=relay_group(settings.deployment.id),
        transactional_id=transactional_id(settings.deployment.id, settings.topics.outcomes),
        owner=owner(),
        lease_ttl_seconds=settings.relay.lease_ttl_seconds,
        batch_records_max=settings.relay.batch_records_max,
        poll_seconds=settings.relay.poll_seconds,
        metrics_host=settings.metrics.host,
        metrics_port=settings.metrics.port,
        state_file=settings.runtime.state_file,
        announce=announce,
        parent_pid=settings.runtime.parent_pid,
        prepared=settings.database.prepared,
    )
