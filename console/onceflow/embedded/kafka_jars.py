"""Keeps a folder with exactly the jars of the pinned Kafka version, fetched once and checked at every start.

Rule: a jar enters the class path only when its size and SHA-256 are those of ``kafka_jars.txt``.  All 45 files are
hashed at each start: that takes about 60 ms and finds a cut, changed or half-written file, whoever made it.

The list pins every coordinate, so nothing is resolved: asking the resolver for Kafka and for the Log4j bridge in one
call would pull other versions of half of the jars (the broker then dies with NoSuchMethodError).  jgo fetches into a
scratch folder, because it writes straight to the final name and only warns about a wrong checksum.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.resources
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from onceflow.embedded.cache_lock import cache_lock
from onceflow.embedded.data_folder import unusable
from onceflow.embedded.java_runtime import package_folder
from onceflow_schemas.failure import Misconfigured, Unavailable

if TYPE_CHECKING:
    from jgo.maven import MavenContext

KAFKA_VERSION = "4.4.0"
FETCH_THREADS = 4
FETCH_TRIES_MAX = 3
FETCH_TIMEOUT_SECONDS = 20
LOCK_WAIT_SECONDS_MAX = 600.0
_MEGABYTE = 1_000_000

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class PinnedJar:
    """One line of the list."""

    sha256: str
    size_bytes: int
    group: str
    artifact: str
    version: str

    @property
    def file_name(self) -> str:
        """The name in the cache folder; unique within the list."""
        return f"{self.artifact}-{self.version}.jar"


def pinned_jars() -> tuple[PinnedJar, ...]:
    """Return the committed list, in class path order."""
    text = (importlib.resources.files("onceflow.embedded") / "kafka_jars.txt").read_text(encoding="ascii")
    lines = [line.split() for line in text.splitlines() if line and not line.startswith("#")]
    return tuple(PinnedJar(sha256, int(size), *coordinate.split(":")) for sha256, size, coordinate in lines)


def is_intact(path: Path, jar: PinnedJar) -> bool:
    """Say whether the file is there and is the pinned one, byte for byte."""
    try:
        if path.stat().st_size != jar.size_bytes:
            return False
        with path.open("rb") as content:
            return hashlib.file_digest(content, "sha256").hexdigest() == jar.sha256
    except OSError:
        return False


def ensure_jars(cache_dir: Path, *, progress: Progress, repositories: Mapping[str, str] | None = None) -> list[Path]:
    """Return the class path, fetching what is missing or damaged.

    Args:
        cache_dir: the cache folder of onceflow; the jars lie in ``kafka/<version>/`` below it.  With all jars in
            place it is only read, so it may be read-only and the network may be away.
        progress: called with lines such as ``kafka: 12 of 45 jars (14 MB)``.
        repositories: name to address of Maven repositories; jgo's default when left out.

    Raises:
        Unavailable: ``download_failed``.
        Misconfigured: the cache folder cannot be written, or the extra is not installed.
    """
    folder = cache_dir.absolute() / "kafka" / KAFKA_VERSION
    if ":" in str(folder):
        raise Misconfigured(
            "settings_invalid",
            f"the cache folder {folder} has a colon in its name, which separates jars on a class path",
            "Choose another cache folder.",
        )
    jars = pinned_jars()
    if _missing(folder, jars):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with _first_start_lock(folder, progress):
                _fetch_missing(folder, jars, progress=progress, repositories=repositories)
        except OSError as error:
            raise unusable(folder, error) from error
    return [folder / jar.file_name for jar in jars]


def _missing(folder: Path, jars: Sequence[PinnedJar]) -> list[PinnedJar]:
    return [jar for jar in jars if not is_intact(folder / jar.file_name, jar)]


@contextlib.contextmanager
def _first_start_lock(folder: Path, progress: Progress) -> Iterator[None]:
    """Hold the cache's lock: two first starts at once fetch once, and the second waits for the first."""
    path = folder.with_name(f"{folder.name}.lock")
    with cache_lock(
        path,
        wait_seconds_max=LOCK_WAIT_SECONDS_MAX,
        waiting=lambda: progress("kafka: waiting for another start that fetches the jars"),
    ) as held:
        if not held:
            raise Unavailable(
                "download_failed",
                f"another process has held {path} for {LOCK_WAIT_SECONDS_MAX:.0f} s",
                "Find the start that hangs (fuser on that file) and stop it, then run the command again.",
            )
        yield


def _fetch_missing(
    folder: Path, jars: Sequence[PinnedJar], *, progress: Progress, repositories: Mapping[str, str] | None
) -> None:
    """Fetch into a scratch folder and move each checked jar into place; a killed fetch goes on where it ended."""
    package_folder("jgo")
    missing = _missing(folder, jars)
    scratch = folder.with_name(f"{folder.name}.scratch")
    shutil.rmtree(scratch, ignore_errors=True)
    done, done_bytes = len(jars) - len(missing), 0
    pool = ThreadPoolExecutor(FETCH_THREADS, thread_name_prefix="onceflow-jars")
    try:
        for finished in as_completed(
            pool.submit(_fetch_one, jar, folder=folder, scratch=scratch, repositories=repositories) for jar in missing
        ):
            done, done_bytes = done + 1, done_bytes + finished.result().size_bytes
            progress(f"kafka: {done} of {len(jars)} jars ({done_bytes // _MEGABYTE} MB)")
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        shutil.rmtree(scratch, ignore_errors=True)


def _fetch_one(jar: PinnedJar, *, folder: Path, scratch: Path, repositories: Mapping[str, str] | None) -> PinnedJar:
    import requests  # noqa: PLC0415 - comes with the extra; only a first start needs it

    problem = ""
    for attempt in range(FETCH_TRIES_MAX):
        context = _maven(scratch / f"{jar.artifact}.{attempt}", repositories)
        try:
            fetched = context.project(jar.group, jar.artifact).at_version(jar.version).artifact().resolve()
        except requests.RequestException as error:
            # Only the kind is told: the text holds the address, which may hold a password.
            problem = f"the network answers {type(error).__name__}"
            continue
        except RuntimeError:
            problem = "no repository has it"
            continue
        if is_intact(fetched, jar):
            fetched.replace(folder / jar.file_name)
            return jar
        problem = "its SHA-256 is not the expected one"
    raise Unavailable(
        "download_failed",
        f"{jar.file_name} could not be fetched: {problem}",
        "Check the network and the proxy (a company's own CA needs REQUESTS_CA_BUNDLE), then run the command again; "
        "what was fetched is kept. Without a network copy the cache folder from another machine.",
    )


def _maven(scratch: Path, repositories: Mapping[str, str] | None) -> MavenContext:
    from jgo.maven import MavenContext  # noqa: PLC0415 - comes with the extra; only a first start needs it

    return MavenContext(
        repo_cache=scratch,
        local_repos=[],
        remote_repos=None if repositories is None else dict(repositories),
        timeout=FETCH_TIMEOUT_SECONDS,
        offline=False,
    )
