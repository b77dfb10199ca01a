"""What a reconciler is told.

Rule: everything comes in here, and nothing of it is changed afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from onceflow_processor.inputs.input_topic import InputTopic
from onceflow_processor.operations.senders.stripe_gateway import StripeAccess
from onceflow_reconciler.ledger_checks import Patience
from onceflow_reconciler.slices import SliceRules
from onceflow_reconciler.verify.question import Question
from onceflow_schemas.attestation import AttestationKey


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcilerOptions:
    """Everything that the reconciler is told; nothing below reads the environment.

    Args:
        kafka: librdkafka properties.
        database_url: libpq connection string, untouched.
        deployment: the deployment's id.
        accounts: the deployment's accounts, its own first.
        mode: ``live`` or ``test``.
        topic: the bridge's event topic.
        event_topics: all that the processor reads.
        inputs: what they carry, where it is not the bridge's own records.
        accesses: how the accounts are read.
        api_base: of Stripe, or of a simulator.
        api_version: that answers are rendered in.
        attestation_keys: what was missed is attested with them.
        requests_per_second: of each account, below live traffic's.
        connect_seconds, total_seconds: of one request.
        rules: how the event list is cut.
        patience: how long something may wait before it is a finding.
        first_seconds: how far back the first look goes.
        ledgers: the question about topics and tables; None does not ask it.
        ledger_seconds: from one look at them to the next.
        findings_days: so long findings stay that are healed, or accepted.
        cycle_seconds: from one look to the next.
        lease_ttl_seconds: how long a dead reconciler is waited for.
        owner: who we are.
        metrics_host, metrics_port: where metrics are served; port 0 for a free one.
        state_file: written when ready.
        announce: called with what the state file says when ready.
        parent_pid: stop when this parent is gone.
        prepared: False behind a pooler in transaction mode.
    """

    kafka: Mapping[str, object] = field(repr=False)
    database_url: str = field(repr=False)
    deployment: str
    accounts: tuple[str, ...]
    mode: str
    topic: str
    event_topics: tuple[str, ...] = ()
    inputs: tuple[InputTopic, ...] = field(default=(), repr=False)
    group: str
    accesses: tuple[StripeAccess, ...] = field(repr=False)
    api_base: str
    api_version: str
    attestation_keys: tuple[AttestationKey, ...] = field(repr=False)
    requests_per_second: float
    connect_seconds: float
    total_seconds: float
    rules: SliceRules
    patience: Patience = field(default_factory=Patience)
    first_seconds: int
    ledgers: Question | None = field(default=None, repr=False)
    ledger_seconds: float = 3600.0
    findings_days: int
    cycle_seconds: float
    lease_ttl_seconds: float = 30.0
    owner: str
    metrics_host: str = "127.0.0.1"
    metrics_port: int = 0
    state_file: Path | None = None
    announce: Callable[[Mapping[str, object]], None] | None = None
    parent_pid: int | None = None
    prepared: bool = True
