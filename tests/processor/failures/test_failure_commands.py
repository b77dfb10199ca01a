"""``onceflow parked`` and ``onceflow quarantine`` as a person types them: lists, groups, dry runs, refusals, exit codes."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from onceflow.command_app import app
from onceflow_schemas.failure import Failure
from tests.processor.failures.conftest import ACCOUNT, SHOWN_TOPIC_ID, TOPIC, Desk


def run(desk: Desk, *arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments), env={"DATABASE_URL": desk.url})


def lines(desk: Desk, *arguments: str) -> list[dict[str, Any]]:
    done = run(desk, *arguments, "--json")
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


def code_of(done: Result) -> str:
    assert isinstance(done.exception, Failure), done.output
    return done.exception.code


@pytest.fixture
def planted(desk: Desk) -> Desk:
    """A key blocked by number 25 with two behind it, a key that waits for its next try, and two strangers."""
    desk.quarantined("evt_25", offset=25, key="in_1", headers=json.dumps([["ce_id", b64(b"evt_25")], ["odd", None]]))
    desk.parked("evt_26", key="in_1", offset=26)
    desk.parked("evt_27", key="in_1", offset=27)
    desk.key("in_2", "retry", "evt_9", due="2099-01-01Z")
    desk.parked("evt_9", key="in_2", offset=9, failed=True, type="charge.refunded")
    desk.stranger(3)
    desk.stranger(4)
    return desk


def b64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def test_a_list_holds_no_content(planted: Desk) -> None:
    for command in ("parked", "quarantine"):
        for arguments in ([command, "list"], [command, "list", "--json"], [command, "list", "--groups"]):
            output = run(planted, *arguments).output
            assert "example.com" not in output
            assert "Traceback" not in output
            assert '"id": "evt"' not in output


def test_the_lists(planted: Desk) -> None:
    waits = {one["event_id"]: one for one in lines(planted, "parked", "list")}
    assert set(waits) == {"evt_26", "evt_27", "evt_9"}
    assert (waits["evt_9"]["is_head"], waits["evt_9"]["attempts"], waits["evt_9"]["error"]) == (True, 1, "TimeoutError")
    assert waits["evt_26"]["id"] == f"{ACCOUNT}/test/evt_26"
    kept = lines(planted, "quarantine", "list")
    assert [one["id"] for one in kept] == [f"{SHOWN_TOPIC_ID}/0/{offset}" for offset in (4, 3, 25)]
    assert (kept[2]["blocks"], kept[2]["order_key"], kept[2]["state"]) == (True, f"{ACCOUNT}/in_1", "quarantined")
    table = run(planted, "quarantine", "list", "--limit", "2")
    assert table.stdout.splitlines()[0].split()[:5] == ["id", "type", "code", "handler", "error"]
    assert "2 of 3" in table.stderr


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (["--type", "invoice.paid"], [25]),
        (["--type", "invoice.*"], [25]),
        (["--type", "invoice.pai.*"], []),
        (["--type", "charge.*"], []),
        (["--handler", "bookkeeping", "--code", "handler_failed", "--error", "KeyError"], [25]),
        (["--group", "invoice.paid bookkeeping KeyError"], [25]),
        (["--group", " - unauthenticated"], [4, 3]),
        (["--account", ACCOUNT, "--key", f"{ACCOUNT}/in_1", "--event-id", "evt_25"], [25]),
        (["--topic", TOPIC, "--partition", "0", "--offset-range", "4..25"], [4, 25]),
        (["--topic", TOPIC, "--partition", "0", "--offset-range", "..3"], [3]),
        (["--topic", TOPIC, "--partition", "1"], []),
        (["--without-identity"], [4, 3]),
        (["--since", "2020-01-01T00:00:00Z", "--until", "2020-01-02T00:00:00Z"], []),
        (["--since", "2020-01-01T00:00:00Z"], [4, 3, 25]),
        (["--type", "' OR 1=1--"], []),
    ],
)
def test_filters(planted: Desk, arguments: list[str], found: list[int]) -> None:
    assert [one["offset"] for one in lines(planted, "quarantine", "list", *arguments)] == found


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (["--type", "charge.refunded"], ["evt_9"]),
        (["--type", "invoice.*"], ["evt_27", "evt_26"]),
        (["--group", "charge.refunded bookkeeping TimeoutError"], ["evt_9"]),
        (["--key", f"{ACCOUNT}/in_1"], ["evt_27", "evt_26"]),
        (["--key", f"{ACCOUNT}/in_1' OR '1'='1"], []),
        (["--topic", TOPIC, "--partition", "0", "--offset-range", "9..26"], ["evt_9", "evt_26"]),
    ],
)
def test_filters_of_parked_ones(planted: Desk, arguments: list[str], found: list[str]) -> None:
    assert [one["event_id"] for one in lines(planted, "parked", "list", *arguments)] == found


def test_groups(planted: Desk) -> None:
    strangers, failed = lines(planted, "quarantine", "list", "--groups")
    assert (strangers["group"], strangers["events"]) == (" - unauthenticated", 2)
    assert strangers["sample"] == f"{TOPIC}/0/4"
    assert lines(planted, "quarantine", "show", strangers["sample"])[0]["offset"] == 4
    assert (failed["group"], failed["events"], failed["sample"]) == ("invoice.paid bookkeeping KeyError", 1, "evt_25")
    assert failed["first_at"] == failed["last_at"]
    assert "2 of 2 groups, 3 events in all" in run(planted, "quarantine", "list", "--groups").stderr


def test_one_is_told_whole(planted: Desk) -> None:
    [one] = lines(planted, "quarantine", "show", "evt_25")
    assert one["detail"] == "KeyError: 'tax of ada@example.com'"
    assert one["record"]["value"] == {"bytes": 13, "shown": 13, "as": "text", "content": '{"id": "evt"}'}
    assert one["record"]["headers"] == [["ce_id", "evt_25"], ["odd", None]]
    assert one["behind"] == {
        "events": 2,
        "first": [
            {"event_id": "evt_26", "type": "invoice.paid", "events": 2},
            {"event_id": "evt_27", "type": "invoice.paid", "events": 2},
        ],
    }
    assert one["decisions"] == {"retry": "redrive", "skip": "skip_and_go_on"}
    assert f"`onceflow quarantine retry {SHOWN_TOPIC_ID}/0/25 --reason '...' --execute`" in one["next_step"]
    text = run(planted, "quarantine", "show", f"{TOPIC}/0/25").stdout
    for said in ("Traceback ...", '{"id": "evt"}', "ce_id: evt_25", "odd: (null)", "waiting behind it: 2", "evt_26"):
        assert said in text, said


@pytest.mark.parametrize(("command", "event"), [("quarantine", "evt_0"), ("parked", "evt_1")])
def test_how_many_more_wait_behind_one_is_said(desk: Desk, command: str, event: str) -> None:
    desk.quarantined("evt_0", offset=0, key="in_1")
    for number in range(1, 27):
        desk.parked(f"evt_{number}", key="in_1", offset=number)
    text = run(desk, command, "show", event).stdout.splitlines()
    count = 26 if command == "quarantine" else 25
    begin = text.index(f"waiting behind it: {count}")
    assert text[begin + 20].split()[0].startswith("evt_")
    assert text[begin + 21] == f"  and {count - 20} more"


@pytest.mark.parametrize(
    ("event", "said"),
    [
        ("evt_26", f"Its key waits for a decision about {ACCOUNT}/test/evt_25"),
        ("evt_9", "It goes on by itself. To decide: `onceflow parked retry"),
    ],
)
def test_the_next_step_of_a_parked_one(planted: Desk, event: str, said: str) -> None:
    assert said in run(planted, "parked", "show", event).stdout


def test_bytes_that_are_no_text_are_shown_as_base64_and_long_ones_in_part(desk: Desk) -> None:
    desk.quarantined("evt_1", offset=1, value=b"\x1b[2J\xff" * 10)
    desk.quarantined("evt_2", offset=2, value="é".encode() * 20_000)
    [one] = lines(desk, "quarantine", "show", "evt_1")
    assert one["record"]["value"] == {"bytes": 50, "shown": 50, "as": "base64", "content": b64(b"\x1b[2J\xff" * 10)}
    [one] = lines(desk, "quarantine", "show", "evt_2")
    value = one["record"]["value"]
    assert (value["bytes"], value["shown"], value["as"], value["content"]) == (40_000, 16_384, "text", "é" * 8_192)


def test_nothing_that_a_terminal_would_obey_is_written(desk: Desk) -> None:
    desk.quarantined(
        "evt_1", offset=1, detail="ValueError: \x1b]0;owned\x07", headers=json.dumps([["\x1b[2J", b64(b"x")]])
    )
    assert "\x1b" not in run(desk, "quarantine", "show", "evt_1").stdout


def test_an_id_that_names_nothing_or_several(desk: Desk) -> None:
    for command in ("parked", "quarantine"):
        for arguments in (
            ["show", "evt_0"],
            ["retry", "evt_0", "t/0/1"],
            ["skip", "' OR 1=1--", "--execute", "--reason", "x"],
        ):
            done = run(desk, command, *arguments)
            assert (code_of(done), done.exit_code) == ("failed_event_missing", 1)
    desk.quarantined("evt_1", offset=1)
    desk.run(
        'INSERT INTO onceflow.quarantine (topic_id, partition, "offset", topic, account, mode, event_id, code, detail, headers)'
        " SELECT topic_id, 1, 5, topic, account, mode, event_id, 'content_conflict', '', '[]' FROM onceflow.quarantine"
    )
    done = run(desk, "quarantine", "show", "evt_1")
    assert "say which: topic-id_1/1/5, topic-id_1/0/1" in str(done.exception)


def test_a_dry_run_tells_and_changes_nothing(planted: Desk) -> None:
    [told] = lines(planted, "quarantine", "retry")
    sample = told.pop("sample")
    assert told == {
        "decision": "quarantine retry",
        "executed": False,
        "events": 3,
        "changed": 3,
        "verdicts": {"admit_again": 2, "redrive": 1},
    }
    assert [one["offset"] for one in sample] == [4, 3, 25]
    text = run(planted, "quarantine", "retry", "--type", "invoice.paid").stdout
    assert "1  parked at its place in its key and tried at once" in text
    assert "dry run: nothing was changed" in text
    assert (planted.audits(), set(planted.decisions().values())) == ([], {None})


def test_with_execute_it_is_done_and_told_once(planted: Desk) -> None:
    arguments = ("quarantine", "retry", "evt_25", "--execute", "--reason", " mended ")
    [told] = lines(planted, *arguments)
    assert (told["executed"], told["changed"], told["verdicts"]) == (True, 1, {"redrive": 1})
    [audit] = planted.rows("SELECT who, reason FROM onceflow.audit")
    assert ("@" in audit["who"], audit["reason"]) == (True, "mended")
    again = run(planted, *arguments)
    assert (code_of(again), again.exit_code) == ("decision_refused", 1)
    assert "it was retried already" in str(again.exception)
    [shown] = lines(planted, "parked", "show", "evt_25")
    assert [(one["action"], one["reason"]) for one in shown["audit"]] == [("quarantine_retry", "mended")]
    assert (
        lines(planted, "parked", "skip", "--key", f"{ACCOUNT}/in_1", "--execute", "--reason", "no")[0]["changed"] == 3
    )
    assert planted.keys() == {"in_2": ("retry", "evt_9", False)}
    done = run(planted, "parked", "retry", "--all", "--execute", "--reason", "now")
    assert "1  tried at once instead of at its time" in done.stdout
    assert done.stdout.splitlines()[-1] == "done"


@pytest.mark.parametrize("command", ["parked", "quarantine"])
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["skip", "--execute", "--reason", "x"], "say --all if you do"),
        (["retry", "--execute", "--reason", "x"], "say --all if you do"),
        (["skip", "--all", "--execute"], "--execute needs --reason"),
        (["skip", "--all", "--execute", "--reason", "  "], "--execute needs --reason"),
        (["skip", "evt_1", "--type", "x"], "not by two of them"),
        (["skip", "evt_1", "--all"], "not by two of them"),
        (["skip", "--type", "x", "--all"], "not by two of them"),
        (["list", "--topic", "t", "--partition", "0", "--offset-range", "-5..9"], "--offset-range is -5"),
        (["list", "--topic", "t", "--partition", "0", "--offset-range", "9..5"], "begins at 9 and ends before it"),
        (["list", "--offset-range", "1-2"], "--offset-range takes FIRST..LAST"),
        (["list", "--since", "yesterday", "--until", "2026-01-01"], "--since takes an RFC 3339 time"),
        (["list", "--since", "2026-01-02T00:00:00Z", "--until", "2026-01-01T00:00:00Z"], "--since is not before"),
        (["list", "--type", "a\0b"], "--type holds a NUL character"),
        (["retry", "--type", "invoice*"], "--type takes a type, or a prefix and .*"),
        (["retry", "--code", "handler_*"], "--code is compared as a whole"),
        (["list", "--key", "x" * 10_000_000], "--key is longer than 1000 characters"),
        (["list", "--limit", "0"], "--limit"),
        (["show", "x" * 2_000], "an id is longer than 1000 characters"),
        (["skip", "a\0"], "an id holds a NUL character"),
        (["skip", *["evt_1"] * 1_001], "more than 1000 ids were given"),
        (["list", "--partition", "x"], "--partition"),
    ],
)
def test_a_wrong_command_line(desk: Desk, command: str, arguments: list[str], said: str) -> None:
    desk.stranger(1)
    done = run(desk, command, *arguments)
    assert done.exit_code == 2, done.output
    assert said in " ".join(done.output.replace("│", " ").split())
    assert desk.decisions() == {1: None}


def test_all_that_is_wrong_is_told_at_once(desk: Desk) -> None:
    done = run(
        desk,
        "quarantine",
        "list",
        "--type",
        "",
        "--partition",
        "-1",
        "--since",
        "x",
        "--without-identity",
        "--account",
        "a",
    )
    text = " ".join(done.output.replace("│", " ").split())
    for said in ("--type is empty", "--partition is -1", "--partition needs --topic", "--since takes", "contradicts"):
        assert said in text


def test_a_filter_that_means_nothing_does_nothing(desk: Desk) -> None:
    done = run(desk, "quarantine", "skip", "--type", "x", "--execute", "--reason", "y")
    assert done.exit_code == 0
    assert done.stdout.splitlines() == ["nothing of that kind is there", "done"]
