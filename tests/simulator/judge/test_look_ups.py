"""stripe-mock judges the look-ups of every kind of object that the product finds again by its list.

They are taken from the product itself, so that a kind that is added there is judged here.  Only one list shows the
parameters of each: a filter that Stripe does not take would make every look-up of that kind a refusal.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from onceflow_schemas.operations.calls import StripeCall
from onceflow_schemas.operations.freeze import freeze
from onceflow_schemas.operations.resources import MADE
from tests.simulator.judge.calls import ApiCall
from tests.simulator.judge.test_shapes import ask

pytestmark = pytest.mark.judge

NEEDED: dict[str, dict[str, Any]] = {"/v1/subscriptions": {"payment_behavior": "default_incomplete"}}
"""What a call must say to be taken at all."""


def look_ups() -> list[ApiCall]:
    """One look-up for each filter of each kind, as the gateway sends it."""
    found = []
    for path, resource in MADE.items():
        for name in resource.filters or ("",):
            params = {**NEEDED.get(path, {}), **({name: "x_123"} if name else {})}
            [step] = [one for one in freeze(StripeCall.post(path, **params), operation_id=UUID(int=1)) if one.lookup]
            assert step.lookup is not None
            shown = {"created": {"gte": 1_800_000_000}, **step.lookup["params"], "limit": 100}
            found.append(ApiCall("get", step.lookup["list"], shown))
    return found


@pytest.mark.parametrize("call", look_ups(), ids=str)
def test_a_look_up_is_one_that_stripe_knows(mock_url: str, call: ApiCall, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ask(mock_url, call, monkeypatch=monkeypatch)["object"] == "list"
