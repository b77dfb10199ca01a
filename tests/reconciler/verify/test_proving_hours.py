"""Hours that were listed before: what proves them, and what does not."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from onceflow_simulator import Simulator
from tests.processor.conftest import make_road as make_road  # noqa: PLC0414 - a fixture of this folder too
from tests.processor.processor_process import MakeRoad
from tests.reconciler.verify.proving_road import ProvingRoad

HOUR = 3600
DAY = 24 * HOUR
WORDS = ["invoice.paid", "refund.created"]
OTHER_ACCOUNT = "acct_C1"


@pytest.fixture
def simulator() -> Iterator[Simulator]:
    with Simulator(seed=11) as running:
        yield running


@pytest.fixture
def proving(make_road: MakeRoad, simulator: Simulator) -> ProvingRoad:
    made = ProvingRoad(make_road(), simulator)
    made.environment |= {"ONCEFLOW_RECONCILER_FIRST_HOURS": "30"}
    return made


def kept_hours(proving: ProvingRoad, *, days: int = 33) -> None:
    """As if the reconciler had read all hours of so many days since the first event, late enough."""
    [(account, hours)] = proving.answer().proof["hours"].items()
    known = {int(hour): (one["events"], one["id_hash"]) for hour, one in hours.items()}
    with psycopg.connect(proving.road.database_url) as connection, connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO onceflow.reconcile_hour (account, mode, hour, listed, id_hash, listed_at)"
            " SELECT %s, 'test', to_timestamp(%s), %s, %s, to_timestamp(%s) + interval '26 hours'"
            " ON CONFLICT (account, mode, hour) DO UPDATE SET listed_at = excluded.listed_at",
            [
                (account, hour, *known.get(hour, (0, 0)), hour)
                for hour in range(min(known), min(known) + days * DAY, HOUR)
            ],
        )


def test_an_hour_that_was_read_soon_after_its_end_proves_nothing_yet(
    proving: ProvingRoad, simulator: Simulator
) -> None:
    """Events that become visible late, and whose webhook never comes."""
    simulator.set(event_lag_seconds=3 * HOUR)
    hour = simulator.advance(0) // HOUR * HOUR
    proving.make_events(WORDS)
    proving.change(
        "INSERT INTO onceflow.reconcile_hour (account, mode, hour, listed, id_hash, listed_at)"
        " SELECT 'acct_test', 'test', to_timestamp(begins), 0, 0, to_timestamp(begins) + interval '70 minutes'"
        f" FROM unnest(ARRAY[{hour}, {hour + HOUR}]) AS begins"
    )
    assert proving.kinds() == []
    simulator.advance(3 * HOUR)
    missed = proving.kinds()
    assert set(missed) == {"missed_event"}
    # A day later the reconciler reads the hour once more, and brings them.
    proving.change(
        "INSERT INTO onceflow.reconcile_hour (account, mode, hour, listed, id_hash, listed_at)"
        " SELECT account, mode, hour + interval '2 days', 0, 0, 'infinity' FROM onceflow.reconcile_hour"
    )
    proving.change(
        "INSERT INTO onceflow.reconcile_cursor (account, mode, source, done_until)"
        f" VALUES ('acct_test', 'test', 'events', to_timestamp({hour + DAY}))"
    )
    simulator.advance(DAY)
    assert proving.bring() == len(missed)
    proving.settle(len(missed))
    answer = proving.answer()
    [told] = answer.counts["stripe"].values()
    assert (answer.unexplained, told["listed_before"], told["listed_now"]) == ((), len(missed), 0)


def judge_a_disconnected_account(proving: ProvingRoad) -> None:
    """It keeps no other from being proved, and a person may take it as it is."""
    with_other = proving.environment | {"ONCEFLOW_STRIPE_ACCOUNTS": OTHER_ACCOUNT}
    proving.environment, alone = with_other, proving.environment
    proving.simulator.connect(OTHER_ACCOUNT, state="deauthorized")
    answer = proving.answer()
    assert [(kind, subject) for kind, subject, _ in answer.unexplained] == [
        ("account_not_readable", f"/v1/events of {OTHER_ACCOUNT}")
    ]
    [told] = answer.counts["stripe"].values()
    assert told["listed_now"] == answer.events > 0
    proving.change(
        "INSERT INTO onceflow.finding (kind, subject, state, facts, decided_by, reason)"
        f" SELECT 'account_not_readable', '/v1/events of {OTHER_ACCOUNT}', 'accepted',"
        f" '{{\"detail\": \"{answer.unexplained[0][2]}\"}}', 'me', 'it left us'"
    )
    assert proving.answer().unexplained == ()
    proving.change("DELETE FROM onceflow.finding WHERE kind = 'account_not_readable'")
    proving.environment = alone


def test_hours_that_stripe_does_not_list_any_more_are_held_against_what_was_kept(
    proving: ProvingRoad, simulator: Simulator
) -> None:
    proving.settled(WORDS)
    former = proving.answer()
    assert former.unexplained == ()
    judge_a_disconnected_account(proving)
    simulator.advance(32 * DAY)
    # Nobody kept what Stripe listed: whatever was lost then can be found by nobody.
    assert proving.kinds() == ["hours_unproved"]
    lost = "INSERT INTO onceflow.finding (kind, subject, account, mode, facts) SELECT 'events_out_of_reach', 'events', account,"
    lost += " mode, jsonb_build_object('since', min(event_created) - interval '4 days', 'until', now() + interval '40 days') FROM onceflow.inbox GROUP BY 3, 4"
    proving.change(lost)
    assert proving.kinds() == ["events_out_of_reach"]
    proving.change("UPDATE onceflow.finding SET state = 'accepted', decided_by = 'me', reason = 'known'")
    answer = proving.answer()
    assert (answer.unexplained, len(answer.accepted)) == ((), 1)
    proving.change("DELETE FROM onceflow.finding WHERE kind = 'events_out_of_reach'")
    kept_hours(proving)
    answer = proving.answer()
    [told] = answer.counts["stripe"].values()
    assert (answer.unexplained, told["listed_before"], told["listed_now"]) == ((), former.events, 0)
    one = "(SELECT min(event_id) FROM onceflow.inbox)"
    with proving.altered(f"DELETE FROM onceflow.inbox WHERE event_id = {one}"):
        assert "hour_differs" in proving.kinds()
    with proving.altered(f"UPDATE onceflow.inbox SET event_id = 'evt_other' WHERE event_id = {one}"):
        assert "hour_differs" in proving.kinds()
    # What retention may have deleted since is not looked for.
    proving.change(
        "INSERT INTO onceflow.retention (name, gone_before) SELECT 'inbox', now() + interval '2 hours'"
        " ON CONFLICT (name) DO UPDATE SET gone_before = excluded.gone_before"
    )
    with proving.altered(f"DELETE FROM onceflow.inbox WHERE event_id = {one}"):
        assert "hour_differs" not in proving.kinds()
