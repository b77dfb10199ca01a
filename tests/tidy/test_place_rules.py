"""Each rule on places convicts an offence planted for it, and lets the nearest right thing pass."""

from __future__ import annotations

import pytest

from tests.tidy import place_rules
from tests.tidy.offence import Offence, Source

PRODUCT = "processor/onceflow_processor/consumer.py"
TEST = "tests/processor/test_consumer.py"


def lines(offences: list[Offence]) -> list[int]:
    """The lines of the offences."""
    return [offence.line for offence in offences]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 1",
        "  select id from onceflow.inbox",
        "select count(*)",
        "INSERT INTO a VALUES (1)",
        "UPDATE onceflow.lane SET head_seq = 1",
        "update lane set head_seq = 1",
        "DELETE FROM onceflow.batch_guard",
        "delete from lane where lane = 1",
        "CREATE TABLE a (b int)",
        "create table if not exists a (b int)",
        "CREATE UNIQUE INDEX CONCURRENTLY a ON b (c)",
        "CREATE OR REPLACE FUNCTION f() RETURNS int",
        "ALTER SYSTEM SET fsync = off",
        "DROP DATABASE a",
        "WITH item AS (SELECT 1) SELECT * FROM item",
        "with item as materialized (select 1) select 1",
        "LOCK TABLE a",
        "TRUNCATE a",
        "SET LOCAL lock_timeout = '1s'",
        "SET search_path = a",
        "SHOW fsync",
        "SAVEPOINT chunk",
        "ROLLBACK TO SAVEPOINT chunk",
        "BEGIN; SELECT 1",
        "-- why\nSELECT 1",
        "/* why */ SELECT 1",
        "COPY a FROM STDIN",
        "VALUES (1)",
        "DO $$ BEGIN END $$",
        "LISTEN a",
    ],
)
def test_sql_is_convicted(text: str) -> None:
    assert place_rules.is_sql(text)


@pytest.mark.parametrize(
    "text",
    [
        "BEGIN",
        "COMMIT",
        "ROLLBACK",
        "Select a topic from the list",
        "Update the settings file and set the port",
        "Set retries to 3",
        "With a limit as small as this (see above)",
        "Delete from the list what is not needed.",
        "Create the topic, then start again",
        "selected",
        "Call the operator (again)",
        "",
    ],
)
def test_sentences_and_bare_words_pass(text: str) -> None:
    assert not place_rules.is_sql(text)


def test_sql_in_python_looks_into_all_kinds_of_strings_but_docstrings() -> None:
    text = (
        '"""SELECT 1 is explained here."""\n'
        'PLAIN = "SELECT 1"\n'
        'FORMED = f"SELECT {PLAIN} FROM a"\n'
        'JOINED = "UPDATE a " "SET b = 1"\n'
        'RAW = b"DELETE FROM a"\n'
        'END = "COMMIT"\n'
        "def load():\n"
        '    """INSERT INTO is a word here."""\n'
        '    run(sql.SQL("TRUNCATE {}").format(name))\n'
    )
    assert sorted(lines(place_rules.sql_in_python(Source(PRODUCT, text)))) == [2, 3, 4, 5, 9]


def test_environment_read() -> None:
    text = (
        "import os\n"
        "from os import getenv\n"
        "from pydantic_settings import BaseSettings\n"
        "a = os.environ['A']\n"
        "b = os.getenv('B')\n"
        "c = os.environb\n"
        "option = typer.Option(envvar='D')\n"
        "d = os.getpid()\n"
        "e = self.environ\n"
    )
    assert lines(place_rules.environment_read(Source(PRODUCT, text))) == [2, 3, 4, 5, 6, 7]


def test_environment_rule_applies_to_all_of_the_product_but_the_settings() -> None:
    rule = next(rule for rule in place_rules.RULES if rule.name == "environment_read")
    assert rule.applies(Source(PRODUCT, ""))
    assert rule.applies(Source("console/onceflow/commands/up.py", ""))
    assert not rule.applies(Source("console/onceflow/settings.py", ""))
    assert not rule.applies(Source(TEST, ""))


def test_blind_sleep() -> None:
    text = (
        "import time\n"
        "from time import sleep as doze\n"
        "time.sleep(1)\n"
        "doze(1)\n"
        "clock.sleep(1)\n"
        "sleep(1)\n"
        "code = 'time.sleep(1)'\n"
    )
    assert lines(place_rules.blind_sleep(Source(TEST, text))) == [3, 4]


def test_a_sleep_between_two_looks_at_a_condition_passes() -> None:
    text = (
        "import time\n"
        "def wait_for(found, *, limit_seconds):\n"
        "    time.sleep(0.02)\n"
        "def wait_forever(found):\n"
        "    time.sleep(0.02)\n"
        "def doze(limit_seconds):\n"
        "    time.sleep(0.02)\n"
    )
    assert lines(place_rules.blind_sleep(Source(TEST, text))) == [5, 7]


def test_left_out_tests() -> None:
    text = (
        "from pytest import importorskip\n"
        "@pytest.mark.skipif(True, reason='')\n"
        "def test_a():\n"
        "    pytest.skip('no')\n"
        "@pytest.mark.xfail\n"
        "def test_b():\n"
        "    reader.skip(3)\n"
    )
    assert lines(place_rules.left_out_test(Source(TEST, text))) == [1, 2, 4, 5]


def test_unfinished() -> None:
    text = "def a():\n    raise NotImplementedError\ndef b():\n    return NotImplemented\n"
    assert lines(place_rules.unfinished(Source(PRODUCT, text))) == [2]


def test_checker_knows_product() -> None:
    text = (
        "import json\n"
        "import onceflow_schemas.identity\n"
        "from onceflow_schemas.identity import Identity\n"
        "from onceflow import Handlers\n"
        "from tests.checker import ledger\n"
    )
    assert lines(place_rules.checker_knows_product(Source("tests/checker/topics.py", text))) == [2, 3, 4]
