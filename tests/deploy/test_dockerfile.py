"""The Dockerfile without a daemon: its sources exist, its commands are those that the production page's test has run."""

from __future__ import annotations

import re
import tomllib
from typing import Any

from packaging.specifiers import SpecifierSet

from tests.deploy.compose import ROOT, load

TEXT = (ROOT / "Dockerfile").read_text("utf-8")
PAGE = (ROOT / "docs" / "operating" / "production.md").read_text("utf-8")
BASE = re.compile(r"FROM python:(\d+\.\d+\.\d+)-slim-[a-z]+(?: AS build)?")


def instructions(word: str, text: str = TEXT) -> list[str]:
    return re.findall(rf"^{word} (.*)$", text, re.MULTILINE)


def copied() -> list[str]:
    """The sources of every COPY from the checkout."""
    return [part for line in instructions("COPY") if not line.startswith("--from") for part in line.split()[:-1]]


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


def test_what_is_copied_exists_and_is_not_held_back() -> None:
    allowed = [line[1:] for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines() if line.startswith("!")]
    assert len(copied()) >= 9
    for source in copied():
        assert (ROOT / source).exists(), source
    assert sorted(allowed) == sorted(set(copied())), ".dockerignore lets in what is copied and nothing else"


def test_everything_of_the_wheel_is_copied() -> None:
    wheel = project()["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert {package.split("/")[0] for package in wheel} <= set(copied())
    assert {"pyproject.toml", project()["project"]["readme"]} <= set(copied())


def test_the_install_commands_are_those_of_the_production_page() -> None:
    build = [line for line in instructions("RUN") if "pip" in line or "venv" in line]
    assert len(build) == 6
    for line in build:
        assert f"\n{line}\n" in PAGE, line
    assert all("--require-hashes" in line for line in build if " -r " in line), "what is fetched has hashes"


def test_the_final_stage_only_takes_what_was_built() -> None:
    final = TEXT[TEXT.rindex("\nFROM ") :]
    assert not re.search(r"\bpip\b|apt|build-tools", "\n".join(instructions("RUN", final))), (
        "nothing is installed in it"
    )
    [made] = [line for line in instructions("COPY", final) if line.startswith("--from")]
    assert made == "--from=build /opt/onceflow/venv /opt/onceflow/venv"
    assert f"{made.split()[-1]}/bin:" in instructions("ENV", final)[0]


def test_both_stages_have_one_pinned_python_that_the_project_takes() -> None:
    lines = [f"FROM {line}" for line in instructions("FROM")]
    versions = {match[1] for line in lines if (match := BASE.fullmatch(line))}
    assert len(lines) == 2
    assert len(versions) == 1
    assert SpecifierSet(project()["project"]["requires-python"]).contains(versions.pop())


def test_it_runs_as_a_plain_user_that_compose_names_too() -> None:
    [user] = instructions("USER")
    assert user == "10001:10001"
    assert "--uid 10001" in TEXT
    assert {service["user"] for service in load({}).ours().values()} == {user}
    assert instructions("ENTRYPOINT") == ['["onceflow"]']
    assert instructions("WORKDIR")[-1] == load({}).services["processor"]["volumes"][0].split(":")[-2]
