"""Short sets of the most valuable faults, one after another on one running system, with a seed that never changes.

The whole catalogue is ``make chaos``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
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


OF_OPERATIONS = (
    "X1/after_claim_success",
    "X1/after_answer_lost_answer",
    "X2/request_lost",
    "X3/nothing",
    "X4/told",
    "X6/revoked",
    "X7",
    "X9/late",
    "X10/charge_create",
    "X10/refund",
    "X11",
    "X13/webhook_first",
    "X14/refund_returned",
    "X15/doubled",
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
    run_short(CHOSEN, soak="short", folder=tmp_path)


@pytest.mark.long
@pytest.mark.soak
@pytest.mark.timeout(600)
def test_short_set_of_operations(tmp_path: Path, quick_switches: None) -> None:
    run_short(OF_OPERATIONS, soak="operations_short", folder=tmp_path)


def run_short(chosen: Sequence[str], *, soak: str, folder: Path) -> None:
    """Run these faults one after another in one world; all must happen, and nothing may be broken."""
    folder.chmod(0o755)
    faults = [replace(one, soak=soak) for one in choose(all_faults(), chosen)]
    results = run_soaks(schedule(faults, seed=SEED, runs=1), make_world=make_world, say=print, keep=folder)
    print(table(results.done))
    [judged] = results.judged
    assert judged.violations == [], judged
    assert {one.result for one in results.done} == {"ok"}, table(results.done)
    assert judged.counts is not None
    assert judged.counts.published > 0
