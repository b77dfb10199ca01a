"""Which API versions are known; an unknown one is only told."""

from __future__ import annotations

import pytest
import stripe

from onceflow_schemas.api_versions import NEWEST_KNOWN, is_known


@pytest.mark.parametrize(
    "version", [None, "2011-01-01", "2024-06-20", "2025-03-31.basil", NEWEST_KNOWN, "2026-10-28.preview"]
)
def test_known(version: str | None) -> None:
    assert is_known(version)


@pytest.mark.parametrize(
    "version", ["2026-10-29", "2031-01-01.new", "", "basil", "2024-06-20\n", "20240620", "2024-06-20.B", "v2"]
)
def test_unknown(version: str) -> None:
    assert not is_known(version)


def test_the_newest_is_what_the_pinned_sdk_speaks() -> None:
    assert stripe.api_version.split(".")[0] == NEWEST_KNOWN
