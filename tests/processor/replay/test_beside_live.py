"""Everything from offset 0, twice, while live traffic runs: nothing happens a second time."""

from __future__ import annotations

from tests.processor.processor_process import WAIT_SECONDS_MAX, MakeRoad, ids, wait_until
from tests.processor.replay.beside_live import Live, replay_beside_live, table
from tests.processor.replay.replaying import replayed

EVENTS = 600
CHANGED = 200
FIRST = {"ONCEFLOW_PROCESSOR_HANDLERS": "tests.processor.replay.first_handlers:handlers"}
MENDED = ("--handlers", "tests.processor.replay.mended_handlers:handlers")


def test_a_replay_of_everything_beside_live_traffic_has_no_effect(make_road: MakeRoad) -> None:
    result = replay_beside_live(make_road(), events=EVENTS, wait_seconds_max=WAIT_SECONDS_MAX)
    assert (result.new_outcomes, result.new_operations, result.new_runs, result.epochs_moved) == (0, 0, 0, 0)
    assert all(one.skipped >= EVENTS for one in result.replays)
    assert result.live_outcomes == result.live > 0
    assert "**0 new outcomes, 0 new operations**" in table(result)


def test_a_rerun_beside_live_traffic_adds_each_revision_once_and_tears_no_lane(make_road: MakeRoad) -> None:
    """Revisions and live outcomes take sequences of the same lanes, from two processes at once."""
    road = make_road()
    road.publish(ids("changed", CHANGED))
    with road.processor(**FIRST):
        road.wait_for_events(CHANGED)
        live = Live(road)
        with live.running():
            wait_until(lambda: live.sent > 0, "live traffic runs")
            sent = live.sent
            answer = replayed(road, "--rerun", "--execute", "--reason", "mended", "--rate", "100", *MENDED)
            assert live.sent > sent, "events came meanwhile"
        road.wait_for_events(CHANGED + live.sent)
    assert answer["done"]["changed"] == CHANGED
    assert set(answer["done"]) == {"rerun", "changed", "unchanged"}
    revisions = road.rows(
        "SELECT key LIKE %s AS live, type, revision, count(*) AS n, count(DISTINCT outcome_id) AS ids"
        " FROM onceflow.outcome GROUP BY 1, 2, 3 ORDER BY 1, 2, 3",
        "in_evt_live%",
    )
    assert [(row["live"], row["type"], row["revision"], row["n"], row["ids"]) for row in revisions] == [
        (False, "mailed", 1, CHANGED, CHANGED),
        (False, "paid", 1, CHANGED, CHANGED),
        (False, "paid", 2, CHANGED, CHANGED),
        (True, "mailed", 1, live.sent, live.sent),
        (True, "paid", 1, live.sent, live.sent),
    ]
    lanes = road.rows(
        "SELECT lane.lane, head_seq, min(seq) AS first, max(seq) AS last, count(*) AS n, count(DISTINCT seq) AS seqs"
        " FROM onceflow.lane JOIN onceflow.outcome ON outcome.lane = lane.lane GROUP BY 1, 2"
    )
    assert all(row["first"] == 1 and row["head_seq"] == row["last"] == row["n"] == row["seqs"] for row in lanes), lanes
    assert {row["event_id"] for row in road.rows("SELECT event_id FROM public.seen WHERE pid = 1")} == set(
        road.states()
    )
    assert len(road.rows("SELECT FROM public.seen WHERE pid = 1")) == CHANGED + live.sent, (
        "the mended one's own SQL is undone"
    )
