"""The published JSON Schema: every outcome record that we write is valid, and each broken rule is found."""

from __future__ import annotations

import copy
import json
from importlib.resources import files
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tests.schemas.test_vectors import load

SCHEMA: dict[str, Any] = json.loads((files("onceflow_schemas") / "outcome.schema.json").read_text("utf-8"))
VALIDATOR = Draft202012Validator(SCHEMA)


def as_json(vector: dict[str, Any]) -> dict[str, Any]:
    """A record in the form that the schema is about."""
    return {"key": vector["key"], "headers": dict(vector["headers"]), "value": json.loads(vector["value"])}


RECORDS = [as_json(vector) for vector in load("outcome_records")["records"]]


def test_the_schema_is_one() -> None:
    Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("record", RECORDS)
def test_what_we_write_is_valid(record: dict[str, Any]) -> None:
    VALIDATOR.validate(record)


def test_headers_of_later_versions_are_left_alone() -> None:
    record = copy.deepcopy(RECORDS[0])
    record["headers"]["onceflow_later"] = "x"
    VALIDATOR.validate(record)


REQUIRED = sorted(set(RECORDS[0]["headers"]))


@pytest.mark.parametrize("name", REQUIRED)
def test_each_header_of_a_plain_outcome_is_needed(name: str) -> None:
    record = copy.deepcopy(RECORDS[0])
    del record["headers"][name]
    assert not VALIDATOR.is_valid(record)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ce_specversion", "0.3"),
        ("ce_id", "evt_1"),
        ("ce_id", "89FBC13A-0C5A-5EE1-BB10-46E4DDF7DA86"),
        ("ce_id", "89fbc13a-0c5a-4ee1-bb10-46e4ddf7da86"),
        ("ce_source", "urn:stripe:acct_1:live"),
        ("ce_source", "urn:onceflow:"),
        ("ce_source", "urn:onceflow:a b"),
        ("ce_type", ""),
        ("ce_type", "invoice paid"),
        ("ce_type", "t" * 201),
        ("ce_subject", ""),
        ("ce_time", "2026-01-01T00:00:00Z"),
        ("ce_time", "2026-01-01T00:00:00.000000+00:00"),
        ("content-type", "text/plain"),
        ("onceflow_lane", "-1"),
        ("onceflow_lane", "01"),
        ("onceflow_sequence", "0"),
        ("onceflow_sequence", "1.0"),
        ("onceflow_cause", "evt_1"),
        ("onceflow_cause", "event:"),
        ("onceflow_outcome_id", "x"),
        ("onceflow_revision", "0"),
        ("onceflow_refill", "0"),
        ("onceflow_withheld", "Too large"),
        ("onceflow_later", 5),
    ],
)
def test_each_header_is_in_its_form(name: str, text: object) -> None:
    record = copy.deepcopy(RECORDS[0])
    record["headers"][name] = text
    assert not VALIDATOR.is_valid(record)


@pytest.mark.parametrize(
    "changes",
    [{"key": ""}, {"key": None}, {"key": "k" * 1025}, {"value": []}, {"value": None}, {"offset": 1}, {"headers": []}],
)
def test_key_and_value_are_in_their_form(changes: dict[str, Any]) -> None:
    assert not VALIDATOR.is_valid({**RECORDS[0], **changes})


def test_a_withheld_outcome_has_no_data() -> None:
    record = copy.deepcopy(RECORDS[0])
    record["headers"]["onceflow_withheld"] = "record_too_large"
    assert not VALIDATOR.is_valid(record)
    VALIDATOR.validate({**record, "value": {}})


@pytest.mark.parametrize("missing", ["key", "headers", "value"])
def test_nothing_may_be_missing(missing: str) -> None:
    assert not VALIDATOR.is_valid({name: part for name, part in RECORDS[0].items() if name != missing})
