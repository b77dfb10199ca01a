"""The loader of named SQL, on the product's files and on files that are not in their form."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path

import pytest

from onceflow_schemas import sql
from onceflow_schemas.sql import Migration, migrations, queries

NAMES = sorted(
    entry.name.removesuffix(".sql") for entry in files("onceflow_schemas.sql").iterdir() if entry.name.endswith(".sql")
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of SQL in the place of the product's."""

    def instead(_package: str) -> Path:
        return tmp_path

    def forget() -> None:
        queries.cache_clear()
        migrations.cache_clear()

    (tmp_path / "migrations").mkdir()
    monkeypatch.setattr(sql, "files", instead)
    forget()
    yield tmp_path
    forget()


@pytest.mark.parametrize("name", NAMES)
def test_each_query_of_the_product_is_its_statements_without_comments(name: str) -> None:
    found = queries(name)
    assert found
    for text in found.values():
        assert text.strip()
        assert not any(line.lstrip().startswith(b"--") for line in text.splitlines())


def test_queries_are_read_once_and_cannot_be_changed() -> None:
    assert queries(NAMES[0]) is queries(NAMES[0])
    with pytest.raises(TypeError):
        queries(NAMES[0])["x"] = b""  # type: ignore[index]


def test_a_query_begins_at_its_name_and_ends_at_the_next(folder: Path) -> None:
    text = "-- a file\n-- name: one\n-- why\nSELECT 1 -- kept\n  -- dropped\nFROM a;\n\n-- name: two_2\nSELECT 2\n"
    (folder / "some.sql").write_text(text)
    assert queries("some") == {"one": b"SELECT 1 -- kept\nFROM a;", "two_2": b"SELECT 2"}


def test_a_name_that_stands_twice_is_refused(folder: Path) -> None:
    (folder / "some.sql").write_text("-- name: one\nSELECT 1\n-- name: one\nSELECT 2\n")
    with pytest.raises(ValueError, match=r"one stands twice in some\.sql"):
        queries("some")


def test_a_file_that_is_not_there(folder: Path) -> None:
    with pytest.raises(FileNotFoundError):
        queries("none")


def test_the_migrations_of_the_product_are_in_order_with_their_hashes() -> None:
    found = migrations()
    assert [one.version for one in found] == sorted({one.version for one in found})
    for one in found:
        file = files("onceflow_schemas.sql") / "migrations" / f"{one.version}_{one.name}.sql"
        assert one.sha256 == hashlib.sha256(file.read_bytes()).hexdigest()
        assert one.up
        assert one.down


def test_a_migration_is_in_the_form_of_dbmate(folder: Path) -> None:
    later = "-- migrate:up transaction:false\nCREATE INDEX i;\n\n-- migrate:down\nDROP INDEX i;\n"
    (folder / "migrations" / "20260202000000_an_index.sql").write_text(later)
    first = "-- migrate:up\nCREATE TABLE t;\n-- migrate:down\n"
    (folder / "migrations" / "20260101000000_first.sql").write_text(first)
    (folder / "migrations" / "README.md").write_text("not SQL")
    assert migrations() == (
        Migration(
            "20260101000000",
            "first",
            "CREATE TABLE t;",
            "",
            transactional=True,
            sha256=hashlib.sha256(first.encode()).hexdigest(),
        ),
        Migration(
            "20260202000000",
            "an_index",
            "CREATE INDEX i;",
            "DROP INDEX i;",
            transactional=False,
            sha256=hashlib.sha256(later.encode()).hexdigest(),
        ),
    )


UP_AND_DOWN = "-- migrate:up\nSELECT 1;\n-- migrate:down\nSELECT 2;\n"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("2026_short.sql", UP_AND_DOWN),
        ("20260101000000-dash.sql", UP_AND_DOWN),
        ("20260101000000_a.sql", "SELECT 1;\n"),
        ("20260101000000_a.sql", "-- migrate:up\nSELECT 1;\n"),
        ("20260101000000_a.sql", "-- migrate:down\nSELECT 2;\n-- migrate:up\nSELECT 1;\n"),
    ],
)
def test_another_form_is_refused(folder: Path, name: str, text: str) -> None:
    (folder / "migrations" / name).write_text(text)
    with pytest.raises(ValueError, match="is not in dbmate's form"):
        migrations()


def test_two_migrations_of_one_version_are_refused(folder: Path) -> None:
    for name in ("20260101000000_a.sql", "20260101000000_b.sql"):
        (folder / "migrations" / name).write_text(UP_AND_DOWN)
    with pytest.raises(ValueError, match="the same version"):
        migrations()


@pytest.mark.parametrize("load", [lambda: queries("batch"), migrations])
def test_the_product_is_read_again_after_the_tests(load: Callable[[], object]) -> None:
    assert load()


def test_what_queries_have_in_common_stands_where_they_include_it(folder: Path) -> None:
    text = "-- fragment: rows\n-- why\nFROM a\n\n-- name: one\nSELECT 1\n-- include: rows\nLIMIT 1\n-- name: two\nSELECT 2\n-- include: rows\n"
    (folder / "some.sql").write_text(text)
    assert queries("some") == {"one": b"SELECT 1\nFROM a\nLIMIT 1", "two": b"SELECT 2\nFROM a"}


def test_a_fragment_that_is_not_there(folder: Path) -> None:
    (folder / "some.sql").write_text("-- name: one\nSELECT 1\n-- include: rows\n")
    with pytest.raises(ValueError, match="there is no fragment rows"):
        queries("some")
