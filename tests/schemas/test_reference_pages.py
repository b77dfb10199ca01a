"""docs/reference/records.md and tables.md against the code: each header, column and type, and the program in the page."""

from __future__ import annotations

import base64
import dataclasses
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from onceflow_schemas.outcome_record import outcome_headers
from onceflow_schemas.sql import migrations
from onceflow_schemas.told_facts import FACTS_HEADER
from tests.schemas.test_event_record import RECORD
from tests.schemas.test_outcome_record import ROW
from tests.schemas.test_vectors import EVENTS

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
RECORDS = (REFERENCE / "records.md").read_text("utf-8")
TABLES = (REFERENCE / "tables.md").read_text("utf-8")
INNER = {"account_budget", "batch_guard", "lease", "object_read_part", "operation_hint"}


def section(text: str, title: str) -> str:
    return text.split(f"\n## {title}", 1)[1].split("\n## ", 1)[0]


def first_cells(text: str) -> list[str]:
    return re.findall(r"^\| `([a-z_\-]+)` \|", text, re.MULTILINE)


def test_every_header_of_an_event_is_in_the_page() -> None:
    assert first_cells(section(RECORDS, "Events")) == [name for name, _ in RECORD.headers]


def test_every_header_of_an_outcome_is_in_the_page() -> None:
    row = dataclasses.replace(ROW, withheld="too_large", headers={FACTS_HEADER: "A" * 22})
    written = sorted(name for name, _ in outcome_headers(row, deployment="d", refill=True))
    assert sorted(first_cells(section(RECORDS, "Outcomes"))) == written


@pytest.mark.parametrize("vector", EVENTS["records"], ids=lambda vector: vector["about"])
def test_the_program_in_the_page_gives_the_attestation(vector: dict[str, Any]) -> None:
    [program] = re.findall(r"```python\n(.*?)```", RECORDS, re.DOTALL)
    names: dict[str, Any] = {}
    exec(program, names)  # noqa: S102 - the page's own program.
    attestation: Callable[..., str] = names["attestation"]
    headers = dict(vector["headers"])
    made = attestation(
        headers,
        base64.b64decode(vector["value_base64"]),
        topic=vector["topic"],
        deployment=vector["deployment"],
        key_id=vector["key_id"],
        secret=bytes.fromhex(vector["secret_hex"]),
    )
    assert made == headers["onceflow_attestation"]


def columns_of_migrations() -> dict[str, dict[str, str]]:
    """Columns and types by table, from the migrations' own words."""
    text = "\n".join(re.sub(r"--.*", "", migration.up) for migration in migrations())
    found: dict[str, dict[str, str]] = {}
    for name, body in re.findall(r"CREATE TABLE onceflow\.(\w+) \((.*?)\n\);", text, re.DOTALL):
        found[name] = dict(re.findall(r'^\s+"?([a-z_0-9]+)"? ([a-z]+(?:\[\])?)(?![a-z])', body, re.MULTILINE))
    for name, column, kind in re.findall(r"ALTER TABLE onceflow\.(\w+) ADD COLUMN (\w+) ([a-z]+(?:\[\])?)", text):
        found[name][column] = kind
    return found


def columns_of_page() -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for name, body in re.findall(r"^## `(\w+)`(.*?)(?=^## )", TABLES, re.MULTILINE | re.DOTALL):
        columns: dict[str, str] = {}
        for cells, types in re.findall(r"^\| (`[^|]+) \| ([^|]+) \|", body, re.MULTILINE):
            names = re.findall(r"`([a-z_0-9]+)`", cells)
            kinds = types.split(", ")
            columns |= zip(names, kinds if len(kinds) == len(names) else kinds * len(names), strict=True)
        found[name] = columns
    return found


def test_every_column_is_in_the_page_with_its_type() -> None:
    written = columns_of_migrations()
    assert len(written) > len(INNER)
    assert columns_of_page() == {name: columns for name, columns in written.items() if name not in INNER}


@pytest.mark.parametrize("name", sorted({*INNER, "schema_migrations", "migration_checksum"}))
def test_inner_tables_are_named(name: str) -> None:
    assert f"`{name}`" in section(TABLES, "Inner tables")
