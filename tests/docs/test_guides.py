"""The Python of the guides runs, block after block, in one namespace per page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

PAGES = sorted((Path(__file__).parents[2] / "docs" / "guides").glob("*.md"))
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_blocks_of_a_guide_run(page: Path) -> None:
    blocks = PYTHON.findall(page.read_text("utf-8"))
    assert blocks
    names: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block, str(page), "exec"), names)  # noqa: S102 - the page is ours, and this is its test.
