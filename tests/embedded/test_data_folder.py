"""One folder belongs to one process, for exactly as long as that process lives."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from onceflow.embedded.data_folder import DataFolder, write_durably
from onceflow_schemas.failure import Misconfigured


def test_the_folders_are_made_and_closed_to_others(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path / "a" / "b")
    folder.claim()
    assert sorted(path.name for path in folder.root.iterdir()) == ["kafka", "lock", "logs", "postgres"]
    assert {path.stat().st_mode & 0o777 for path in (folder.kafka, folder.logs, folder.postgres)} == {0o700}
    folder.release()
    folder.release()


def test_a_second_claim_is_refused_and_names_the_owner(tmp_path: Path) -> None:
    first, second = DataFolder(tmp_path), DataFolder(tmp_path)
    first.claim()
    with pytest.raises(Misconfigured, match=f"in use by process {os.getpid()}$") as refused:
        second.claim()
    assert refused.value.code == "data_folder_in_use"
    first.release()
    second.claim()
    second.release()


def test_the_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    program = (
        "import pathlib, signal, sys; from onceflow.embedded.data_folder import DataFolder; "
        "folder = DataFolder(pathlib.Path(sys.argv[1])); folder.claim(); print('claimed', flush=True); signal.pause()"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"claimed\n"
        with pytest.raises(Misconfigured, match=f"process {other.pid}$"):
            DataFolder(tmp_path).claim()
        other.send_signal(signal.SIGKILL)
    folder = DataFolder(tmp_path)
    folder.claim()
    folder.release()


def test_a_folder_that_cannot_be_made_is_a_setting_to_mend(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Misconfigured, match="cannot be used: Not a directory") as refused:
        DataFolder(tmp_path / "file" / "data").claim()
    assert refused.value.code == "data_folder_unusable"


def test_a_durable_write_replaces_the_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_durably(path, "long content")
    write_durably(path, "new")
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]
