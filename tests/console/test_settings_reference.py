"""The reference page says what the model says."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from onceflow.input_settings import FIELDS
from onceflow.settings import SettingSources, read_settings
from onceflow.settings_model import setting_names
from onceflow.settings_reference import page_with_tables, settings_tables
from onceflow.settings_sources import from_table

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "settings.md"


def test_the_page_is_up_to_date() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert page_with_tables(text) == text, "run: python -m onceflow.settings_reference docs/reference/settings.md"


def test_every_setting_has_a_row_with_its_variable_and_meaning() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.+?) \| (.+?) \| (.+?) \| (.+?) \|$", settings_tables(), re.MULTILINE)
    assert len(rows) == len(setting_names()) - 1, "inputs has a table of its own"
    assert re.findall(r"^\| `(\w+)` \| [^|]+ \| [^|]+ \|$", settings_tables(), re.MULTILINE) == list(FIELDS)
    by_name = {row[0]: row for row in rows}
    assert by_name["tolerance_seconds"][1:4] == (
        "`ONCEFLOW_BRIDGE_TOLERANCE_SECONDS`", "whole number, above 0, at most 3600", "`300`",
    )  # fmt: skip
    assert by_name["mode"][2:4] == ("`test` or `live`", "`test`")
    assert by_name["url"][1] == "`DATABASE_URL` (`_FILE`), `ONCEFLOW_DATABASE_URL`"
    assert by_name["prepared"][2:4] == ("`true` or `false`", "`true`")
    assert by_name["events"][2:4] == ("list", "`stripe.events.v1`")
    assert "None" not in settings_tables()


def test_the_examples_of_the_page_are_settings() -> None:
    blocks = re.findall(r"```toml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 3
    for block in blocks:
        found = from_table(tomllib.loads(block.replace('"..."', f'"{"s" * 43}"')), place="page")
        flags = {name: ("page", given.value) for name, given in found.values.items()}
        read = read_settings(SettingSources(flags=flags), environment={"ONCEFLOW_CONFIG": "/dev/null"})
        assert (found.faults, read.faults) == ([], ())
