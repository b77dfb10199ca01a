"""A database that is put back to a moment at which events were parked and in quarantine: nothing has a second, other effect.

What consumers have of the time in between is never published again: a lane that the topic is ahead of hands out nothing
(``behind``) until the relay has imported what the topic knows, and what had not been published gets the ids that it would have had.
"""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.processor.commands import onceflow
from tests.processor.database_copies import DatabaseCopies, copies_of
from tests.processor.processor_process import LANES, MakeRoad, Road, wait_until
from tests.processor.relaying import all_published, lane_states, outbox, publish_all, published, relay, written
from tests.processor.test_parking_processes import publish

PATIENT = {
    "ONCEFLOW_PROCESSOR_RETRY_WAIT_SECONDS_MIN": "3600",
    "ONCEFLOW_PROCESSOR_RETRY_WAIT_SECONDS_MAX": "3600",
}
WAITS, FAILS = "acct_test/in_waits", "acct_test/in_fails"
PARKED = {"evt_w1": "parked", "evt_w2": "parked", "evt_w3": "parked", "evt_f1": "quarantined", "evt_f2": "parked"}
OTHERS = 6


@pytest.fixture
def road(make_road: MakeRoad) -> Road:
    """Two keys stand still, others have gone on and are published."""
    road = make_road(partitions=2)
    with psycopg.connect(road.database_url, autocommit=True) as setup:
        setup.execute("CREATE TABLE public.poison (event_id text PRIMARY KEY, kind text NOT NULL)")
        setup.execute("INSERT INTO public.poison VALUES ('evt_w1', 'waits'), ('evt_f1', 'fails')")
    publish(road, range(1, 4), key="in_waits", prefix="evt_w")
    publish(road, range(1, 3), key="in_fails", prefix="evt_f")
    for number in range(OTHERS):
        publish(road, range(1), key=f"in_{number}", prefix=f"evt_{number}_")
    with road.processor(**PATIENT):
        road.wait_for_events(5 + OTHERS)
        wait_until(lambda: PARKED.items() <= road.states().items(), "two keys stand still")
    assert len(publish_all(road)) == OTHERS
    return road


@pytest.fixture
def copies(road: Road) -> Iterator[DatabaseCopies]:
    with copies_of(road.database_url) as copies:
        yield copies


def mend_and_retry(road: Road) -> None:
    with psycopg.connect(road.database_url, autocommit=True) as mend:
        mend.execute("DELETE FROM public.poison")
    onceflow(road, "parked", "retry", "--key", WAITS, "--execute", "--reason", "it is back")
    onceflow(road, "quarantine", "retry", "evt_f1", "--execute", "--reason", "the customer exists now")


def all_processed(road: Road, count: int) -> bool:
    return list(road.states().values()) == ["processed"] * count


def order_of(road: Road, prefix: str) -> list[str]:
    rows = road.rows("SELECT event_id FROM public.seen WHERE event_id LIKE %s ORDER BY ctid", f"{prefix}%")
    return [row["event_id"] for row in rows]


def test_what_was_published_meanwhile_closes_its_lanes_until_it_is_imported(road: Road, copies: DatabaseCopies) -> None:
    earlier = copies.take()
    mend_and_retry(road)
    publish(road, range(12), key="in_later", prefix="evt_later_")
    for number in range(6):
        publish(road, range(1), key=f"in_later_{number}", prefix=f"evt_later_{number}_")
    count = 5 + OTHERS + 18
    with road.processor(**PATIENT):
        wait_until(lambda: all_processed(road, count), "all are processed")
    had = publish_all(road)
    assert len(had) == count

    copies.put_back(earlier)
    assert PARKED.items() <= road.states().items()
    mend_and_retry(road)
    before = written(road, "onceflow.outcome", "public.seen", "onceflow.fact")
    with road.processor(**PATIENT):
        wait_until(lambda: lane_states(road) == ["behind"] * LANES, "all lanes are behind")
        wait_until(
            lambda: {key["order_key"] for key in tried(road)} == {WAITS, FAILS}, "both keys were tried, again and again"
        )
        wait_until(lambda: waiting(road), "what comes after the backup waits, and says so")
    assert written(road, "onceflow.outcome", "public.seen", "onceflow.fact") == before
    states = {"evt_w1", "evt_w2", "evt_w3", "evt_f1", "evt_f2"} & road.states().keys()
    assert {road.states()[one] for one in states} == {"parked"}
    tries = road.rows(
        "SELECT DISTINCT attempts, open_tries FROM onceflow.parked WHERE event_id IN ('evt_w2', 'evt_f2')"
    )
    assert tries == [{"attempts": 0, "open_tries": 0}], "a closed lane costs no event a try"
    assert published(road) == had, "nothing was published again"
    [deployment] = road.rows("SELECT restores FROM onceflow.deployment")
    assert deployment["restores"] == 1

    publish(road, range(1), key="in_waits", prefix="evt_after_")
    with relay(road), road.processor(**PATIENT):
        wait_until(lambda: all_processed(road, count + 1) and all_published(road), "it goes on")
    have = published(road)
    assert have == outbox(road)
    assert set(had) <= set(have)
    assert len(have) == len({one[1][2] for one in have}) == count + 1
    assert lane_states(road) == ["ok"] * LANES


@pytest.mark.long
def test_services_that_run_while_it_is_put_back_notice_it_by_themselves(road: Road, copies: DatabaseCopies) -> None:
    """Their connections are cut, and the next ones meet an older database; nobody starts them again."""
    earlier = copies.take()
    mend_and_retry(road)
    for number in range(12):
        publish(road, range(1), key=f"in_later_{number}", prefix=f"evt_later_{number}_")
    count = 5 + OTHERS + 12
    with road.processor(**PATIENT):
        wait_until(lambda: all_processed(road, count), "all are processed")
    had = publish_all(road)
    with relay(road) as first, road.processor(**PATIENT) as second:
        copies.put_back(earlier)
        mend_and_retry(road)
        wait_until(lambda: all_processed(road, count) and all_published(road), "what was known comes back")
        wait_until(lambda: lane_states(road) == ["ok"] * LANES, "all lanes are open")
        assert published(road) == had == outbox(road)
        publish(road, range(1), key="in_waits", prefix="evt_after_")
        wait_until(lambda: all_processed(road, count + 1) and all_published(road), "it goes on")
        assert (first.poll(), second.poll()) == (None, None)
    have = published(road)
    assert have == outbox(road)
    assert set(had) <= set(have)
    assert len(have) == len({one[1][2] for one in have}) == count + 1


def tried(road: Road) -> list[dict[str, str]]:
    """Keys that were leased more than once since the person's retry, whose own fence is the first."""
    return road.rows("SELECT order_key FROM onceflow.parked_key WHERE fence >= 3")


def waiting(road: Road) -> bool:
    return road.rows("SELECT FROM onceflow.progress WHERE waiting IS NOT NULL") != []


def test_what_nobody_has_seen_yet_gets_the_same_ids_again(road: Road, copies: DatabaseCopies) -> None:
    """No relay ran in between, so the topic is not ahead: the retries are done again, with the same outcomes."""
    earlier = copies.take()
    count = 5 + OTHERS
    mend_and_retry(road)
    with road.processor(**PATIENT):
        wait_until(lambda: all_processed(road, count), "all are processed")
    first = outbox(road)

    copies.put_back(earlier)
    assert PARKED.items() <= road.states().items()
    assert len(outbox(road)) == OTHERS
    mend_and_retry(road)
    with relay(road), road.processor(**PATIENT):
        wait_until(lambda: all_processed(road, count) and all_published(road), "all are processed and published")
    assert lane_states(road) == ["ok"] * LANES
    assert {(one[1][2], one[1][3], one[2]) for one in outbox(road)} == {(one[1][2], one[1][3], one[2]) for one in first}
    have = published(road)
    assert have == outbox(road)
    assert len(have) == len({one[1][1] for one in have}) == count
    assert (order_of(road, "evt_w"), order_of(road, "evt_f")) == (["evt_w1", "evt_w2", "evt_w3"], ["evt_f1", "evt_f2"])
    assert road.rows("SELECT FROM onceflow.parked_key") == []
