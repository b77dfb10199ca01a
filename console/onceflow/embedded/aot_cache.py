"""Has Java make its AOT cache from one recorded run, and names the flags that use it.

Rule: recording, making and using share the fixed flags and the class path of every start; Java refuses the cache
otherwise.  All three are children of ours and end with us, which is why it is done in two steps: the one-step form
(``-XX:AOTCacheOutput``) leaves the second step to a process that Java starts by itself at its end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from onceflow.embedded.child_process import Command, last_line, run_to_end
from onceflow.embedded.java_runtime import ENVIRONMENT, java_command
from onceflow_schemas.failure import Unavailable

ASSEMBLY_SECONDS_MAX = 120.0
TRIAL_SECONDS_MAX = 30.0
MAIN_CLASS = "kafka.Kafka"


def recording_flags(recording: Path) -> tuple[str, ...]:
    """Return the flags by which Java writes, at an orderly end, what it has loaded and linked."""
    return ("-XX:AOTMode=record", f"-XX:AOTConfiguration={recording}", "-Xlog:aot*=error")


def quick_flags(cache: Path | None) -> tuple[str, ...]:
    """Return the flags that use the cache.

    A cache that does not fit is ignored by Java.  It would say so, and even a fitting one gives two warnings about
    adapters, on the output in which we look for the reason of a failed start: so it is told to keep still.
    """
    return () if cache is None else (f"-XX:AOTCache={cache}", "-Xlog:aot*=off")


def make_aot_cache(scratch: Path, *, jars: Sequence[Path], record: Callable[[Path, Path], None]) -> Path:
    """Record a run, make the cache of it and try the cache once; returns the cache.

    Args:
        scratch: an empty folder for all of it.
        jars: the class path.
        record: called with a folder for the run's data and the path of the recording; returns when that is written.

    Raises:
        Unavailable: ``service_failed``; and what ``record`` raises.
    """
    recording, cache = scratch / "recording", scratch / "cache.aot"
    record(scratch / "data", recording)
    _run(
        java_command(
            MAIN_CLASS,
            [],
            jars=jars,
            flags=("-XX:AOTMode=create", f"-XX:AOTConfiguration={recording}", f"-XX:AOTCache={cache}"),
        ),
        scratch=scratch,
        timeout_seconds=ASSEMBLY_SECONDS_MAX,
    )
    # Java that must use the cache loads and links all of it before it even says its version.
    trial = java_command("-version", [], jars=jars, flags=("-XX:AOTMode=on", *quick_flags(cache)))
    _run(trial, scratch=scratch, timeout_seconds=TRIAL_SECONDS_MAX)
    return cache


def _run(argv: Sequence[str], *, scratch: Path, timeout_seconds: float) -> None:
    command = Command(argv, directory=scratch, environment=ENVIRONMENT)
    finished = run_to_end(command, timeout_seconds=timeout_seconds)
    if finished.exit_code != 0:
        raise Unavailable(
            "service_failed",
            f"making the AOT cache of Java ended with {finished.exit_code}; it said: {last_line(finished.output)}",
            "Nothing has to be done; Java starts without it.",
        )
