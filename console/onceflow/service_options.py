"""Settings to the options of each service: explicit values, nothing that a service would have to look up itself."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING

from onceflow.kafka_names import processor_group, reconciler_group, relay_group, transactional_id
from onceflow.settings_model import Settings
from onceflow_schemas.failure import Misconfigured
from onceflow_schemas.failure_course import RetryRules

if TYPE_CHECKING:
    from onceflow.input_settings import InputSettings
    from onceflow_processor.handlers import Handlers
    from onceflow_processor.inputs.input_topic import InputTopic
    from onceflow_processor.operations.senders.mail_sender import MailServer
    from onceflow_processor.operations.senders.sender import Sender
    from onceflow_processor.operations.senders.stripe_gateway import StripeAccess
    from onceflow_processor.operations.service import OperatorOptions
    from onceflow_processor.reads.stripe_reads import StripeReads
    from onceflow_processor.relay.service import RelayOptions
    from onceflow_processor.service import ProcessorOptions
    from onceflow_producer.options import BridgeOptions
    from onceflow_reconciler.options import ReconcilerOptions
    from onceflow_schemas.operations.limits import Limits

LIVE_REQUESTS_PER_SECOND = 80
TEST_REQUESTS_PER_SECOND = 20
"""Stripe's limits of an account are 100 and 25; the rest is left to others with the same account."""

LIVE_RECONCILER_PER_SECOND = 20
TEST_RECONCILER_PER_SECOND = 10
"""Stripe lets an account read one kind of list 25 times a second; live traffic comes first."""

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
    from onceflow_processor.failures.dead_letter_duty import DeadLetterOptions  # noqa: PLC0415
    from onceflow_processor.service import ProcessorOptions  # noqa: PLC0415

    assert settings.deployment.id is not None
    assert settings.stripe.account is not None
    return ProcessorOptions(
        kafka=settings.kafka.for_consumer(),
        database_url=settings.database.url.get_secret_value(),
        deployment=settings.deployment.id,
        accounts=_accounts(settings),
        mode=settings.stripe.mode,
        topics=settings.input_topics,
        inputs=tuple(input_topic(one, settings) for one in settings.inputs),
        outcome_topic=settings.topics.outcomes,
        group=processor_group(settings.deployment.id),
        relay_group=relay_group(settings.deployment.id),
        handlers=handlers,
        attestation_keys={key.id: key for key in settings.attestation.keys},
        horizon_days=settings.processor.horizon_days,
        start=settings.processor.start,
        group_protocol=settings.processor.group_protocol,
        api_version=settings.stripe.api_version,
        read_objects=settings.processor.read_objects,
        batch_records_max=settings.processor.batch_records_max,
        batch_bytes_max=settings.processor.batch_bytes_max,
        batch_seconds_max=settings.processor.batch_seconds_max,
        handler_deadline_seconds=settings.processor.handler_deadline_seconds,
        retry=RetryRules(
            wait_seconds_min=settings.processor.retry_wait_seconds_min,
            wait_seconds_max=settings.processor.retry_wait_seconds_max,
            attempts_max=settings.processor.retry_attempts_max,
        ),
        owner=owner(),
        metrics_host=settings.metrics.host,
        metrics_port=settings.metrics.port,
        state_file=settings.runtime.state_file,
        announce=announce,
        parent_pid=settings.runtime.parent_pid,
        prepared=settings.database.prepared,
        dead_letters=None
        if settings.topics.dead_letters is None
        else DeadLetterOptions(
            kafka=settings.kafka.for_producer(),
            topic=settings.topics.dead_letters,
            deployment=settings.deployment.id,
            database_url=settings.database.url.get_secret_value(),
            prepared=settings.database.prepared,
        ),
    )


def input_topic(one: InputSettings, settings: Settings) -> InputTopic:
    """Return what one input carries, with what the deployment's settings say where its table says nothing."""
    from onceflow_processor.inputs.input_topic import SIGNATURE_HEADER, InputTopic  # noqa: PLC0415

    assert settings.stripe.account is not None
    return InputTopic(
        topic=one.topic,
        format=one.format,
        trust=one.effective_trust,
        key=one.effective_key,
        accounts=frozenset(one.accounts) or None,
        default_account=one.default_account or settings.stripe.account,
        secrets=one.secrets,
        signature_header=one.signature_header or SIGNATURE_HEADER,
    )


def relay_options(settings: Settings, *, announce: Announce | None = None) -> RelayOptions:
    """Return the options of the relay; every setting that it needs is set."""
    from onceflow_processor.relay.service import RelayOptions  # noqa: PLC0415

    assert settings.deployment.id is not None
    return RelayOptions(
        event_topics=settings.input_topics,
        retention=settings.retention.wishes(horizon_days=settings.processor.horizon_days),
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


def operator_options(settings: Settings, *, handlers: Handlers, announce: Announce | None = None) -> OperatorOptions:
    """Return the options of the workers of operations; every setting that they need is set.

    Raises:
        Misconfigured: ``settings_invalid``: an account has no API key.
    """
    from onceflow_processor.operations.service import OperatorOptions  # noqa: PLC0415

    assert settings.deployment.id is not None
    given = settings.operations
    default_rate = LIVE_REQUESTS_PER_SECOND if settings.stripe.mode == "live" else TEST_REQUESTS_PER_SECOND
    return OperatorOptions(
        kafka=settings.kafka.for_consumer(),
        database_url=settings.database.url.get_secret_value(),
        deployment=settings.deployment.id,
        accounts=_accounts(settings),
        mode=settings.stripe.mode,
        outcome_topic=settings.topics.outcomes,
        relay_group=relay_group(settings.deployment.id),
        handlers=handlers,
        senders=senders(settings),
        reads=stripe_reads(settings),
        owner=owner(),
        concurrency=given.concurrency,
        lease_seconds=given.lease_seconds,
        api_version=settings.stripe.api_version,
        requests_per_second=given.requests_per_second or default_rate,
        burst=given.burst,
        limits=operation_limits(settings),
        poll_seconds=given.poll_seconds,
        callback_deadline_seconds=given.callback_deadline_seconds,
        metrics_host=settings.metrics.host,
        metrics_port=settings.metrics.port,
        state_file=settings.runtime.state_file,
        announce=announce,
        parent_pid=settings.runtime.parent_pid,
        prepared=settings.database.prepared,
    )


def reconciler_options(settings: Settings, *, announce: Announce | None = None) -> ReconcilerOptions:
    """Return the options of the reconciler; every setting that it needs is set.

    Raises:
        Misconfigured: ``settings_invalid``: an account has no API key.
    """
    from onceflow_reconciler.options import ReconcilerOptions  # noqa: PLC0415
    from onceflow_reconciler.slices import SliceRules  # noqa: PLC0415

    assert settings.deployment.id is not None
    given, times = settings.reconciler, _call_times(settings)
    default_rate = LIVE_RECONCILER_PER_SECOND if settings.stripe.mode == "live" else TEST_RECONCILER_PER_SECOND
    return ReconcilerOptions(
        kafka=settings.kafka.for_producer(),
        database_url=settings.database.url.get_secret_value(),
        deployment=settings.deployment.id,
        accounts=_accounts(settings),
        mode=settings.stripe.mode,
        topic=settings.topics.events[0],
        event_topics=tuple(settings.input_topics),
        inputs=tuple(input_topic(one, settings) for one in settings.inputs),
        group=reconciler_group(settings.deployment.id),
        accesses=accesses(settings),
        api_base=settings.stripe.api_base,
        api_version=settings.stripe.api_version,
        attestation_keys=settings.attestation.keys,
        requests_per_second=given.requests_per_second or default_rate,
        rules=SliceRules(overlap_seconds=60 * given.overlap_minutes, grace_seconds=given.grace_seconds),
        first_seconds=3600 * given.first_hours,
        ledger_seconds=60 * given.ledger_minutes,
        findings_days=settings.retention.findings_days,
        cycle_seconds=given.cycle_seconds,
        lease_ttl_seconds=given.lease_seconds,
        owner=owner(),
        metrics_host=settings.metrics.host,
        metrics_port=settings.metrics.port,
        state_file=settings.runtime.state_file,
        announce=announce,
        parent_pid=settings.runtime.parent_pid,
        prepared=settings.database.prepared,
        connect_seconds=times["connect_seconds"],
        total_seconds=times["total_seconds"],
    )


def operation_limits(settings: Settings) -> Limits:
    """Return the times by which operations are decided."""
    from onceflow_schemas.operations.limits import Limits  # noqa: PLC0415

    given = settings.operations
    return Limits(
        safe_window=timedelta(hours=given.safe_window_hours),
        absence_wait=timedelta(minutes=given.absence_wait_minutes),
        action_wait=timedelta(minutes=given.action_minutes),
        action_wait_off_session=timedelta(minutes=given.action_off_session_minutes),
    )


def senders(settings: Settings) -> dict[str, Sender]:
    """Return what makes the calls, by kind; mail only where a server is set.

    Raises:
        Misconfigured: ``settings_invalid``: an account has no API key.
    """
    from onceflow_processor.operations.senders.http_sender import HttpSender  # noqa: PLC0415
    from onceflow_processor.operations.senders.mail_sender import MailSender  # noqa: PLC0415
    from onceflow_processor.operations.senders.stripe_gateway import StripeGateway  # noqa: PLC0415

    server, times = mail_server(settings), _call_times(settings)
    credentials = {name: secret.get_secret_value() for name, secret in settings.operations.credentials.items()}
    made: dict[str, Sender] = {
        "stripe": StripeGateway(accesses(settings), api_base=settings.stripe.api_base, **times),
        "http": HttpSender(credentials=credentials, **times),
    }
    if server is not None:
        made["mail"] = MailSender(server, **times)
    return made


def stripe_reads(settings: Settings) -> StripeReads:
    """Return what reads at Stripe for events that wait for it.

    Raises:
        Misconfigured: ``settings_invalid``: an account has no API key.
    """
    from onceflow_processor.reads.stripe_reads import StripeReads  # noqa: PLC0415

    return StripeReads(
        accesses(settings),
        api_base=settings.stripe.api_base,
        api_version=settings.stripe.api_version,
        **_call_times(settings),
    )


def _call_times(settings: Settings) -> dict[str, float]:
    given = settings.operations
    return {
        "connect_seconds": min(given.connect_seconds, given.call_seconds_max),
        "total_seconds": given.call_seconds_max,
    }


def mail_server(settings: Settings) -> MailServer | None:
    """Return the server that takes mail; None where none is set."""
    from onceflow_processor.operations.senders.mail_sender import MailServer  # noqa: PLC0415

    mail = settings.mail
    if mail.host is None:
        return None
    return MailServer(
        host=mail.host,
        port=mail.port,
        security=mail.security,
        username=mail.username,
        password=None if mail.password is None else mail.password.get_secret_value(),
        authorities=None if mail.authorities is None else str(mail.authorities),
        local_name=mail.local_name,
    )


def accesses(settings: Settings) -> tuple[StripeAccess, ...]:
    """Return how each account is reached: by a key of its own, else as a connected account of the platform.

    Raises:
        Misconfigured: ``settings_invalid``: an account has no API key.
    """
    from onceflow_processor.operations.senders.stripe_gateway import StripeAccess  # noqa: PLC0415

    stripe, mode = settings.stripe, settings.stripe.mode
    accounts = _accounts(settings)
    missing = [account for account in accounts if account not in stripe.api_keys and stripe.api_key is None]
    if missing:
        faults = tuple(
            f"stripe.api_keys has no key for {account}, and stripe.api_key is not set: operations could not be sent; "
            "set STRIPE_API_KEY to a restricted key, such as rk_test_..."
            for account in missing
        )
        raise Misconfigured("settings_invalid", "; ".join(faults), faults=faults)
    found = []
    for account in accounts:
        own = stripe.api_keys.get(account)
        key = own if own is not None else stripe.api_key
        assert key is not None, "it would be among the missing"
        connected = own is None and account != stripe.account
        found.append(StripeAccess(account=account, mode=mode, api_key=key.get_secret_value(), connected=connected))
    return tuple(found)


def _accounts(settings: Settings) -> tuple[str, ...]:
    """Return the accounts of the settings, their own first."""
    own = settings.stripe.account
    assert own is not None
    return (own, *(account for account in dict.fromkeys(settings.stripe.accounts) if account != own))
