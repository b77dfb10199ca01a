"""Each part dies by SIGKILL at a random moment under load; the checker then judges everything since the beginning."""

from __future__ import annotations

from random import Random

import pytest

from tests.every_run import mostly_long
from tests.faults.process_state import is_gone
from tests.load.rig import Rig

PARTS = ("bridge", "processor", "relay", "kafka", "postgres")
BEFORE_MAX = 150
AFTER = 150


@pytest.mark.parametrize("part", mostly_long(PARTS, every_run=["kafka", "relay"]))
def test_part_killed_under_load(rig: Rig, dice: Random, part: str) -> None:
    with rig.load() as load:
        load.wait_for_answers(dice.randrange(1, BEFORE_MAX))
        old = rig.system.kill(part)
        seconds = rig.system.wait_for_successor(part, old)
        assert is_gone(old)
        assert rig.ready.pids[part] != old
        load.wait_for_answers(AFTER)
    print(f"{part} was back after {seconds:.1f} s, {load.broken()} requests were refused or broken off meanwhile")
    verdict = rig.verdict()
    assert verdict.violations == (), verdict


@pytest.mark.long
def test_all_parts_killed_at_once(rig: Rig, dice: Random) -> None:
    """A power cut, as far as a process can see: everything is gone at the same moment."""
    with rig.load() as load:
        load.wait_for_answers(dice.randrange(1, BEFORE_MAX))
        old = {part: rig.system.kill(part) for part in dice.sample(PARTS, len(PARTS))}
        for part, pid in old.items():
            rig.system.wait_for_successor(part, pid)
            assert is_gone(pid)
        load.wait_for_answers(AFTER)
    verdict = rig.verdict()
    assert verdict.violations == (), verdict
