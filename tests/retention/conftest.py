"""A database of a test with the lease held."""

from __future__ import annotations

import pytest

from tests.retention.ledger import Ledger


@pytest.fixture
def ledger(fresh_database: str) -> Ledger:
    made = Ledger(fresh_database)
    made.hold_lease()
    return made
