"""Keys that may not read, and accounts that are gone: each is told, and the others go on."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.reconciler.conftest import CONNECTED, PLATFORM, ReconcilerRoad

READS = ["payment_intent_read", "refund_read", "webhook_endpoint_read"]


def account_findings(road: ReconcilerRoad) -> dict[str, tuple[str, dict[str, Any]]]:
    found = [row for row in road.findings() if row["kind"] == "account_not_readable"]
    return {row["subject"]: (row["state"], row["facts"]) for row in found}


def test_a_key_that_is_refused_keeps_nobody_else_waiting(road: ReconcilerRoad) -> None:
    road.stripe.connect(CONNECTED)
    road.customers(1, account=CONNECTED)
    road.stripe.advance(5)
    road.stripe.faults.answer(401, match={"account": PLATFORM}, times=1000)
    road.once(status=1, accounts=CONNECTED, dry_run=True)
    assert road.rows("SELECT accounts FROM onceflow.deployment") == [], "a dry run notes no account"
    found = road.once(status=1, accounts=CONNECTED)
    assert found[PLATFORM]["waits"] == "not_readable"
    assert found[CONNECTED]["brought"] == 1
    [(subject, (state, facts))] = account_findings(road).items()
    assert (subject, state) == (f"/v1/events of {PLATFORM}", "open")
    assert facts == {"status": 401, "detail": "the key is refused", "permission": ""}


@pytest.mark.parametrize("lacks", ["event_read", "refund_read"])
def test_a_key_that_is_too_narrow_is_told_with_the_permission_and_the_other_lists_are_read(
    road: ReconcilerRoad, lacks: str
) -> None:
    road.customers(2)
    road.stripe.advance(5)
    road.stripe.add_key("rk_test_narrow", permissions=[one for one in ["event_read", *READS] if one != lacks])
    road._environment["STRIPE_API_KEY"] = "rk_test_narrow"
    found = road.once(status=1)[PLATFORM]
    assert found["waits"] == "not_readable"
    assert found["listed"] == (0 if lacks == "event_read" else 2)
    path = "/v1/events" if lacks == "event_read" else "/v1/refunds"
    [(subject, (state, facts))] = account_findings(road).items()
    assert (subject, state) == (f"{path} of {PLATFORM}", "open")
    assert (facts["status"], facts["permission"]) == (403, f"rak_{lacks}")
    road.stripe.add_key("rk_test_wide", permissions=["event_read", *READS])
    road._environment["STRIPE_API_KEY"] = "rk_test_wide"
    assert road.once()[PLATFORM]["waits"] is None
    assert account_findings(road)[subject][0] == "healed"


def test_a_disconnected_account_is_skipped_with_its_reason_and_each_event_goes_to_its_account(
    road: ReconcilerRoad,
) -> None:
    """R57: two accounts with the same customers; then one is disconnected."""
    road.stripe.connect(CONNECTED)
    own, theirs = road.customers(2), road.customers(3, account=CONNECTED)
    road.stripe.advance(5)
    found = road.once(accounts=CONNECTED)
    assert (found[PLATFORM]["brought"], found[CONNECTED]["brought"]) == (2, 3)
    with road.processor(ONCEFLOW_STRIPE_ACCOUNTS=CONNECTED):
        road.wait_for_events(5)
    rows = road.rows("SELECT account, event_id, state FROM onceflow.inbox")
    assert {(row["account"], row["event_id"]) for row in rows} == {
        *((PLATFORM, event_id) for event_id in own),
        *((CONNECTED, event_id) for event_id in theirs),
    }
    assert Counter(row["state"] for row in rows) == {"processed": 5}
    road.stripe.connect(CONNECTED, state="deauthorized")
    road.customers(1)
    road.stripe.advance(5)
    found = road.once(status=1, accounts=CONNECTED)
    assert (found[PLATFORM]["brought"], found[CONNECTED]["waits"]) == (1, "not_readable")
    [(_, (state, facts))] = account_findings(road).items()
    assert state == "open"
    assert facts["detail"] == "the account is gone, or has been disconnected from the platform"


def test_a_topic_or_a_database_that_is_not_ours_is_refused(road: ReconcilerRoad) -> None:
    road.customers(1)
    road.stripe.advance(5)
    for name, value, code in [
        ("ONCEFLOW_TOPICS_EVENTS", "nobody-s.topic", "topic_missing"),
        ("ONCEFLOW_DEPLOYMENT_ID", "another", "database_other_deployment"),
    ]:
        former = road._environment.get(name)
        road._environment[name] = value
        assert code in road.refusal()
        road._environment.pop(name) if former is None else road._environment.update({name: former})
    assert road.findings() == []
