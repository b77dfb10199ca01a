"""The command as a user starts it: help, exit codes, one JSON object per answer, nothing secret."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from onceflow.command_app import app
from onceflow.command_line import main
from onceflow.database import connect
from onceflow.migrations import migrate
from onceflow_schemas.sql import migrations

HELP_SECONDS_MAX = 0.5
TRIES = 5
SERVICES = ("bridge", "process", "relay")


def run(*arguments: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "PYTHONPATH") if name in os.environ}
    return subprocess.run(
        [sys.executable, "-m", "onceflow", *arguments],
        cwd=folder,
        env={**kept, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_help_is_quick_and_names_every_command(tmp_path: Path) -> None:
    times = []
    text = ""
    for _ in range(TRIES):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = run("--help", folder=tmp_path)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        assert done.returncode == 0
        text = done.stdout
    for command in (
        "up",
        "demo",
        "bridge",
        "process",
        "relay",
        "migrate",
        "topics",
        "outcomes",
        "config",
        "doctor",
        "lanes",
        "progress",
    ):
        assert f"\n  {command} " in text
    # Processor time, the best of some tries: what is held is what is loaded, not how busy the machine is.
    assert min(times) < HELP_SECONDS_MAX


def test_help_loads_no_client_library(tmp_path: Path) -> None:
    code = (
        "import sys, runpy\nsys.argv = ['onceflow', '--help']\n"
        "try:\n    runpy.run_module('onceflow', run_name='__main__')\nexcept SystemExit:\n    pass\n"
        "heavy = {'confluent_kafka', 'pydantic', 'fastapi', 'uvicorn', 'stripe', 'structlog'} & set(sys.modules)\n"
        "sys.exit(f'loaded: {heavy}' if heavy else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "arguments", [(), ("nonsense",), ("topics",), ("bridge", "--prot", "1"), ("migrate", "--status", "--sql")]
)
def test_a_wrong_command_line_is_two(arguments: tuple[str, ...], tmp_path: Path) -> None:
    assert run(*arguments, folder=tmp_path, DATABASE_URL="host=127.0.0.1").returncode == 2


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name)


WRONG = [
    *((*command, "--nonsense") for command in commands(get_command(app))),
    ("nonsense",),
    ("operations", "nonsense"),
    ("operations", "show"),
    ("operations", "show", "nonsense"),
    ("operations", "list", "--state", "nonsense"),
    ("operations", "list", "--limit", "0"),
    ("simulate", "clock", "--advance", "bananas"),
    ("simulate", "fault", "lost_answer", "--times", "many"),
    ("migrate", "--status", "--sql"),
    ("doctor", "--part", "nobody"),
    ("up", "--ready-file", "no/ready.json"),
    ("bridge", "--set", "port"),
]


@pytest.mark.parametrize("arguments", WRONG, ids=" ".join)
def test_a_wrong_command_line_with_json_is_one_object(
    arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["onceflow", *arguments, "--json"])
    with pytest.raises(SystemExit) as end:
        main()
    said = capsys.readouterr()
    assert (end.value.code, said.err) == (2, "")
    [line] = said.out.splitlines()
    error = json.loads(line)["error"]
    assert error["code"] == "command_line_wrong"
    assert error["message"]
    assert error["hint"].startswith("`onceflow")


def test_json_changes_neither_help_nor_status(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["onceflow", "config", "show", "--json", "--help"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 0
    assert "Usage: onceflow config show" in capsys.readouterr().out


@pytest.mark.parametrize("ending", [KeyboardInterrupt(), SystemExit(130)])
def test_ctrl_c_ends_every_command_in_one_way(
    ending: BaseException, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted() -> None:
        raise ending

    monkeypatch.setattr("onceflow.command_line._run", interrupted)
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 130
    assert capsys.readouterr() == ("", "interrupted before it was done\n")


def test_the_version(tmp_path: Path) -> None:
    done = run("--version", folder=tmp_path)
    assert (done.returncode, done.stdout) == (0, "onceflow 0.1.0\n")


@pytest.mark.parametrize("command", SERVICES)
def test_a_service_without_settings_names_all_that_is_missing(command: str, tmp_path: Path) -> None:
    done = run(command, folder=tmp_path, DATABASE_URL="postgres//u:CANARY@h", STRIPE_API_KEY="sk_live_CANARY")
    assert done.returncode == 3
    assert done.stdout == ""
    assert done.stderr.startswith("error: settings_invalid: ")
    for name in ("deployment.id is not set", "kafka.bootstrap.servers is not set", "stripe.api_key is a live key"):
        assert name in done.stderr
    assert done.stderr.splitlines()[-1].startswith("hint: ")
    assert "CANARY" not in done.stderr
    assert "Traceback" not in done.stderr


def test_handlers_can_be_checked_alone(tmp_path: Path) -> None:
    good = run("process", "--check", "--handlers", "onceflow.examples.payments:handlers", folder=tmp_path)
    assert (good.returncode, good.stdout) == (0, "onceflow.examples.payments:handlers: the handlers can be used\n")
    (tmp_path / "shop_e.py").write_text(
        "from onceflow import Handlers\nhandlers = Handlers()\n@handlers.on('a b')\ndef one(event):\n    pass\n"
    )
    as_json = run("process", "--check", "--json", "--handlers", "onceflow.examples.payments:handlers", folder=tmp_path)
    assert json.loads(as_json.stdout)["usable"] is True
    bad = run("process", "--check", "--handlers", "shop_e:handlers", folder=tmp_path)
    assert bad.returncode == 3
    assert "handlers_invalid" in bad.stderr


def test_a_failure_with_json_is_one_object(tmp_path: Path) -> None:
    done = run("migrate", "--json", folder=tmp_path, DATABASE_URL="postgresql://u:CANARY@127.0.0.1:9/x")
    assert done.returncode == 5
    assert json.loads(done.stdout)["error"]["code"] == "database_unavailable"
    assert "CANARY" not in done.stdout + done.stderr


def test_config_show_masks_and_says_where_from(tmp_path: Path) -> None:
    (tmp_path / "onceflow.toml").write_text("[bridge]\nport = 1\nprot = 2\n")
    done = run(
        "config", "show", "--json", folder=tmp_path, STRIPE_WEBHOOK_SECRET="whsec_CANARY", ONCEFLOW_BRIDGE_HOST="h"
    )
    *shown, failure = map(json.loads, done.stdout.splitlines())
    assert failure["error"]["code"] == "settings_invalid"
    rows = {row["name"]: row for row in shown}
    assert rows["bridge.port"] == {"name": "bridge.port", "value": "1", "source": "file onceflow.toml", "secret": False}
    assert rows["bridge.host"]["source"] == "environment ONCEFLOW_BRIDGE_HOST"
    assert rows["stripe.webhook_secret"]["value"] == "***"
    assert "CANARY" not in done.stdout + done.stderr
    assert done.returncode == 3
    assert done.stderr == "fault: bridge.prot (onceflow.toml) is not a setting; did you mean port?\n"
    (tmp_path / "onceflow.toml").unlink()
    table = run("config", "show", "--set", "bridge.port=9", folder=tmp_path)
    assert table.returncode == 0
    assert "flag --set bridge.port" in table.stdout
    assert [line for line in table.stdout.splitlines() if line != line.rstrip()] == []
    assert run("config", "show", "--set", "bridge", folder=tmp_path).returncode == 2


def test_config_show_tells_what_a_service_would_refuse_of_what_is_given(tmp_path: Path) -> None:
    given = ["kafka.linger.mss=5", "kafka.compression.type=zzz", "kafka.security.protocol=PLAINTEXTT"]
    arguments = [word for one in given for word in ("--set", one)]
    done = run("config", "show", *arguments, folder=tmp_path, DATABASE_URL="postgres//u:CANARY@h")
    assert done.returncode == 3
    database, linger, compression, protocol = done.stderr.splitlines()
    assert database.startswith("fault: database.url (DATABASE_URL) is not an address")
    assert linger.endswith("is not a property of librdkafka; did you mean linger.ms?")
    assert 'Invalid value "zzz"' in compression
    assert 'Invalid value "PLAINTEXTT"' in protocol
    assert "CANARY" not in done.stdout + done.stderr
    plain = run("config", "show", "--set", "kafka.bootstrap.servers=broker.example.com:9092", folder=tmp_path)
    assert "fault: kafka.security.protocol is PLAINTEXT and broker.example.com" in plain.stderr


def test_flags_that_contradict_each_other_are_a_usage_error(tmp_path: Path) -> None:
    show = ("config", "show", "--json")
    live = run(*show, "--live", "--set", "stripe.mode=test", folder=tmp_path)
    assert live.returncode == 2
    refusal = "--live and --set stripe.mode contradict each other; keep one of them"
    assert refusal in json.loads(live.stdout)["error"]["message"]
    said = run("config", "show", "--live", "--set", "stripe.mode=test", folder=tmp_path)
    assert refusal in " ".join(said.stderr.split())
    assert run("bridge", "--port", "1", "--set", "bridge.port=2", folder=tmp_path).returncode == 2
    agreed = run(*show, "--live", "--set", "stripe.mode=live", folder=tmp_path, ONCEFLOW_STRIPE_MODE="test")
    rows = {row["name"]: row for row in map(json.loads, agreed.stdout.splitlines())}
    assert (agreed.returncode, rows["stripe.mode"]["value"]) == (0, "live")
    assert rows["stripe.mode"]["source"] == "flag --live"


def test_migrate_from_nothing_to_this_release(empty_database: str, tmp_path: Path) -> None:
    count = len(migrations())
    before = run("migrate", "--status", "--json", folder=tmp_path, DATABASE_URL=empty_database)
    assert before.returncode == 4
    assert [json.loads(line)["state"] for line in before.stdout.splitlines()] == ["pending"] * count
    assert "schema_missing" in before.stderr
    sql = run("migrate", "--sql", folder=tmp_path, DATABASE_URL=empty_database)
    assert "CREATE TABLE onceflow.inbox" in sql.stdout
    done = run("migrate", "--json", folder=tmp_path, DATABASE_URL=empty_database)
    assert done.returncode == 0
    assert json.loads(done.stdout) == {"applied": [f"{one.version}_{one.name}" for one in migrations()]}
    again = run("migrate", folder=tmp_path, DATABASE_URL=empty_database)
    assert (again.returncode, again.stdout) == (0, "nothing to do: the schema is that of this release\n")
    after = run("migrate", "--status", folder=tmp_path, DATABASE_URL=empty_database)
    assert after.returncode == 0
    assert "applied" in after.stdout


def test_topics_plan_and_apply(empty_database: str, kafka_bootstrap: str, tmp_path: Path) -> None:
    mark = tmp_path.name.replace("_", "-")
    settings = {
        "DATABASE_URL": empty_database,
        "ONCEFLOW_KAFKA_BOOTSTRAP_SERVERS": kafka_bootstrap,
        "ONCEFLOW_TOPICS_EVENTS": f"events.{mark}",
        "ONCEFLOW_TOPICS_OUTCOMES": f"outcomes.{mark}",
        "ONCEFLOW_TOPICS_PARTITIONS": "2",
    }
    early = run("topics", "plan", "--json", folder=tmp_path, **settings)
    assert early.returncode == 4
    assert json.loads(early.stdout)["error"]["code"] == "schema_missing"
    with connect(empty_database, role="test") as connection:
        migrate(connection)
    plan = run("topics", "plan", "--json", folder=tmp_path, **settings)
    assert plan.returncode == 1
    assert [json.loads(line)["subject"] for line in plan.stdout.splitlines()] == [
        f"events.{mark}", f"outcomes.{mark}", "onceflow.lane",
    ]  # fmt: skip
    applied = run("topics", "apply", folder=tmp_path, **settings)
    assert applied.returncode == 0
    assert f"topics: made events.{mark} with 2 partitions" in applied.stderr
    settled = run("topics", "plan", folder=tmp_path, **settings)
    assert (settled.returncode, settled.stdout) == (0, "nothing differs: topics and lanes are as the settings say\n")
    refused = run("topics", "apply", "--json", "--set", "topics.partitions=3", folder=tmp_path, **settings)
    assert refused.returncode == 5
    assert json.loads(refused.stdout)["error"]["code"] == "topic_mismatch"


def test_withholding_is_a_dry_run_until_it_is_asked_for(fresh_database: str, tmp_path: Path) -> None:
    with connect(fresh_database, role="test") as connection:
        migrate(connection)
        connection.execute(
            "INSERT INTO onceflow.lane (lane, head_seq, published_seq, topic_id, state) VALUES (0, 2, 0, 't', 'stopped:unpublishable')"
        )
        connection.execute(
            "INSERT INTO onceflow.outcome (lane, seq, outcome_id, ce_id, type, key, value, cause)"
            " SELECT 0, n, gen_random_uuid(), gen_random_uuid(), 'a.b', 'k', 'CANARY', 'event:x' FROM generate_series(1, 2) n"
        )
    arguments = ("outcomes", "withhold", "0", "1", "--code", "too_large", "--json")
    dry = run(*arguments, folder=tmp_path, DATABASE_URL=fresh_database)
    assert dry.returncode == 0
    shown = json.loads(dry.stdout)
    assert (shown["executed"], shown["type"], shown["bytes"], shown["withheld"]) == (False, "a.b", 6, None)
    assert "CANARY" not in dry.stdout
    second = run("outcomes", "withhold", "0", "2", "--code", "too_large", folder=tmp_path, DATABASE_URL=fresh_database)
    assert second.returncode == 1
    assert "lane 0 stands in front of 1, not of 2" in second.stderr
    done = run(*arguments, "--execute", folder=tmp_path, DATABASE_URL=fresh_database)
    assert done.returncode == 0
    with connect(fresh_database, role="test") as connection:
        rows = connection.execute("SELECT withheld FROM onceflow.outcome ORDER BY seq").fetchall()
        assert rows == [("too_large",), (None,)]
        assert connection.execute("SELECT state FROM onceflow.lane").fetchone() == ("ok",)
    again = run(*arguments, "--execute", folder=tmp_path, DATABASE_URL=fresh_database)
    assert again.returncode == 1
    assert json.loads(again.stdout)["error"]["code"] == "withholding_refused"
    missing = run("outcomes", "withhold", "0", "9", "--code", "x", folder=tmp_path, DATABASE_URL=fresh_database)
    assert "there is no outcome 9 in lane 0" in missing.stderr
    assert (
        run("outcomes", "withhold", "0", "9", "--code", "X!", folder=tmp_path, DATABASE_URL=fresh_database).returncode
        == 2
    )
