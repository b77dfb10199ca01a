"""The demo itself, small: every part dies, the count is right; and when it cannot run, its last line says so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from onceflow.demo.breaking import PARTS
from onceflow.demo.run import DemoOptions, run
from onceflow.settings import environment_for_child, process_environment

REQUESTS = 300


def environment(cache_dir: Path) -> dict[str, str]:
    return environment_for_child(process_environment(), {}, overrides={"runtime.cache_folder": cache_dir})


@pytest.mark.long  # .ci/run runs `make demo` itself
def test_small_demo_is_right(tmp_path: Path, cache_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = DemoOptions(environment=environment(cache_dir), requests=REQUESTS, folder=tmp_path / "demo", as_json=True)
    code = run(options)
    said = capsys.readouterr()
    report = json.loads(said.out)
    assert code == 0, said.err + said.out
    assert report["line"].startswith("demo: ok - ")
    assert report["line"].endswith(", 0 lost, 0 doubled")
    assert sorted(death["part"] for death in report["deaths"]) == sorted(PARTS)
    assert report["distinct"] == report["processed"] + report["ignored"] + report["quarantined"]
    assert report["quarantined"] == 8
    assert (report["operations"], report["effects"], report["declined"], report["in_review"]) == (37, 36, 1, 0)
    assert report["payments_sent"] == report["payments_published"] != {}
    assert (report["redriven"], report["replay_runs"]) == (3, 0)
    assert "kill -9 kafka" in said.err


def test_demo_that_cannot_start_says_so(tmp_path: Path, cache_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = environment(cache_dir) | {"ONCEFLOW_BRIDGE_PROT": "8080"}
    assert run(DemoOptions(environment=wrong, requests=REQUESTS, folder=tmp_path / "demo")) == 1
    said = capsys.readouterr()
    last = said.out.splitlines()[-1]
    assert last.startswith("demo: FAILED - service_failed: `onceflow up` ended with 3")
    assert "ONCEFLOW_BRIDGE_PROT" in last
    assert str(tmp_path / "demo") in said.err
