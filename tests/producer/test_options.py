"""What keeps a bridge from starting."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from onceflow_producer.endpoint_secrets import parse_secrets
from onceflow_producer.options import BridgeOptions, check_options
from onceflow_producer.rate import RatePolicy
from onceflow_schemas.attestation import AttestationKey
from onceflow_schemas.failure import Misconfigured

NOW = datetime(2026, 1, 1, tzinfo=UTC)
GOOD = BridgeOptions(
    kafka={"bootstrap.servers": "127.0.0.1:1", "sasl.password": "hush"},
    topic="events",
    secrets=parse_secrets("whsec_hush"),
    attestation_keys=(AttestationKey("k", b"hush" * 8),),
    deployment="test",
    default_account="acct_1",
    default_mode="test",
)


def test_good_options_pass() -> None:
    check_options(GOOD, now=NOW)
    check_options(GOOD)
    assert GOOD.message_timeout_ms == 6_000


def test_nothing_secret_is_shown() -> None:
    assert "hush" not in repr(GOOD)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"secrets": ()}, "STRIPE_WEBHOOK_SECRET"),
        ({"tolerance_seconds": 0}, "tolerance"),
        ({"tolerance_seconds": -1}, "tolerance"),
        ({"read_deadline_seconds": 8.0}, "deadlines"),
        ({"read_deadline_seconds": 0.0}, "deadlines"),
        ({"answer_deadline_seconds": 10.0}, "deadlines"),
        ({"attestation_keys": ()}, "attestation key"),
        ({"attestation_keys": (AttestationKey("k", b"x", not_before=NOW + timedelta(days=1)),)}, "attestation key"),
        ({"body_bytes_max": 0}, "body limit"),
        ({"body_budget_bytes": 1}, "body limit"),
        ({"in_flight_max": 0}, "in flight"),
        ({"connections_max": 0}, "connections"),
        ({"invalid_rate": RatePolicy(per_second=0.0)}, "rate"),
        ({"kafka": {}}, "bootstrap.servers"),
        ({"kafka": {"bootstrap.servers": "x", "acks": "1"}}, "acks"),
    ],
)
def test_faults(change: dict[str, Any], word: str) -> None:
    with pytest.raises(Misconfigured) as refused:
        check_options(replace(GOOD, **change), now=NOW)
    assert refused.value.code == "settings_invalid"
    assert len(refused.value.faults) == 1
    assert word in refused.value.faults[0]


def test_all_faults_are_named_at_once() -> None:
    bad = replace(GOOD, secrets=(), tolerance_seconds=0, kafka={"acks": "1", "batch.size": 1})
    with pytest.raises(Misconfigured) as refused:
        check_options(bad, now=NOW)
    assert len(refused.value.faults) == 5
