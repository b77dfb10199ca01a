"""Packed columns are read by the server as psycopg's own lists are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import psycopg
import pytest

from onceflow_processor.arrays import Bigints, Blobs, Integers, Texts, Uuids

FIRST = UUID("00000000-0000-4000-8000-000000000001")
LAST = UUID("ffffffff-ffff-4fff-bfff-ffffffffffff")


@pytest.fixture(scope="module")
def connection(database_url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(database_url, autocommit=True) as opened:
        yield opened


def came_back(connection: psycopg.Connection[Any], column: object, kind: str) -> Any:
    row = connection.execute(f"SELECT %s::{kind}[]".encode(), [column]).fetchone()
    assert row is not None
    return row[0]


@pytest.mark.parametrize(
    ("column", "kind", "values"),
    [
        (Texts(["a", "", "é 😀", 'q"u,o{t}e\\', None, "NULL"]), "text", ["a", "", "é 😀", 'q"u,o{t}e\\', None, "NULL"]),
        (Texts(["x" * 4_095, "y" * 4_096, "z" * 100_000]), "text", ["x" * 4_095, "y" * 4_096, "z" * 100_000]),
        (Blobs([b"", b"\0\xff", None, b"b" * 70_000]), "bytea", [b"", b"\0\xff", None, b"b" * 70_000]),
        (Integers([0, -1, 2**31 - 1, -(2**31)]), "integer", [0, -1, 2**31 - 1, -(2**31)]),
        (Bigints([0, -1, 2**63 - 1, -(2**63)]), "bigint", [0, -1, 2**63 - 1, -(2**63)]),
        (Uuids([FIRST, LAST]), "uuid", [FIRST, LAST]),
        (Texts(['{"a": [1]}', "{}"]), "json", [{"a": [1]}, {}]),
    ],
)
def test_a_column_comes_back_as_it_was(
    connection: psycopg.Connection[Any], column: object, kind: str, values: list[Any]
) -> None:
    assert came_back(connection, column, kind) == values


@pytest.mark.parametrize("column", [Texts(), Blobs(), Integers(), Bigints(), Uuids()])
def test_a_column_may_be_empty(connection: psycopg.Connection[Any], column: list[Any]) -> None:
    kinds = {Texts: "text", Blobs: "bytea", Integers: "integer", Bigints: "bigint", Uuids: "uuid"}
    assert came_back(connection, column, kinds[type(column)]) == []


def test_texts_are_cast_to_times_and_none_to_null(connection: psycopg.Connection[Any]) -> None:
    found = came_back(connection, Texts(["2026-01-01T00:00:00.000001Z", None]), "timestamptz")
    assert [moment and moment.isoformat() for moment in found] == ["2026-01-01T00:00:00.000001+00:00", None]


def test_texts_follow_the_encoding_of_the_connection(database_url: str) -> None:
    with psycopg.connect(database_url, client_encoding="latin1") as opened:
        assert came_back(opened, Texts(["é"]), "text") == ["é"]


def test_nul_in_a_text_is_refused_by_the_server(connection: psycopg.Connection[Any]) -> None:
    with pytest.raises(psycopg.DataError):
        came_back(connection, Texts(["a\0b"]), "text")


def test_a_lone_surrogate_is_refused_before_it_is_sent(connection: psycopg.Connection[Any]) -> None:
    with pytest.raises(UnicodeEncodeError):
        came_back(connection, Texts(["\ud800"]), "text")
