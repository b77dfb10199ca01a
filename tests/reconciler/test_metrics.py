"""What a running reconciler tells on its metrics page: findings by kind as the table has them, and what it did."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import requests
from prometheus_client.parser import text_string_to_metric_families

from onceflow_schemas.findings import FINDING_KINDS
from tests.processor.processor_process import end, wait_until
from tests.reconciler.conftest import PLATFORM, ReconcilerRoad

ANSWER_SECONDS_MAX = 10


@contextmanager
def reconciler(road: ReconcilerRoad, state_file: Path) -> Iterator[str]:
    """Run ``onceflow reconcile`` with a look each half second; gives the address of its metrics."""
    settings = {"ONCEFLOW_RECONCILER_CYCLE_SECONDS": "0.5", "ONCEFLOW_RUNTIME_STATE_FILE": str(state_file)}
    command = [sys.executable, "-m", "onceflow", "reconcile"]
    process = subprocess.Popen(command, env={**road._environment, **settings})
    try:
        wait_until(lambda: state_file.exists() or process.poll() is not None, "the reconciler is ready")
        yield json.loads(state_file.read_text("utf-8"))["metrics_url"]
    finally:
        assert end(process) == 0


def samples(url: str) -> dict[tuple[str, ...], float]:
    """All values of onceflow, by name and labels."""
    page = requests.get(url, timeout=ANSWER_SECONDS_MAX).text
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name.startswith("onceflow_reconciler_")
    }


def test_open_findings_are_told_by_kind_until_they_are_healed(road: ReconcilerRoad, tmp_path: Path) -> None:
    road.customers(3)
    missed = ("onceflow_reconciler_open_findings", "missed_event")
    with reconciler(road, tmp_path / "state.json") as url:
        wait_until(lambda: samples(url).get(missed) == 3.0, "three events are missed")
        found = samples(url)
        assert {key[1] for key in found if key[0] == missed[0]} == set(FINDING_KINDS), "kinds without a finding are 0"
        assert found["onceflow_reconciler_missed_total", PLATFORM] == 3.0
        assert found["onceflow_reconciler_brought_total", PLATFORM] == 3.0
        with road.processor():
            wait_until(lambda: samples(url)[missed] == 0.0, "what was brought is done, and its findings are healed")
        assert samples(url)["onceflow_reconciler_looks_total", PLATFORM, ""] >= 2.0
