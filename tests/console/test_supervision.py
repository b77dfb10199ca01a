"""When a part is started again: at once after the first death, slower and slower afterwards, never given up once it worked."""

from __future__ import annotations

import pytest

from onceflow.supervision import Track, became_ready, due, ended, hopeless, restart_delay, started


def test_the_first_restart_comes_within_a_fifth_of_a_second() -> None:
    track = ended(became_ready(started(Track(), 0.0), 1.0), 100.0, jitter=1.0)
    assert track == Track("down", 100.0, 1, 100.05, ever_ready=True)
    assert not due(track, 100.04)
    assert due(track, 100.05)
    assert not due(started(track, 100.05), 200.0)


def test_delays_grow_to_a_limit_and_jitter_only_shortens_them() -> None:
    assert [restart_delay(failures, jitter=0.0) for failures in (1, 2, 3, 4, 5, 8, 60)] == [
        0.05,
        0.2,
        0.4,
        0.8,
        1.6,
        10.0,
        10.0,
    ]
    assert restart_delay(5, jitter=1.0) == 0.8
    assert restart_delay(1, jitter=1.0) == 0.05


def test_a_stable_time_makes_the_next_restart_quick_again() -> None:
    failing = Track("ready", 100.0, 5, 0.0, ever_ready=True)
    assert ended(failing, 119.9, jitter=0.0).failures == 6
    assert ended(failing, 120.0, jitter=0.0).failures == 1
    assert ended(Track("starting", 0.0, 5), 900.0, jitter=0.0).failures == 6


@pytest.mark.parametrize(
    ("track", "code", "expected"),
    [
        (Track("down", failures=1), 3, True),
        (Track("down", failures=1), 4, True),
        (Track("down", failures=1), 2, True),
        (Track("down", failures=1), 5, False),
        (Track("down", failures=1), 1, False),
        (Track("down", failures=5), -9, False),
        (Track("down", failures=6), -9, True),
        (Track("down", failures=99, ever_ready=True), 3, False),
    ],
)
def test_only_a_part_that_never_worked_is_given_up(track: Track, code: int, *, expected: bool) -> None:
    assert hopeless(track, code) is expected
