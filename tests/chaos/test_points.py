"""The failpoints in the sources are those of the list, each once, and every one of them is used by a fault."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from tests.chaos.catalogue import all_faults
from tests.chaos.points import AT_START, names

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ("schemas", "producer", "processor", "reconciler", "console")
HIT = re.compile(r"\bhit\(\"([a-z_.]+)\"\)")


def in_sources() -> list[str]:
    files = [path for folder in PRODUCT for path in (ROOT / folder).rglob("*.py")]
    return [name for path in files for name in HIT.findall(path.read_text("utf-8"))]


def test_each_stands_once_in_the_sources() -> None:
    assert Counter(names()) == Counter(in_sources())


def test_each_is_used_by_a_fault() -> None:
    assert {point for one in all_faults() for point in one.points} == set(names())
    assert set(names()) >= AT_START


def test_product_never_installs_one() -> None:
    files = [path for folder in PRODUCT for path in (ROOT / folder).rglob("*.py")]
    callers = [path.name for path in files if "failpoint.install" in path.read_text("utf-8")]
    assert callers == []
