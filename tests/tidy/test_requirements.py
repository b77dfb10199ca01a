"""The pinned requirements agree with pyproject.toml, carry hashes, and name no place that they come from."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.tidy.project import ROOT

PIN = re.compile(r"^(?P<name>[a-z0-9-]+)==(?P<version>[^\s;]+)(?: ; (?P<marker>[^\\]+))?$")
HASH = re.compile(r"^--hash=sha256:[0-9a-f]{64}$")
FIX = "fix: make requirements"


@dataclass(frozen=True)
class Pin:
    """One pinned package and how many hashes it carries."""

    version: str
    hash_count: int


def read_pins(text: str) -> dict[str, Pin]:
    """The pins of a requirements file; a line of any other form (a URL, an option, an open version) is refused."""
    pins: dict[str, Pin] = {}
    for statement in _statements(text):
        head, *options = (part.strip() for part in statement.split("\\\n"))
        match = PIN.match(head)
        if match is None or not all(HASH.match(option) for option in options):
            message = f"not a pin with hashes: {head!r} {options[:1]}"
            raise ValueError(message)
        pins[match["name"]] = Pin(match["version"], len(options))
    return pins


def missing(requirements: list[str], pins: dict[str, Pin]) -> list[str]:
    """The requirements that have no pin, or one that does not satisfy them, or one without a hash."""
    found = []
    for text in requirements:
        requirement = Requirement(text)
        pin = pins.get(canonicalize_name(requirement.name))
        if pin is None or not requirement.specifier.contains(pin.version, prereleases=True) or pin.hash_count == 0:
            found.append(text)
    return found


def _statements(text: str) -> Iterator[str]:
    """Lines joined where a backslash continues them, comments and empty lines left out."""
    for statement in re.split(r"(?<!\\)\n", text):
        if statement and not statement.startswith("#"):
            yield statement


def pins_of(name: str) -> dict[str, Pin]:
    """The pins of one of our files."""
    return read_pins((ROOT / "requirements" / name).read_text(encoding="utf-8"))


def pyproject() -> dict[str, list[str]]:
    """What pyproject.toml asks for: for running, for developing (all extras), for building."""
    document = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    runtime = document["project"]["dependencies"]
    extras = [text for texts in document["project"]["optional-dependencies"].values() for text in texts]
    return {"runtime": runtime, "dev": runtime + extras, "build": document["build-system"]["requires"]}


def test_runtime_pins_agree_with_pyproject() -> None:
    assert missing(pyproject()["runtime"], pins_of("runtime.txt")) == [], FIX


def test_dev_pins_agree_with_pyproject() -> None:
    assert missing(pyproject()["dev"], pins_of("dev.txt")) == [], FIX


def test_build_backend_is_pinned_too() -> None:
    """The project is installed without build isolation, so its backend must come from the hashed list."""
    assert missing(pyproject()["build"], pins_of("dev.txt")) == [], FIX


def test_the_build_list_has_the_backend() -> None:
    """Images build the wheel with this list alone."""
    assert missing(pyproject()["build"], pins_of("build.txt")) == [], FIX


@pytest.mark.parametrize("name", ["runtime.txt", "build.txt"])
def test_runtime_and_build_pins_are_dev_pins(name: str) -> None:
    """What is tested is what runs."""
    dev = pins_of("dev.txt")
    assert {package: pin for package, pin in pins_of(name).items() if dev.get(package) != pin} == {}, FIX


def test_every_pin_has_a_hash() -> None:
    pins = pins_of("dev.txt")
    assert len(pins) > 50
    assert [name for name, pin in pins.items() if pin.hash_count == 0] == []


def test_missing_convicts_absent_old_and_unhashed_pins() -> None:
    pins = {"stripe": Pin("16.1.0", 2), "rich": Pin("13.0.0", 2), "typer": Pin("0.29.2", 0)}
    asked = ["stripe>=16,<17", "rich>=13.9", "typer>=0.15", "psycopg[binary]>=3.2"]
    assert missing(asked, pins) == ["rich>=13.9", "typer>=0.15", "psycopg[binary]>=3.2"]


@pytest.mark.parametrize(
    "line",
    [
        "stripe>=16",
        "stripe @ https://example.com/stripe.whl",
        "https://example.com/stripe.whl",
        "--index-url https://example.com/simple",
        "-e .",
        "stripe==16.1.0 \\\n    --hash=md5:00",
    ],
)
def test_other_forms_of_lines_are_refused(line: str) -> None:
    with pytest.raises(ValueError, match="not a pin"):
        read_pins(f"# comment\n{line}\n")


def test_pins_are_read_with_markers_and_hashes() -> None:
    digest = "0" * 64
    text = f"uvloop==0.23.0 ; sys_platform != 'win32' \\\n    --hash=sha256:{digest} \\\n    --hash=sha256:{digest}\nrich==15.0.0\n"
    assert read_pins(text) == {"uvloop": Pin("0.23.0", 2), "rich": Pin("15.0.0", 0)}
