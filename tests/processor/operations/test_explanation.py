"""What holds workers off an operation is told in words, and only while something is to be done about it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from onceflow_processor.operations.explanation import Around, explain
from onceflow_schemas.operations.operation import State
from tests.schemas.operations.samples import MAIL, MINUTE, NOW, REFUND, operation

SECOND = timedelta(seconds=1)
OVERDUE = (
    "It has been due since 2026-03-01 11:59:00 UTC and no worker takes it: is `onceflow operate` running, with the effect"
    " refund and the account acct_1?"
)
FIRST = UUID("00000000-0000-5000-8000-000000000001")


@pytest.mark.parametrize(
    ("around", "expected"),
    [
        ({}, ""),
        ({"next_attempt_at": NOW + MINUTE}, "A worker looks at it at 2026-03-01 12:01:00 UTC."),
        (
            {"next_attempt_at": NOW + MINUTE, "lease_owner": "box-1", "lease_until": NOW + MINUTE},
            "box-1 has it in hand, until 2026-03-01 12:01:00 UTC at the latest.",
        ),
        (
            {"next_attempt_at": NOW, "before": (FIRST, "review")},
            f"It waits for {FIRST} (review), asked for before it with the same order key.",
        ),
        (
            {"next_attempt_at": NOW, "blocked_until": NOW + MINUTE, "paused_reason": "401 Invalid API Key"},
            "acct_1 is paused (401 Invalid API Key); one call is tried at 2026-03-01 12:01:00 UTC.",
        ),
        (
            {"next_attempt_at": NOW, "blocked_until": NOW + SECOND},
            "The limit of acct_1 is met; no call is made before 2026-03-01 12:00:01 UTC.",
        ),
        ({"next_attempt_at": NOW, "blocked_until": NOW - SECOND}, ""),
        (
            {"next_attempt_at": NOW - MINUTE},
            OVERDUE,
        ),
        (
            {"next_attempt_at": NOW - MINUTE, "lease_owner": "box-1", "lease_until": NOW - MINUTE},
            OVERDUE,
        ),
    ],
)
def test_what_holds_it_off(around: dict[str, Any], expected: str) -> None:
    asked = operation(REFUND, account="acct_1", effect="refund")
    told = explain(asked, Around(**({"next_attempt_at": None} | around)), now=NOW)
    decided = "Nothing of the call is known to have been sent. Next the call is sent."
    assert told == f"{decided} {expected}".strip()


def test_a_mail_may_have_found_workers_without_a_server() -> None:
    asked = operation(MAIL, account="acct_1", effect="thank")
    assert explain(asked, Around(next_attempt_at=NOW - MINUTE), now=NOW).endswith(
        "is `onceflow operate` running, with the effect thank and the account acct_1, and with a mail server (mail.host)?"
    )


def test_what_is_settled_waits_for_nothing() -> None:
    settled = operation(REFUND, state=State.SUCCEEDED)
    assert explain(settled, Around(next_attempt_at=None, before=(FIRST, "review")), now=NOW) == "It has succeeded."
