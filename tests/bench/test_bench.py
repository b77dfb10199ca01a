"""The bench runs: every figure gives a number, and the table and the JSON file have their forms.  No goal is judged here."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

import pytest

from bench.figures import Figure, Measured
from bench.groups import GROUPS, chosen
from bench.machine import about_machine, about_services
from bench.measuring import alternate, median_ratio, median_slope, percentile
from bench.peers_environment import make_environment
from bench.report import as_page, as_table, write
from bench.run import main, measure, read_options
from bench.sizes import QUICK
from bench.stage import Stage
from onceflow.embedded import EmbeddedServices

NAMES = [
    "bridge_vs_noop",
    "bridge_vs_sqlalchemy",
    "bridge_vs_flush",
    "processor_db_vs_per_event",
    "processor_vs_server",
    "processor_vs_per_event",
    "processor_sql_vs_per_event",
    "processor_vs_faststream",
    "processor_vs_faststream_batch",
    "processor_vs_dbos",
    "repeated_facts_vs_none",
    "repeated_facts_undeclared",
    "failing_1_percent_vs_none",
    "replay_vs_new",
    "relay_vs_polling",
    "relay_vs_producer",
    "end_to_end_p50_ms",
    "end_to_end_p99_ms",
    "poisoned_key_others_p99",
    "retried_key_others_p99",
    "two_processors_vs_one",
    "operations_vs_bare_sdk",
    "request_to_call_p50_ms",
    "verify_events_per_second",
    "verify_vs_scan",
    "verify_memory_mib",
    "heal_vs_api_limit",
    "healing_others_p99",
    "idle_reads",
    "memory_slope_mib_bridge",
    "memory_slope_mib_processor",
    "memory_slope_mib_relay",
]
FAST = Figure("fast", "a against b", 2.0)
SMALL = Figure("small", "how much it keeps", 1.0, at_most=True, unit="MiB")
SEEN = Figure("seen", "only reported", unit="ms")


@pytest.mark.timeout(
    600
)  # 50 seconds of CPU in 30 starts of processes: on a machine that does other work they take their time
@pytest.mark.long
def test_every_figure_gives_a_number(services: EmbeddedServices, tmp_path: Path) -> None:
    stage = Stage(
        folder=tmp_path,
        bootstrap=services.kafka_bootstrap,
        database_url=services.database_url,
        sizes=QUICK,
        peer_python=make_environment(print),
    )
    measured = measure(stage, ())
    assert [one.figure.name for one in measured] == NAMES
    for one in measured:
        assert math.isfinite(one.value), one
        assert one.value > 0 or one.figure.unit == "MiB", one
    about = {"settings": about_services(stage.bootstrap, stage.database_url)}
    assert about["settings"]["postgres fsync"] == "on"
    assert about["settings"]["postgres synchronous_commit"] == "on"
    write(measured, about=about, json_file=tmp_path / "latest.json", page=None)
    assert [name for name in json.loads((tmp_path / "latest.json").read_text()) if name != "about"] == NAMES


def test_a_goal_is_met_from_its_own_side() -> None:
    assert FAST.is_met(2.0) is True
    assert FAST.is_met(1.99) is False
    assert SMALL.is_met(1.0) is True
    assert SMALL.is_met(1.01) is False
    assert SEEN.is_met(1_000.0) is None


def measured_by_hand() -> Sequence[Measured]:
    rates = {"a": [10.0, 30.0], "b": [5.0, 10.0]}
    return [
        Measured(FAST, 2.5, rates, {"load's share": 0.25}),
        Measured(SMALL, 3.0),
        Measured(SEEN, 12.345),
    ]


def test_the_table_is_aligned_and_says_what_was_missed() -> None:
    assert as_table(measured_by_hand()).splitlines() == [
        "figure  goal    measured  ok   what",
        "fast    >= 2    2.50 x    yes  a against b",
        "small   <= 1    3.00 MiB  NO   how much it keeps",
        "seen    report  12.35 ms  -    only reported",
    ]


def test_the_file_has_plain_numbers_under_the_names(tmp_path: Path) -> None:
    page = tmp_path / "evidence" / "bench.md"
    write(measured_by_hand(), about={"machine": {"cores": "2"}}, json_file=tmp_path / "latest.json", page=page)
    found = json.loads((tmp_path / "latest.json").read_text())
    assert (found["fast"], found["small"], found["seen"]) == (2.5, 3.0, 12.345)
    assert found["about"]["machine"] == {"cores": "2"}
    assert found["about"]["figures"]["fast"] == {
        "goal": 2.0,
        "ok": True,
        "unit": "x",
        "rates": {"a": [10.0, 30.0], "b": [5.0, 10.0]},
        "notes": {"load's share": 0.25},
    }
    assert "| fast | >= 2 | 2.50 x | yes | a against b |" in page.read_text()
    assert "- fast: a 10, 30; b 5, 10; load's share 0.25" in as_page(measured_by_hand(), about={})


def test_sides_take_turns_and_the_order_turns_round() -> None:
    seen: list[str] = []

    def side(name: str, rate: float) -> float:
        seen.append(name)
        return rate

    rates = alternate({"a": lambda: side("a", 2.0), "b": lambda: side("b", 1.0)}, rounds=3)
    assert seen == ["a", "b", "b", "a", "a", "b"]
    assert rates == {"a": [2.0, 2.0, 2.0], "b": [1.0, 1.0, 1.0]}


def test_a_ratio_is_the_median_of_the_ratios_of_each_round() -> None:
    assert median_ratio([10.0, 20.0, 90.0], [10.0, 5.0, 30.0]) == 3.0


def test_a_slope_is_not_moved_by_one_spike() -> None:
    assert median_slope([(0.0, 10.0), (1.0, 12.0), (2.0, 90.0), (3.0, 16.0), (4.0, 18.0)]) == 2.0


def test_percentiles_are_values_that_were_seen() -> None:
    values = [float(number) for number in range(1, 101)]
    assert percentile(values, 50) == 50.0
    assert percentile(values, 99) == 99.0
    assert percentile([7.0], 99) == 7.0


def test_words_of_the_command_line() -> None:
    options = read_options(
        ["ONLY=bridge,relay_vs_polling", "ROUNDS=5", "EVENTS=7", "--quick", "--output", "there.json"]
    )
    assert options.only == ("bridge", "relay_vs_polling")
    assert (options.sizes.rounds, options.sizes.verify_events) == (5, 7)
    assert options.output == Path("there.json")
    assert [group.name for group in chosen(options.only)] == ["bridge", "relay"]
    assert chosen(()) == list(GROUPS)
    assert [group.name for group in chosen(["large"])] == ["large"]


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_large_bench_gives_its_numbers(tmp_path: Path) -> None:
    """With few markers; it needs no peers, and writes its own file."""
    output = tmp_path / "large.json"
    assert main(["--quick", "--output", str(output)], only=("large",)) == 0
    found = json.loads(output.read_text())
    assert list(found) == [
        "processor_10m_markers_vs_empty",
        "processor_db_10m_markers_vs_empty",
        "processor_beside_deletion",
        "about",
    ]
    notes = found["about"]["figures"]
    assert notes["processor_10m_markers_vs_empty"]["notes"]["markers"] == 5_000
    assert notes["processor_beside_deletion"]["notes"]["markers deleted per second"] > 0


@pytest.mark.parametrize("word", ["ONLY=nothing", "ONLY=", "ROUNDS=0", "ROUNDS=x", "--fast", "--output"])
def test_a_word_that_is_not_understood_is_told(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([word]) == 2
    assert "usage: python -m bench" in capsys.readouterr().err


def test_the_machine_is_named(tmp_path: Path) -> None:
    about = about_machine(tmp_path)
    assert int(about["cores"]) >= 1
    assert about["data_on"]
