"""Everything from offset 0, twice, while live traffic runs: nothing happens a second time."""

from __future__ import annotations

from tests.processor.processor_process import WAIT_SECONDS_MAX, MakeRoad
from tests.processor.replay.beside_live import replay_beside_live, table

EVENTS = 600


def test_a_replay_of_everything_beside_live_traffic_has_no_effect(make_road: MakeRoad) -> None:
    result = replay_beside_live(make_road(), events=EVENTS, wait_seconds_max=WAIT_SECONDS_MAX)
    assert (result.new_outcomes, result.new_operations, result.new_runs, result.epochs_moved) == (0, 0, 0, 0)
    assert all(one.skipped >= EVENTS for one in result.replays)
    assert result.live_outcomes == result.live > 0
    assert "**0 new outcomes, 0 new operations**" in table(result)
