"""PostgreSQL never runs as root, and nothing outside of its own folder changes hands."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from onceflow.embedded import postgres_identity
from onceflow.embedded.child_process import Finished
from onceflow.embedded.postgres_cluster import find_program
from onceflow.embedded.postgres_identity import ServerIdentity, choose_identity, own
from onceflow_schemas.failure import Misconfigured


def test_a_plain_user_runs_it_as_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    assert choose_identity(find_program("postgres"), tmp_path) == ServerIdentity("same", 4711, os.getegid())


@pytest.mark.parametrize(("works", "launch"), [("user:", "user:"), ("namespace:", "namespace:65534:65534")])
def test_root_takes_the_first_way_that_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, works: str, launch: str
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(
        postgres_identity,
        "run_to_end",
        lambda command, **_limits: Finished(0 if command.identity.startswith(works) else 125, ""),
    )
    assert choose_identity(Path("/bin/postgres"), tmp_path).launch.startswith(launch)


def test_root_without_a_way_is_told_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(postgres_identity, "run_to_end", lambda _command, **_limits: Finished(125, "not permitted\n"))
    with pytest.raises(Misconfigured, match="does not run as root") as refused:
        choose_identity(Path("/bin/postgres"), tmp_path)
    assert refused.value.code == "root_not_possible"
    assert "namespace:65534:65534: not permitted" in refused.value.message
    assert refused.value.hint.startswith("Run as a plain user")


def test_files_are_given_away_with_the_folder_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "file").touch()
    given: list[tuple[str, int, int]] = []
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "chown", lambda path, user, group, **_how: given.append((Path(path).name, user, group)))
    own(tmp_path, ServerIdentity("user:4711:4712", 4711, 4712))
    assert given == [("inner", 4711, 4712), ("file", 4711, 4712), (tmp_path.name, 4711, 4712)]
    given.clear()
    own(tmp_path, ServerIdentity("same", tmp_path.stat().st_uid, 0))
    assert given == []
