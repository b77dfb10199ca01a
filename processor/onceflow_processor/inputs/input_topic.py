"""What one input topic carries, and why its records are believed.

Rule: only values that the settings have checked come here; see ``onceflow.input_checks`` for what contradicts what.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from onceflow_producer.endpoint_secrets import EndpointSecret

Format = Literal["onceflow", "stripe-json", "cloudevents-structured", "cloudevents-binary", "eventbridge"]
"""How an event stands in a record; ``onceflow`` is the bridge's own."""
Trust = Literal["attested", "stripe-signature", "transport"]
"""Who vouches for a record: the bridge, Stripe's own signature, or only whoever may write to the topic."""
KeyPolicy = Literal["record", "object"]
"""What events have to be parked behind each other: those with one record key, or those about one object."""

SIGNATURE_HEADER = "Stripe-Signature"


@dataclass(frozen=True, slots=True, kw_only=True)
class InputTopic:
    """One topic that the processor reads.

    Args:
        topic: its name.
        format: how an event stands in a record.
        trust: who vouches for a record.
        key: by what events are parked behind each other.
        accounts: those whose events it may carry; None for all of the deployment.
        default_account: whose an event is that names no account.
        secrets: those of the endpoints whose signatures are believed.
        signature_header: where the signature stands, compared without regard to case, since gateways change it.
        compacted: Kafka removes records from the middle of the log.
    """

    topic: str
    format: Format = "onceflow"
    trust: Trust = "attested"
    key: KeyPolicy = "record"
    accounts: frozenset[str] | None = None
    default_account: str = ""
    secrets: Sequence[EndpointSecret] = field(default=(), repr=False)
    signature_header: str = SIGNATURE_HEADER
    compacted: bool = False
