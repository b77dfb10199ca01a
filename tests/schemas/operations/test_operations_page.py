"""docs/reference/operations.md: its diagrams and tables are what its program makes now, and its words name every state."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from onceflow_schemas.operations.advance import EVIDENCE_WANTED
from onceflow_schemas.operations.operation import Policy, State

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "reference" / "operations.md").read_text("utf-8")


def test_the_page_is_current() -> None:
    made = runpy.run_path(str(DOCS / "generate_operations.py"))["page"](PAGE)
    assert made == PAGE, "run: python docs/generate_operations.py"


@pytest.mark.parametrize("state", State)
def test_every_state_is_explained_and_drawn(state: State) -> None:
    assert re.search(rf"^\| `{state}` \|", PAGE, re.MULTILINE)
    assert re.search(rf"^    {state} --> |^    \w+ --> {state}", PAGE, re.MULTILINE)


@pytest.mark.parametrize("policy", Policy)
def test_every_policy_is_explained(policy: Policy) -> None:
    table = PAGE.split("\n## Policies\n")[1].split("\n## ")[0]
    assert f"`{policy}`" in table


def test_the_reviews_that_evidence_may_still_settle_are_named() -> None:
    paragraph = PAGE.split("A review for want of evidence")[1].split("\n\n")[0]
    assert set(re.findall(r"`(\w+)`", paragraph)) == EVIDENCE_WANTED
