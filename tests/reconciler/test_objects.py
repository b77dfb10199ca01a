"""Objects at Stripe beside the operations that they name."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import psycopg
import pytest
import stripe

from onceflow_reconciler.compare_objects import Known, compare_object, operation_id_of
from onceflow_schemas.identity import operation_id
from tests.reconciler.conftest import PLATFORM, ReconcilerRoad


def operation_of(effect: str) -> UUID:
    return operation_id(account=PLATFORM, mode="test", effect=effect, subject="order_1", occurrence=1)


OPERATION = operation_of("charge")
ARGS = b'{"amount": 1500, "currency": "eur"}'
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
        ({"object": "refund", "status": "failed"}, {}, "operation_behind"),
        ({"object": "refund", "status": "canceled"}, {}, "operation_behind"),
        ({"object": "refund", "status": "failed"}, {"state": "failed"}, None),
        ({"object": "refund", "status": "succeeded"}, {"state": "failed"}, "operation_disagrees"),
        ({"object": "refund", "status": "pending"}, {"state": "pending"}, None),
        ({"object": "refund", "status": "succeeded"}, {"currency": None, "amount": None}, None),
        ({"object": "refund", "status": "nonsense"}, {"state": "pending"}, None),
    ],
)
def test_what_is_wrong(fields: dict[str, Any], known: dict[str, Any] | None, verdict: str | None) -> None:
    drift = compare_object(intent(**fields), None if known is None else Known(**{**KNOWN, **known}), deployment="ours")
    assert (None if drift is None else drift.verdict) == verdict


@pytest.mark.parametrize(
    ("deployment", "known", "verdict"),
    [
        ("another", None, None),
        ("ours", None, "object_without_operation"),
        # An operation of ours is judged by whatever names it.
        ("another", Known(**KNOWN), "operation_doubled"),
    ],
)
def test_an_object_of_another_deployment_on_the_account(
    deployment: str, known: Known | None, verdict: str | None
) -> None:
    metadata = {"onceflow_operation": str(OPERATION), "onceflow_deployment": deployment}
    drift = compare_object(intent(id="pi_2", metadata=metadata), known, deployment="ours")
    assert (None if drift is None else drift.verdict) == verdict


@pytest.mark.parametrize("metadata", [None, {}, [], {"onceflow_operation": "x"}, {"onceflow_operation": 5}, "text"])
def test_an_object_of_others_is_none_of_ours(metadata: Any) -> None:
    assert operation_id_of(intent(metadata=metadata)) is None
    assert operation_id_of(intent()) == OPERATION


def client_of(road: ReconcilerRoad) -> stripe.StripeClient:
    return stripe.StripeClient(road.stripe.api_key, base_addresses={"api": road.stripe.url})


def charged(road: ReconcilerRoad, *, amount: int = 1500, method: str = "pm_card_visa") -> str:
    """Charge at Stripe with the operation's id; the intent's id."""
    made = client_of(road).v1.payment_intents.create(
        {
            "amount": amount,
            "currency": "eur",
            "confirm": True,
            "payment_method": method,
            "metadata": {"onceflow_operation": str(OPERATION)},
            "automatic_payment_methods": {"enabled": True, "allow_redirects": "never"},
        }
    )
    return made.id


def insert_operation(road: ReconcilerRoad, *, state: str, external_id: str | None, effect: str = "charge") -> None:
    """The row of the operation, as if its workers had done so much."""
    settled = "clock_timestamp()" if state in ("succeeded", "failed") else "NULL"
    with psycopg.connect(road.database_url) as connection:
        connection.execute(
            "INSERT INTO onceflow.operation (id, account, mode, effect, subject, occurrence, kind, args, args_sha256, cause, steps,"
            " api_version, window_from, state, external_id, next_attempt_at, told, settled_at)"
            " VALUES (%s, %s, 'test', %s, 'order_1', 1, 'stripe', %s, sha256(%s), 'test', '[]', 'x', clock_timestamp(), %s, %s,"
            f" 'infinity', CASE WHEN %s = 'succeeded' THEN '{{succeeded}}'::text[] ELSE '{{}}' END, {settled})".encode(),
            [operation_of(effect), PLATFORM, effect, ARGS.decode(), ARGS, state, external_id, state],
        )


def change(road: ReconcilerRoad, statement: str) -> None:
    with psycopg.connect(road.database_url) as connection:
        assert connection.execute(statement.encode()).rowcount > 0


def object_findings(road: ReconcilerRoad) -> dict[str, str]:
    rows = road.rows(
        "SELECT kind, state FROM onceflow.finding WHERE kind LIKE 'ob%%' OR kind LIKE 'op%%' OR kind LIKE 're%%'"
    )
    return {row["kind"]: row["state"] for row in rows}


def test_what_a_forgotten_script_has_charged_under_our_metadata_is_found(road: ReconcilerRoad) -> None:
    made = charged(road)
    client_of(road).v1.payment_intents.create({"amount": 100, "currency": "eur"})
    road.stripe.advance(5)
    assert road.once(status=1)[PLATFORM]["drifts"] == 1
    [finding] = road.rows(
        "SELECT kind, subject, state, amount, currency, facts FROM onceflow.finding WHERE kind LIKE 'ob%%' OR kind LIKE 'op%%'"
    )
    assert (finding["kind"], finding["state"]) == ("object_without_operation", "open")
    assert (finding["amount"], finding["currency"]) == (1500, "eur")
    assert finding["facts"]["object_id"] == made
    assert road.once(status=1)[PLATFORM]["drifts"] == 1, "the overlap shows it again, and it is one finding"
    assert object_findings(road) == {"object_without_operation": "open"}
    # The row comes back, long after the list was read.
    insert_operation(road, state="succeeded", external_id=made)
    road.stripe.advance(3600)
    assert road.once()[PLATFORM]["drifts"] == 0
    assert object_findings(road) == {"object_without_operation": "healed"}
    # Somebody charges once more; and the amount of the first is not what was asked.
    second = charged(road)
    change(road, 'UPDATE onceflow.operation SET args = \'{"amount": 1400, "currency": "eur"}\'')
    road.stripe.advance(5)
    assert second != made
    assert road.once(status=1)[PLATFORM]["drifts"] == 1
    assert object_findings(road)["operation_doubled"] == "open"
    change(road, "UPDATE onceflow.reconcile_cursor SET done_until = done_until - interval '2 hours'")
    change(road, "DELETE FROM onceflow.reconcile_cursor WHERE source = 'payment_intent'")
    assert road.once(status=1)[PLATFORM]["drifts"] == 2
    assert object_findings(road)["operation_disagrees"] == "open"


def test_a_refund_that_fails_weeks_later_is_looked_at_and_then_told(road: ReconcilerRoad) -> None:
    """Its event is out of reach: only the object still says it."""
    client = client_of(road)
    intent = charged(road, method="pm_card_refundFail")
    metadata = {"onceflow_operation": str(operation_of("refund"))}
    refund = client.v1.refunds.create({"payment_intent": intent, "amount": 1500, "metadata": metadata})
    client.v1.payment_intents.update(intent, {"metadata": {"onceflow_operation": ""}})
    insert_operation(road, state="succeeded", external_id=refund.id, effect="refund")
    road.stripe.advance(5)
    road._environment["ONCEFLOW_RECONCILER_FIRST_HOURS"] = "3"
    for days in (0, 34):
        road.stripe.advance(days * 24 * 3600)
        # Their former stretches would be read hour by hour.
        change(road, "DELETE FROM onceflow.reconcile_cursor") if days else None
        road.once()
        assert set(object_findings(road)) <= {"reconcile_behind"}
    road.stripe.advance(24 * 3600 + 3600)
    change(road, "DELETE FROM onceflow.reconcile_cursor")
    road.once(status=1)
    assert object_findings(road)["operation_behind"] == "open"
    assert road.rows("SELECT object_id, status FROM onceflow.operation_hint") == [
        {"object_id": refund.id, "status": "failed"}
    ]
    # The workers have looked.
    change(road, "UPDATE onceflow.operation SET state = 'failed', told = '{succeeded,failed}'")
    road.once()
    assert object_findings(road) == {"operation_behind": "healed", "refund_failed_later": "open"}
