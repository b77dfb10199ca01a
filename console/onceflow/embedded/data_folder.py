"""The folder that holds everything the embedded services keep, and the lock that gives it to one process.

Rule: two processes never run services on one folder.  The lock is ``flock``, which the kernel drops when its owner
dies, so a folder is never locked by the dead; the number in the file only tells a person who the owner is.

    <data>/lock        the lock
    <data>/postgres/   password, port book, cluster/ (PGDATA)
    <data>/kafka/      cluster id and version, port book, properties, log/ (log.dirs)
    <data>/logs/       broker.log, kafka-jvm.log, postgres.log
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from onceflow_schemas.failure import Misconfigured

PRIVATE_FOLDER_MODE = 0o700


class DataFolder:
    """The layout, and the claim on it.  ``claim`` first, ``release`` last.

    Args:
        root: created with its parents when it does not exist.
    """

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self.postgres = self.root / "postgres"
        self.kafka = self.root / "kafka"
        self.logs = self.root / "logs"
        self._lock: int | None = None

    def claim(self) -> None:
        """Make the folders and take the lock.

        Raises:
            Misconfigured: ``data_folder_in_use``, or ``data_folder_unusable`` when it cannot be written.
        """
        assert self._lock is None, "the folder is claimed already"
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            lock = os.open(self.root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise unusable(self.root, error) from error
        try:
            self._take(lock)
            for folder in (self.postgres, self.kafka, self.logs):
                folder.mkdir(mode=PRIVATE_FOLDER_MODE, exist_ok=True)
        except OSError as error:
            os.close(lock)
            raise unusable(self.root, error) from error
        except Misconfigured:
            os.close(lock)
            raise
        self._lock = lock

    def release(self) -> None:
        """Give the folder free; doing it twice is harmless."""
        if self._lock is not None:
            os.ftruncate(self._lock, 0)
            os.close(self._lock)
            self._lock = None

    def _take(self, lock: int) -> None:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(lock, 32, 0).decode("ascii", errors="replace").strip() or "unknown"
            raise Misconfigured(
                "data_folder_in_use",
                f"the data folder {self.root} is in use by process {owner}",
                "Stop that process, or choose another folder with --data.",
            ) from None
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode("ascii"), 0)


def unusable(folder: Path, error: OSError) -> Misconfigured:
    """Return the failure for a folder that cannot be made, read or written."""
    return Misconfigured(
        "data_folder_unusable",
        f"the folder {folder} cannot be used: {error.strerror or error}",
        "Choose a folder that this user may write; one written by another user (root?) needs its owner changed.",
    )


def damaged(path: Path) -> Misconfigured:
    """Return the failure for a file of ours that does not hold what we write into it."""
    return Misconfigured(
        "data_folder_unusable",
        f"{path} is damaged",
        "Restore the folder from a copy, or choose another one with --data.",
    )


def write_durably(path: Path, text: str) -> None:
    """Write a small file so that it holds either its old or its new content, also after a power cut."""
    fresh = path.with_name(f"{path.name}.new")
    with fresh.open("w", encoding="ascii") as target:
        target.write(text)
        target.flush()
        os.fsync(target.fileno())
    fresh.replace(path)


def wrong_version(folder: Path, *, found: str, ours: str) -> Misconfigured:
    """Return the failure for a folder that another version has written."""
    return Misconfigured(
        "data_folder_version",
        f"{folder} was written by {found}, and this release runs {ours}",
        "Use the release that wrote it, or another folder with --data (the old one is left as it is).",
    )
