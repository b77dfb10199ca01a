"""A short set of the most valuable faults, one after another on one running system, with a seed that never changes.

The whole catalogue is ``make chaos``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.chaos.catalogue import all_faults, make_world
from tests.chaos.report import table
from tests.chaos.runner import run_soaks
from tests.chaos.schedule import choose, schedule
from tests.chaos.side_by_side import SWITCH_SECONDS

SEED = 20_260
CHOSEN = (
    "P1/after_ack",
    "P3",
    "P4/fatal",
    "K1/kill",
    "K8/session",
    "K10/fatal",
    "K13",
    "D1/postmaster",
    "D1/killed_before_commit",
    "D2/answer",
    "D2/commit",
    "D3/40001",
    "D5/read_only",
    "O2/before_commit",
    "O3/zombie_commit",
    "O4/end_txn_answer",
    "S1/flips",
)


@pytest.fixture
def quick_switches() -> Iterator[None]:
    """Proxies and senders are threads of this process."""
    former = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_SECONDS)
    yield
    sys.setswitchinterval(former)


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_short_set_in_one_soak(tmp_path: Path, quick_switches: None) -> None:
    tmp_path.chmod(0o755)
    faults = [replace(one, soak="short") for one in choose(all_faults(), CHOSEN)]
    results = run_soaks(schedule(faults, seed=SEED, runs=1), make_world=make_world, say=print, keep=tmp_path)
    print(table(results.done))
    [judged] = results.judged
    assert judged.violations == [], judged
    assert {one.result for one in results.done} == {"ok"}, table(results.done)
    assert judged.counts is not None
    assert judged.counts.published > 0
