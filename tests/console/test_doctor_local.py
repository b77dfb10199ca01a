"""The doctor's look at what operations are carried out with: the API keys, and what Stripe's library is told to log."""

from __future__ import annotations

from pathlib import Path

import pytest

from onceflow.doctor.checked import PARTS
from onceflow.doctor.examine import examine
from onceflow.doctor.local import stripe_keys_lines, stripe_log_lines
from onceflow.settings import SettingSources, load_settings, read_settings

GIVEN = {"ONCEFLOW_CONFIG": "/dev/null", "ONCEFLOW_STRIPE_ACCOUNT": "acct_A", "ONCEFLOW_STRIPE_ACCOUNTS": "acct_B"}


def test_each_account_needs_a_key_and_none_is_shown() -> None:
    settings = load_settings(SettingSources(), environment={**GIVEN, "STRIPE_API_KEY": "rk_test_CANARY"}).settings
    [line] = stripe_keys_lines(settings)
    assert (line.ok, line.found) == (True, "a key for acct_A, acct_B at https://api.stripe.com")


def test_a_missing_key_is_a_cross_for_each_account() -> None:
    own = {**GIVEN, "ONCEFLOW_STRIPE_API_KEYS": "acct_A=rk_test_CANARY"}
    [line] = stripe_keys_lines(load_settings(SettingSources(), environment=own).settings)
    assert (line.ok, line.status) == (False, 3)
    assert "no key for acct_B" in line.found
    assert "CANARY" not in line.found


def test_a_library_that_would_log_bodies_is_a_cross() -> None:
    [line] = stripe_log_lines({"STRIPE_LOG": "debug"})
    assert (line.ok, line.status) == (False, 1)
    assert line.found.startswith("STRIPE_LOG=debug: Stripe's library writes the bodies of all calls")
    assert stripe_log_lines({"STRIPE_LOG": "info"}) == stripe_log_lines({}) == []


def test_the_doctor_asks_the_environment_for_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("STRIPE_LOG", "debug")
    loaded = read_settings(SettingSources(), needs=("database.url",), environment=GIVEN)
    found = {part: [one.subject for one in examine(loaded, parts=[part], folder=tmp_path)] for part in PARTS}
    assert [part for part in PARTS if "stripe log" in found[part]] == ["operate"]
