"""How results and failures are written."""

from __future__ import annotations

import json

import pytest

from onceflow.results import say, write_failure, write_object, write_ready, write_table
from onceflow_schemas.failure import Misconfigured, Unavailable


def test_an_object_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    write_object({"a": "ä\n", "b": [1]})
    assert capsys.readouterr().out == '{"a": "ä\\n", "b": [1]}\n'


def test_a_service_that_is_ready_says_so_even_when_nobody_reads_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_ready({"pid": 1})
    assert capsys.readouterr().out == '{"ready": true, "pid": 1}\n'

    def broken(_text: str) -> int:
        raise BrokenPipeError

    monkeypatch.setattr("sys.stdout.write", broken)
    write_ready({"pid": 1})


def test_a_table_is_aligned_and_not_folded_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    write_table(("name", "value"), [("a", "x" * 200), ("longer", "[bold]y")])
    write_table(("name", "value"), [("b", "")])
    assert capsys.readouterr().out.splitlines() == [
        "name    value",
        "a       " + "x" * 200,
        "longer  [bold]y",
        "name  value",
        "b",
    ]


def test_a_row_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    write_table(("name", "value"), [("a", "ERROR: no\nDETAIL: Key (x)\r\nHINT: y"), ("b", "")])
    assert capsys.readouterr().out.splitlines() == ["name  value", "a     ERROR: no DETAIL: Key (x) HINT: y", "b"]


def test_progress_goes_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    say("working")
    assert capsys.readouterr() == ("", "working\n")


def test_a_failure_has_code_message_faults_and_next_step(capsys: pytest.CaptureFixture[str]) -> None:
    write_failure(Unavailable("broker_unavailable", "Kafka is away", "Start it."), as_json=False)
    assert capsys.readouterr() == ("", "error: broker_unavailable: Kafka is away\nhint: Start it.\n")
    many = Misconfigured("settings_invalid", "2 settings are not usable", "Mend them.", faults=("a", "b"))
    write_failure(many, as_json=False)
    assert capsys.readouterr().err == (
        "error: settings_invalid: 2 settings are not usable\n  - a\n  - b\nhint: Mend them.\n"
    )


def test_faults_that_are_the_message_too_are_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    both = Misconfigured("handlers_invalid", "a; b", "Mend them.", faults=("a", "b"))
    write_failure(both, as_json=False)
    assert capsys.readouterr().err == "error: handlers_invalid: 2 faults\n  - a\n  - b\nhint: Mend them.\n"
    write_failure(both, as_json=True)
    assert json.loads(capsys.readouterr().out)["error"]["message"] == "2 faults"
    one = Misconfigured("handlers_invalid", "a", "Mend it.")
    write_failure(one, as_json=False)
    assert capsys.readouterr().err == "error: handlers_invalid: a\nhint: Mend it.\n"


def test_a_failure_as_json_is_one_object_on_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    write_failure(Misconfigured("settings_invalid", "m", "h", faults=("a", "b")), as_json=True)
    out, err = capsys.readouterr()
    assert json.loads(out) == {"error": {"code": "settings_invalid", "message": "m", "hint": "h", "faults": ["a", "b"]}}
    assert err == ""
