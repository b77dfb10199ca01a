"""In no span of time run more events than the rate allows and one chunk beyond it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceflow_processor.replay.pace import Pace


def test_chunks_wait_for_what_ran_before_them() -> None:
    pace = Pace(10.0)
    assert pace.chunk_max == 10
    assert pace.wait_seconds(100.0) == 0.0
    pace.ran(10, now=100.0)
    assert pace.wait_seconds(100.25) == pytest.approx(0.75)
    assert pace.wait_seconds(101.0) == 0.0
    pace.ran(5, now=105.0)
    assert pace.wait_seconds(105.0) == pytest.approx(0.5)
    assert Pace(0.5).chunk_max == 1


@given(rate=st.floats(0.1, 1000), chunks=st.lists(st.floats(0.0, 3.0), min_size=2, max_size=20))
def test_the_rate_is_a_bound(rate: float, chunks: list[float]) -> None:
    pace, now, begun = Pace(rate), 50.0, []
    for idle in chunks:
        now += idle + pace.wait_seconds(now + idle)
        begun.append(now)
        pace.ran(pace.chunk_max, now=now)
    between = begun[-1] - begun[0]
    assert pace.chunk_max * (len(begun) - 1) <= rate * between + 1e-6 * len(begun) * (1 + rate)
