"""The answer to a COMMIT is lost on the way, in both ways: the server has committed, and it has not.

The processor must find out which of the two happened and may neither lose the batch nor do it again.
"""

from __future__ import annotations

from random import Random

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.checker.waiting import wait_for
from tests.faults.proxy import Cut, PostgresProxy
from tests.load.rig import Rig

FIRE_SECONDS = 30.0
TIMES = 2
PER_SECOND = 50.0
BATCH_RECORDS = 50
"""The proxy looks at every message in Python: small batches keep it from being the fault."""


@pytest.mark.parametrize("cut", Cut, ids=lambda cut: cut.name.lower())
def test_commit_is_lost(rig: Rig, dice: Random, cut: Cut) -> None:
    parts = conninfo_to_dict(rig.ready.database_url)
    with PostgresProxy(host=str(parts["host"]), port=int(str(parts["port"]))) as proxy:
        proxied = make_conninfo(rig.ready.database_url, host="127.0.0.1", port=proxy.port)
        with (
            rig.part("process", database__url=proxied, processor__batch_records_max=BATCH_RECORDS) as processor,
            rig.load(PER_SECOND) as load,
        ):
            wait_for(lambda: proxy.commits_seen >= 3, limit_seconds=FIRE_SECONDS, what="batches go through the proxy")
            for number in range(1, TIMES + 1):
                load.wait_for_answers(dice.randrange(1, 40))
                proxy.arm(cut)
                assert proxy.fired.wait(FIRE_SECONDS), f"the {number}. COMMIT was not lost: the fault did not happen"
                seen = proxy.commits_seen
                wait_for(
                    lambda: proxy.commits_seen > seen,  # noqa: B023 - called within this turn
                    limit_seconds=FIRE_SECONDS,
                    what="the processor goes on by itself",
                )
            assert proxy.tags_dropped == (["COMMIT"] * TIMES if cut is Cut.ANSWER else [])
            assert processor.process is not None
            assert processor.process.poll() is None, "the processor survived"
    verdict = rig.verdict()
    assert verdict.violations == (), verdict
