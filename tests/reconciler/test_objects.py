"""Objects at Stripe beside the operations that they name."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import psycopg
import pytest
import stripe

from onceflow_reconciler.compare_objects import Known, compare_object, operation_id_of
from tests.reconciler.conftest import PLATFORM, ReconcilerRoad

OPERATION = UUID("6f1c7f0e-4c5a-5f6e-8a53-0d6c2f3b9a11")
KNOWN: dict[str, Any] = {
    "state": "succeeded",
    "external_id": "pi_1",
    "surplus": frozenset(),
    "amount": 500,
    "currency": "usd",
    "effect": "charge",
    "subject": "order_1",
}


def intent(**fields: Any) -> dict[str, Any]:
    common = {"object": "payment_intent", "id": "pi_1", "status": "succeeded", "amount": 500, "currency": "usd"}
    return {**common, "metadata": {"onceflow_operation": str(OPERATION)}, **fields}


@pytest.mark.parametrize(
    ("fields", "known", "verdict"),
    [
        ({}, {}, None),
        ({}, None, "object_without_operation"),
        ({"status": "requires_confirmation"}, None, None),
        ({"status": "canceled"}, None, None),
        ({}, {"external_id": None, "state": "unknown"}, "operation_behind"),
        ({"status": "requires_payment_method"}, {"external_id": None, "state": "unknown"}, None),
        ({"id": "pi_2"}, {}, "operation_doubled"),
        ({"id": "pi_2", "status": "processing"}, {}, "operation_doubled"),
        ({"id": "pi_2", "status": "canceled"}, {}, None),
        ({"amount": 501}, {}, "operation_disagrees"),
        ({"currency": "eur"}, {}, "operation_disagrees"),
        ({"currency": "USD"}, {}, None),
        ({"status": "canceled"}, {}, "operation_disagrees"),
        ({}, {"state": "failed"}, "operation_disagrees"),
        ({}, {"state": "canceled"}, "operation_disagrees"),
        ({}, {"state": "pending"}, None),
        ({"status": "canceled"}, {"state": "failed"}, None),
        ({"object": "refund", "status": "failed"}, {}, "operation_disagrees"),
        ({"object": "refund", "status": "pending"}, {"state": "pending"}, None),
        ({"object": "refund", "status": "succeeded"}, {"currency": None, "amount": None}, None),
        ({"object": "refund", "status": "nonsense"}, {"state": "pending"}, None),
    ],
)
def test_what_is_wrong(fields: dict[str, Any], known: dict[str, Any] | None, verdict: str | None) -> None:
    drift = compare_object(intent(**fields), None if known is None else Known(**{**KNOWN, **known}))
    assert (None if drift is None else drift.verdict) == verdict


@pytest.mark.parametrize("metadata", [None, {}, [], {"onceflow_operation": "x"}, {"onceflow_operation": 5}, "text"])
def test_an_object_of_others_is_none_of_ours(metadata: Any) -> None:
    assert operation_id_of(intent(metadata=metadata)) is None
    assert operation_id_of(intent()) == OPERATION


def test_what_a_forgotten_script_has_charged_under_our_metadata_is_found(road: ReconcilerRoad) -> None:
    client = stripe.StripeClient(road.stripe.api_key, base_addresses={"api": road.stripe.url})
    made = client.v1.payment_intents.create(
        {
            "amount": 1500,
            "currency": "eur",
            "confirm": True,
            "payment_method": "pm_card_visa",
            "metadata": {"onceflow_operation": str(OPERATION)},
            "automatic_payment_methods": {"enabled": True, "allow_redirects": "never"},
        }
    )
    client.v1.payment_intents.create({"amount": 100, "currency": "eur"})
    road.stripe.advance(5)
    assert road.once(status=1)[PLATFORM]["drifts"] == 1
    rows = road.rows(
        "SELECT kind, subject, state, amount, currency, facts FROM onceflow.finding WHERE kind LIKE 'ob%%' OR kind LIKE 'op%%'"
    )
    [finding] = rows
    assert (finding["kind"], finding["state"]) == ("object_without_operation", "open")
    assert (finding["amount"], finding["currency"]) == (1500, "eur")
    assert finding["facts"]["object_id"] == made.id
    assert road.once(status=1)[PLATFORM]["drifts"] == 1, "the overlap shows it again, and it is one finding"
    with psycopg.connect(road.database_url) as connection:
        [count] = connection.execute(
            "SELECT count(*) FROM onceflow.finding WHERE kind LIKE 'ob%%' OR kind LIKE 'op%%'"
        ).fetchone() or [0]
    assert count == 1
