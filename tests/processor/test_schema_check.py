"""How a database compares with a release, and what a service says about it (on a real server: console/test_migrations)."""

from __future__ import annotations

import pytest

from onceflow_processor.schema_check import SchemaState, compare_schema, schema_fault
from onceflow_schemas.sql import Migration


def migration(version: str) -> Migration:
    return Migration(version, f"name{version}", "", "", transactional=True, sha256=f"sum{version}")


ONE, TWO, THREE, FOUR, FIVE = (migration(version) for version in "12345")


@pytest.mark.parametrize(
    ("applied", "code", "text"),
    [
        ({}, "schema_missing", "no onceflow schema"),
        ({"1": "sum1"}, "schema_behind", "2_name2"),
        ({"1": "sum1", "2": "sum2"}, None, ""),
        ({"1": None, "2": None}, None, ""),
        ({"1": "sum1", "2": "sum2", "3": "sum3"}, "schema_ahead", "3"),
        ({"1": "other", "2": "sum2"}, "schema_changed", "1_name1"),
        ({"1": "other", "9": "x"}, "schema_changed", "1_name1"),
        ({"9": "x"}, "schema_ahead", "9"),
    ],
)
def test_each_state_of_a_database(applied: dict[str, str | None], code: str | None, text: str) -> None:
    fault = schema_fault(compare_schema([ONE, TWO], applied))
    assert (fault.code if fault else None) == code
    assert fault is None or text in fault.message


def test_pending_ones_come_in_their_order_also_before_applied_ones() -> None:
    assert compare_schema([ONE, TWO, THREE], {"2": None}) == SchemaState(
        pending=(ONE, THREE), unknown=(), changed=(), unrecorded=(TWO,), empty=False
    )


def test_a_long_list_is_cut() -> None:
    fault = schema_fault(compare_schema([ONE, TWO, THREE, FOUR, FIVE], {"1": None}))
    assert fault is not None
    assert fault.message == "migrations are not applied yet: 2_name2, 3_name3, 4_name4 and 1 more"


def test_a_release_without_migrations_needs_no_schema() -> None:
    assert schema_fault(compare_schema([], {})) is None
