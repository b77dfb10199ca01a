"""A new PostgreSQL folder is whole or absent."""

from __future__ import annotations

from pathlib import Path

import pytest

from onceflow.embedded.data_folder import DataFolder
from onceflow.embedded.postgres_cluster import PostgresCluster, find_program
from onceflow.embedded.postgres_identity import choose_identity
from onceflow_schemas.failure import Misconfigured, Unavailable


@pytest.fixture
def cluster(folder: DataFolder) -> PostgresCluster:
    return PostgresCluster(folder.postgres, choose_identity(find_program("postgres"), folder.root))


def test_a_cluster_is_made_once_and_keeps_its_password(cluster: PostgresCluster) -> None:
    said: list[str] = []
    (cluster.folder / "cluster.new").mkdir()
    (cluster.folder / "cluster.new" / "rest of a first start that was killed").touch()
    cluster.make(said.append)
    password = cluster.password()
    assert len(password) == 32
    assert (cluster.folder / "password").stat().st_mode & 0o777 == 0o600
    assert (cluster.data / "PG_VERSION").read_text() == "18\n"
    assert (cluster.data / "PG_VERSION").stat().st_uid == cluster.identity.user_id
    assert sorted(path.name for path in cluster.folder.iterdir()) == ["cluster", "password"]
    cluster.make(said.append)
    assert cluster.password() == password
    assert said == ["postgres: making the data folder"]


@pytest.mark.parametrize(("text", "found"), [("17\n", "PostgreSQL 17"), ("", "an unknown version of PostgreSQL")])
def test_a_folder_of_another_version_is_refused(cluster: PostgresCluster, text: str, found: str) -> None:
    cluster.data.mkdir()
    (cluster.data / "PG_VERSION").write_text(text)
    with pytest.raises(Misconfigured, match=f"was written by {found}, and this release runs PostgreSQL 18") as refused:
        cluster.make(print)
    assert refused.value.code == "data_folder_version"


def test_a_failed_attempt_leaves_no_cluster(cluster: PostgresCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onceflow.embedded.postgres_cluster._INITDB", ("--encoding=NONSENSE",))
    with pytest.raises(Unavailable, match=r"initdb ended with 1; it said: .*NONSENSE"):
        cluster.make(print)
    assert not cluster.data.exists()


def test_a_missing_program_is_said_with_the_fix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onceflow.embedded.postgres_cluster.package_folder", lambda _package: tmp_path)
    with pytest.raises(Misconfigured, match="has no PostgreSQL 18") as refused:
        find_program("postgres")
    assert refused.value.code == "embedded_missing"
