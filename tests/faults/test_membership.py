"""Two processors join and leave every three seconds: partitions wander, and nothing happens twice or not at all."""

from __future__ import annotations

import time
from functools import partial
from random import Random

import psycopg
import pytest

from tests.checker.waiting import wait_for
from tests.load.rig import ExtraPart, Rig

ROUNDS = 4
ROUND_SECONDS = 3.0
EPOCH_SECONDS = 20.0


def epoch_sum(rig: Rig) -> int:
    with psycopg.connect(rig.ready.database_url) as connection:
        row = connection.execute("SELECT coalesce(sum(epoch), 0) FROM onceflow.progress").fetchone()
        assert row is not None
        return int(row[0])


def over(end: float) -> bool:
    return time.monotonic() >= end


@pytest.mark.long
def test_two_processors_join_and_leave_every_three_seconds(rig: Rig, dice: Random) -> None:
    before = epoch_sum(rig)
    members: list[ExtraPart] = []
    try:
        with rig.load() as load:
            for number in range(ROUNDS):
                ends = time.monotonic() + ROUND_SECONDS
                while len(members) < 2:
                    member = rig.part("process")
                    member.start()
                    members.append(member)
                # The end of a round is a moment of the clock, whatever the members are at then: that is the fault.
                wait_for(partial(over, ends), limit_seconds=60, what="the round is over")
                leaving = members.pop(dice.randrange(len(members)))
                if number % 2:
                    assert leaving.stop() == 0
                else:
                    leaving.kill()
            load.wait_for_answers(100)
            while members:
                assert members.pop().stop() == 0
            load.wait_for_answers(100)
        wait_for(
            lambda: epoch_sum(rig) >= before + ROUNDS, limit_seconds=EPOCH_SECONDS, what="partitions were taken over"
        )
    finally:
        for member in members:
            member.kill()
    verdict = rig.verdict()
    assert verdict.violations == (), verdict
