"""The doctor on reads at Stripe: none, some, long waiting, not permitted."""

from __future__ import annotations

from typing import Any

from onceflow.doctor.checked import Checked
from onceflow.doctor.reads import judge_reads


def judged(*, read_objects: bool = True, **given: Any) -> Checked:
    row = {"waiting": 0, "oldest_seconds": 0.0, "not_permitted": 0, "failed": 0, **given}
    return judge_reads(row, read_objects=read_objects)


def test_nothing_waits() -> None:
    line = judged(read_objects=False)
    assert (line.ok, line.found) == (True, "processor.read_objects is off, 0 wait, 0 have failed")
    assert judged(waiting=3, oldest_seconds=59.0, failed=1).ok


def test_what_waits_for_long_is_a_cross() -> None:
    line = judged(waiting=3, oldest_seconds=61.0)
    assert not line.ok
    assert line.found == "processor.read_objects is on, 3 wait, 0 have failed, the oldest for 61 s"
    assert "onceflow operate" in line.fix


def test_what_the_key_may_not_read_is_a_cross() -> None:
    line = judged(waiting=3, not_permitted=2)
    assert not line.ok
    assert "2 are not permitted" in line.found
