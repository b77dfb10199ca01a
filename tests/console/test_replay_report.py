"""How far a replay is, as a person reads it."""

from __future__ import annotations

import pytest

from onceflow.replay_report import ProgressLine, progress_text, stretch_objects, tally_rows
from onceflow_processor.replay.looking import Passed
from onceflow_processor.replay.request import Stretch
from onceflow_processor.replay.tally import Tally


def test_one_line_tells_share_records_rate_and_time_left() -> None:
    assert progress_text(250, 1_000, records=500, seconds=10.0) == (
        "[#######.......................]  25%  500 records  50/s  0:00:30 left"
    )
    assert progress_text(0, 1_000, records=0, seconds=0.0).endswith("0 records  0/s  ? left")
    assert progress_text(0, 0, records=0, seconds=1.0).startswith("[##############################] 100%")
    assert progress_text(1, 7_323, records=1, seconds=1.0).endswith("2:02:02 left")


@pytest.mark.parametrize(("terminal", "shown"), [(True, "\r\x1b[K["), (False, "[")])
def test_a_terminal_gets_a_bar_and_a_pipe_lines_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *, terminal: bool, shown: str
) -> None:
    now = [100.0]
    monkeypatch.setattr("onceflow.replay_report.time.monotonic", lambda: now[0])
    line = ProgressLine(terminal=terminal)
    passed = Passed(5, 10, Tally(records=5))
    line.told(passed)
    assert capsys.readouterr().err == ""
    now[0] += 6.0
    line.told(passed)
    line.told(passed)
    written = capsys.readouterr().err
    assert written.startswith(shown)
    assert written.count("50%") == 1
    line.end()
    assert capsys.readouterr().err == ("\n" if terminal else "")


def test_the_table_has_the_fates_that_occur() -> None:
    tally = Tally(fates={"run": 2, "skipped": 1}, types={"b": {"run": 2}, "a": {"skipped": 1}})
    assert tally_rows(tally) == (("type", "run", "skipped"), [("a", "0", "1"), ("b", "2", "0")])
    assert stretch_objects([Stretch(1, 2, 3)]) == [{"partition": 1, "from_offset": 2, "to_offset": 3}]
