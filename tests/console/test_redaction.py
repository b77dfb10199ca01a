"""Secrets that betray themselves by their form are taken out of any text."""

from __future__ import annotations

import pytest

from onceflow.redaction import redacted


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("key whsec_AbC+/=9 end", "key whsec_*** end"),
        ("sk_live_abc, rk_test_def", "sk_live_***, rk_test_***"),
        ("postgresql://user:p%40ss@host/db", "postgresql://user:***@host/db"),
        ("postgres://u:p@ss@host:5432/db?x=1", "postgres://u:***@host:5432/db?x=1"),
        ("postgres://u@host/db", "postgres://u@host/db"),
        ("redis://:pw@h", "redis://:***@h"),
        ("host=h password=abc user=u", "host=h password=*** user=u"),
        ("password='a b' x", "password=*** x"),
        ('{"password": "abc", "secret":"x"}', '{"password": ***, "secret":***}'),
        ("PASSWORD = abc", "PASSWORD = ***"),
        ("nothing here: evt_123 acct_1", "nothing here: evt_123 acct_1"),
    ],
)
def test_redacted(text: str, expected: str) -> None:
    assert redacted(text) == expected
