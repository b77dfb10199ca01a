"""The table and the last line say what happened, and the worst of it."""

from __future__ import annotations

from tests.chaos.report import summary, table
from tests.chaos.runner import Done, Judged, Results

GOOD = Done(1, "a", "P1", "dies", "ok", "kill9 at a", 1.0, 0.5)
BAD = Done(2, "a", "P1", "dies", "not fired", "it  did\nnot", 1.0, 2.5)


def test_table_is_aligned_and_shows_the_failure() -> None:
    assert table([GOOD, BAD]).splitlines() == [
        "fault  what  ok   settled s  evidence",
        "P1     dies  1/2  2.5        it did not",
    ]


def test_summary_and_verdict() -> None:
    assert Results([GOOD], [Judged(1, "a", 7)]).good
    assert not Results([GOOD, BAD], [Judged(1, "a", 7)]).good
    assert not Results([GOOD], [Judged(1, "a", 7, violations=["I2: twice"])]).good
    assert summary(Results([GOOD], [])).startswith("chaos: ok - 1 faults of 1 rows run")
    assert "FAILED" in summary(Results([BAD], []))
