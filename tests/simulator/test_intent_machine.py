"""The states of an intent, pair by pair, by hand."""

from __future__ import annotations

import pytest

from onceflow_simulator.intent_machine import Action, Status, Verdict, after_confirm, after_create, allowed
from onceflow_simulator.sample_methods import METHODS

POSSIBLE: dict[str, str] = {
    "requires_payment_method": "confirm cancel update",
    "requires_confirmation": "confirm cancel update",
    "requires_action": "confirm cancel update",
    "processing": "",
    "requires_capture": "capture cancel",
    "succeeded": "",
    "canceled": "",
}
ACTIONS: tuple[Action, ...] = ("confirm", "capture", "cancel", "update")


@pytest.mark.parametrize("status", [str(status) for status in Status])
@pytest.mark.parametrize("action", ACTIONS)
def test_what_may_be_done_in_a_status(action: Action, status: str) -> None:
    assert allowed(action, status) == (action in POSSIBLE[status].split())


def test_all_seven() -> None:
    assert sorted(Status) == sorted(POSSIBLE)


def test_a_new_intent() -> None:
    assert after_create(has_method=False) == "requires_payment_method"
    assert after_create(has_method=True) == "requires_confirmation"


@pytest.mark.parametrize(
    ("name", "flags", "verdict"),
    [
        ("card_visa", "", ("succeeded", "succeeded", False)),
        ("card_visa", "manual", ("requires_capture", "succeeded", False)),
        ("card_chargeDeclined", "", ("requires_payment_method", "failed", True)),
        ("card_chargeDeclined", "manual off_session", ("requires_payment_method", "failed", True)),
        ("card_authenticationRequired", "", ("requires_action", None, False)),
        ("card_authenticationRequired", "off_session", ("requires_payment_method", "failed", True)),
        ("card_authenticationRequired", "error_on_action", ("requires_payment_method", None, True)),
        ("usBankAccount_success", "", ("processing", "pending", False)),
        ("usBankAccount_success", "off_session manual", ("processing", "pending", False)),
    ],
)
def test_what_a_confirm_leads_to(name: str, flags: str, verdict: tuple[str, str | None, bool]) -> None:
    found = after_confirm(
        METHODS[name],
        manual_capture="manual" in flags,
        off_session="off_session" in flags,
        error_on_action="error_on_action" in flags,
    )
    assert found == Verdict(*verdict)  # type: ignore[arg-type]
