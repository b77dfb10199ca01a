"""Keeps a file beside the jars from which Java starts in half the CPU time: its AOT cache.

Rule: the file only ever saves time.  It is made once, under a lock; whatever goes wrong with it costs a slower start
and never the start.

Java maps the file and believes it: one with damage in its middle ends Java with a segmentation fault.  So its SHA-256
is part of its name and is compared at each start (60 ms), as with the jars.  The other part of its name says what it
fits: Java refuses it with other jars (it compares their times), another build of itself or other flags, and it holds
machine code, so it belongs to one kind of processor.  Whatever of this changes leads to another file.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from onceflow.embedded.cache_lock import cache_lock
from onceflow.embedded.java_runtime import fixed_flags, runtime_facts
from onceflow_schemas.failure import Failure

LOCK_WAIT_SECONDS_MAX = 300.0
RETRY_AFTER_SECONDS = 3600.0
"""After a failure; without this, a machine on which it never succeeds would pay for the attempt at each start."""
FREE_BYTES_MIN = 500_000_000
"""It needs 135 MB while it is made and 68 MB later; a disk that is nearly full is left alone."""
FILES_KEPT_MAX = 3
_KEY_LETTERS = 12
_DIGEST_LETTERS = 16

Make = Callable[[Path], Path]
"""Makes the file in the empty folder it is given and returns its path; raises a ``Failure`` or ``OSError``."""


def ensure_quick_start(jars: Sequence[Path], *, make: Make, progress: Callable[[str], None]) -> Path | None:
    """Return the file for these jars, making it when there is none; None when Java has to start without.

    Args:
        jars: the class path, all in one folder; the file lies in it too.
        make: see ``Make``.
        progress: called with one line when the file is made, and one when that is done or has failed.
    """
    folder = jars[0].parent
    try:
        key = fitting_key(jars)
        found = _find(folder, key)
        if found is not None or not _may_make(folder, key):
            return found
        return _make_once(folder, key, make=make, progress=progress)
    except OSError:
        # The cache folder may be read-only, or be emptied at this very moment.
        return None


def fitting_key(jars: Sequence[Path]) -> str:
    """Return a word that changes with everything that the file must fit.

    Raises:
        OSError: a file cannot be read.
    """
    facts = [*runtime_facts(), *fixed_flags(), platform.machine(), _processor()]
    for jar in jars:
        state = jar.stat()
        facts.append(f"{jar.name} {state.st_size} {int(state.st_mtime)}")
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:_KEY_LETTERS]


def _processor() -> str:
    """Return what the processor can do; elsewhere than on Linux only its name is known."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")


def _find(folder: Path, key: str) -> Path | None:
    """Return the whole file; damaged ones are removed, so that a whole one can be made."""
    for path in sorted(folder.glob(f"quick-start-{key}-*.aot")):
        try:
            whole = path.name == _name(key, path)
        except OSError:
            continue
        if whole:
            return path
        with contextlib.suppress(OSError):
            path.unlink()
    return None


def _name(key: str, content: Path) -> str:
    with content.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return f"quick-start-{key}-{digest[:_DIGEST_LETTERS]}.aot"


def _failure_note(folder: Path, key: str) -> Path:
    return folder / f"quick-start-{key}.failed"


def _may_make(folder: Path, key: str) -> bool:
    if not all(os.access(place, os.W_OK) for place in (folder, folder.parent)):
        return False
    if shutil.disk_usage(folder).free < FREE_BYTES_MIN:
        return False
    try:
        failed_at = _failure_note(folder, key).stat().st_mtime
    except FileNotFoundError:
        return True
    return not 0 <= time.time() - failed_at < RETRY_AFTER_SECONDS


def _make_once(folder: Path, key: str, *, make: Make, progress: Callable[[str], None]) -> Path | None:
    with cache_lock(
        folder.with_name(f"{folder.name}.quick-start.lock"),
        wait_seconds_max=LOCK_WAIT_SECONDS_MAX,
        waiting=lambda: progress("kafka: waiting for another start that prepares quicker ones"),
    ) as held:
        found = _find(folder, key)
        if found is not None or not held or not _may_make(folder, key):
            return found
        progress("kafka: preparing quicker starts, once (some 10 s)")
        started = time.monotonic()
        scratch = folder.with_name(f"{folder.name}.quick-start")
        try:
            shutil.rmtree(scratch, ignore_errors=True)
            scratch.mkdir()
            found = _put_in_place(make(scratch), folder, key)
        except (Failure, OSError) as error:
            progress(f"kafka: starts stay slower: {error}")
            with contextlib.suppress(OSError):
                _failure_note(folder, key).write_text(f"{error}\n", encoding="utf-8")
            return None
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        progress(f"kafka: quicker starts are prepared after {time.monotonic() - started:.1f} s")
        return found


def _put_in_place(made: Path, folder: Path, key: str) -> Path:
    """Give the file its name, and remove those of earlier versions; whoever runs from one keeps it open."""
    # Our children write for their owner alone; whoever may read the jars may read this.
    made.chmod(next(folder.glob("*.jar")).stat().st_mode & 0o666)
    path = made.replace(folder / _name(key, made))
    with contextlib.suppress(OSError):
        _failure_note(folder, key).unlink(missing_ok=True)
        by_age = sorted(folder.glob("quick-start-*.aot"), key=lambda other: other.stat().st_mtime)
        for other in by_age[:-FILES_KEPT_MAX]:
            other.unlink(missing_ok=True)
    return path
