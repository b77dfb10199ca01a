"""The exit status of every failure, and the page that lists them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from onceflow.exit_codes import MEANINGS, PartFailed, exit_code
from onceflow_schemas.failure import Failure, LeaseLost, Misconfigured, Refused, Unavailable, Uncertain

PAGE = Path(__file__).parents[2] / "docs" / "operating" / "exit-codes.md"

STATUS_OF_START_CODES = {
    "settings_invalid": 3,
    "schema_missing": 4,
    "schema_behind": 4,
    "schema_ahead": 4,
    "schema_changed": 4,
    "database_unsafe": 5,
    "database_other_deployment": 3,
    "topic_missing": 5,
    "topic_changed": 5,
    "topic_mismatch": 5,
    "broker_refused": 5,
    "lanes_missing": 4,
    "handlers_invalid": 3,
    "handlers_not_found": 3,
    "data_folder_in_use": 3,
    "data_folder_version": 3,
    "root_not_possible": 3,
    "port_in_use": 3,
}


@pytest.mark.parametrize(("code", "status"), STATUS_OF_START_CODES.items())
def test_a_process_that_cannot_start_says_who_must_act(code: str, status: int) -> None:
    assert exit_code(Misconfigured(code, "m", "h")) == status


@pytest.mark.parametrize(
    ("failure", "status"),
    [
        (Refused("anything", "m", "h"), 1),
        (Refused("replay_flags_refused", "m", "h"), 2),
        (Unavailable("database_unavailable", "m", "h"), 5),
        (Unavailable("service_failed", "m", "h"), 5),
        (Misconfigured("migration_failed", "m", "h"), 4),
        (Uncertain("commit_uncertain", "m", "h"), 5),
        (LeaseLost("fenced", "m", "h"), 5),
        (PartFailed("m", exit_status=3), 3),
        (PartFailed("m", exit_status=4), 4),
        (PartFailed("m", exit_status=1), 5),
        (PartFailed("m", exit_status=-9), 5),
        (PartFailed("m", exit_status=0), 5),
    ],
)
def test_other_failures(failure: Failure, status: int) -> None:
    assert exit_code(failure) == status


def test_the_page_says_the_same() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert {
        int(status): meaning for status, meaning in re.findall(r"^\| (\d+) \| (.+) \|$", text, re.MULTILINE)
    } == MEANINGS
    listed = text[text.index("Which failure codes") :]
    groups = re.findall(r"^- (\d): (.*(?:\n  .*)*)", listed, re.MULTILINE)
    assert [status for status, _ in groups] == ["4", "5", "3"]
    for status, codes in groups:
        for code in re.findall(r"`([a-z_]+)`", codes):
            assert exit_code(Misconfigured(code, "m", "h")) == int(status) or exit_code(
                Unavailable(code, "m", "h")
            ) == int(status)
