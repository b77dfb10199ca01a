"""A relay that has nothing to publish still notices what happens to its topic."""

from __future__ import annotations

import pytest

from onceflow_processor.relay.session import IDLE_LOOK_SECONDS
from tests.relay.lanes import Clock, Lanes, run_dry, term


def test_a_topic_that_was_made_anew_is_noticed_without_an_outcome(lanes: Lanes) -> None:
    clock = Clock()
    with term(lanes, clock=clock) as session:
        for lane in range(lanes.count):
            lanes.add(lane, 3)
        run_dry(session)
        lanes.create_anew()
        session.step()
        assert {lanes.state(lane)[2] for lane in range(lanes.count)} == {"ok"}, "not looked at yet"
        clock.ahead += IDLE_LOOK_SECONDS + 1
        session.step()
    assert {lanes.state(lane)[2] for lane in range(lanes.count)} == {"stopped:topic_changed"}


def test_looking_at_idle_lanes_commits_nothing_and_lets_them_go_on(
    lanes: Lanes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_transaction(*_given: object, **_options: object) -> None:
        raise AssertionError("nothing has to be committed")

    clock = Clock()
    with term(lanes, clock=clock) as session:
        lanes.add(0, 3)
        run_dry(session)
        with monkeypatch.context() as patched:
            patched.setattr(session, "_transact", no_transaction)
            for _ in range(3):
                clock.ahead += IDLE_LOOK_SECONDS + 1
                assert not session.step()
        lanes.add(0, 2)
        run_dry(session)
    assert lanes.state(0)[:3] == (5, 5, "ok")
