"""Webhook endpoints, clocks, and how far the list was read: what is a finding, and that a healthy system shows none."""

from __future__ import annotations

from typing import Any

import pytest

from onceflow_reconciler.endpoint_checks import judge_backlog, judge_clocks, judge_endpoints
from tests.reconciler.conftest import PLATFORM, ReconcilerRoad
from tests.reconciler.test_objects import charged

DAY = 86_400
OURS: dict[str, Any] = {
    "id": "we_1",
    "url": "https://shop.example.com/webhooks/stripe/main",
    "status": "enabled",
    "enabled_events": ["*"],
    "api_version": None,
}
PAID_ONLY = {**OURS, "enabled_events": ["invoice.paid"]}
ELSEWHERE = {**OURS, "id": "we_2", "url": "https://other.example.com/hooks", "status": "disabled"}


@pytest.mark.parametrize(
    ("endpoints", "missed", "kinds"),
    [
        ([OURS], {}, []),
        ([OURS, ELSEWHERE], {"invoice.paid": False}, []),
        ([OURS, ELSEWHERE], {"invoice.paid": True}, ["endpoint_refused"]),
        ([], {}, ["endpoint_missing"]),
        ([ELSEWHERE], {"invoice.paid": True}, ["endpoint_missing"]),
        ([{**OURS, "status": "disabled"}], {}, ["endpoint_disabled", "endpoint_missing"]),
        ([{**OURS, "status": "disabled"}, {**OURS, "id": "we_3"}], {}, ["endpoint_disabled"]),
        ([PAID_ONLY], {"invoice.paid": False}, []),
        ([PAID_ONLY], {"invoice.paid": True, "charge.failed": False}, ["endpoint_lacks_types", "endpoint_refused"]),
        ([PAID_ONLY], {"invoice.paid": False, "charge.failed": True}, ["endpoint_lacks_types"]),
        ([{**OURS, "api_version": "2026-10-28.endive"}], {}, []),
        ([{**OURS, "api_version": "2031-01-01"}], {}, ["endpoint_other_version"]),
        ([{**OURS, "enabled_events": None, "url": None}], {}, ["endpoint_missing"]),
    ],
)
def test_what_is_wrong_with_endpoints(
    endpoints: list[dict[str, Any]], missed: dict[str, bool], kinds: list[str]
) -> None:
    found = judge_endpoints(endpoints, missed_types=missed, account="acct_1", mode="test")
    assert sorted(one.kind for one in found) == sorted(kinds)


def test_clocks_that_differ_by_more_than_a_minute() -> None:
    assert judge_clocks(stripe_now=1_000, own_now=1_060.0, database_now=940.0) == []
    found = judge_clocks(stripe_now=1_000, own_now=1_061.0, database_now=0.0)
    assert [(one.subject, one.facts["seconds"]) for one in found] == [
        ("clock of this host", 61),
        ("clock of the database", -1_000),
    ]


@pytest.mark.parametrize(("days", "is_found"), [(24, False), (25, True), (31, True)])
def test_the_alarm_comes_before_the_limit(days: int, is_found: bool) -> None:  # noqa: FBT001 - a parameter of the test
    found = judge_backlog(0, now=days * DAY, account="acct_1", mode="test")
    assert (found is not None) is is_found


def test_an_endpoint_that_stripe_has_disabled_is_told_and_healed(road: ReconcilerRoad) -> None:
    """P10: after long failure Stripe disables it; nothing else would tell."""
    endpoint = road.stripe.add_webhook("http://127.0.0.1:9/webhooks/stripe", secrets=["whsec_x"])
    road.once()
    assert kinds(road) == {}
    road.stripe.change_webhook(endpoint, enabled=False)
    road.once()
    assert kinds(road) == {"endpoint_disabled": "open", "endpoint_missing": "open"}
    road.stripe.change_webhook(endpoint, enabled=True)
    road.once()
    assert kinds(road) == {"endpoint_disabled": "healed", "endpoint_missing": "healed"}


def test_an_outage_of_35_days_is_named_and_what_is_still_listed_is_brought(road: ReconcilerRoad) -> None:
    """R4, R54: of 35 days Stripe lists the last 30."""
    road.stripe.add_webhook("http://127.0.0.1:9/webhooks/stripe", secrets=["whsec_x"])
    road.once()
    road.stripe.advance(2 * DAY)
    road.customers(3)
    # R54: nobody can list its events afterwards, and the object says all the same that somebody has charged.
    made = charged(road)
    road.stripe.advance(26 * DAY)
    assert road.once(dry_run=True, status=1)[PLATFORM]["missed"] > 3
    road.stripe.advance(7 * DAY)
    road.customers(5)
    road.stripe.advance(60)
    told = road.once(status=1)[PLATFORM]
    assert (told["missed"], told["brought"], told["drifts"]) == (5, 5, 1)
    [row] = road.rows("SELECT facts FROM onceflow.finding WHERE kind = 'object_without_operation'")
    assert (row["facts"]["object_id"], row["facts"]["derived"]) == (made, True)
    found = kinds(road)
    assert found["events_out_of_reach"] == "open"
    assert found["reconcile_behind"] == "healed", "it was told, and is read to its end now"
    [row] = road.rows("SELECT facts FROM onceflow.finding WHERE kind = 'events_out_of_reach'")
    assert set(row["facts"]) == {"since", "until"}
    road.once()
    assert kinds(road)["events_out_of_reach"] == "open", "nobody can find those any more: a person accepts it"


def kinds(road: ReconcilerRoad) -> dict[str, str]:
    """The states of findings about surroundings; the simulator's clock is another one, so clocks are left out."""
    rows = road.rows("SELECT kind, state FROM onceflow.finding WHERE kind NOT IN ('missed_event', 'clock_skew')")
    return {row["kind"]: row["state"] for row in rows}
