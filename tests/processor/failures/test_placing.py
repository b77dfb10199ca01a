"""Where a quarantined event goes back to."""

from __future__ import annotations

from typing import Any

import pytest

from onceflow_processor.failures.placing import order_key_of


@pytest.mark.parametrize(
    ("order_key", "record_key", "found"),
    [
        ("acct_1/in_1", b"acct_1/in_2", "acct_1/in_1"),
        (None, b"acct_1/in_2", "acct_1/in_2"),
        (None, b"acct_2/in_2", "acct_1/evt_1"),
        (None, b"acct_1/\xff", "acct_1/evt_1"),
        (None, b"acct_1/a\0", "acct_1/evt_1"),
        (None, b"", "acct_1/evt_1"),
        (None, None, "acct_1/evt_1"),
    ],
)
def test_the_key_that_it_blocked_or_its_record_has(order_key: Any, record_key: Any, found: str) -> None:
    row = {"account": "acct_1", "event_id": "evt_1", "order_key": order_key, "key": record_key}
    assert order_key_of(row) == found
