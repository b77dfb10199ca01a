"""The judge of operations is tried: one thing is doctored in sound ledgers, and exactly its invariant is found broken."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.checker.judge_operations import judge_operations, judge_operations_pair
from tests.checker.operation_snapshot import AttemptRow, Movement, OperationRow, Operations, Request, Told

AT = datetime(2026, 1, 1, tzinfo=UTC)
REFUND, CHARGE, DECLINED, REVIEWED = (f"{digit * 8}-0000-5000-8000-000000000000" for digit in "1234")
STRANGER = "99999999-0000-5000-8000-000000000000"


def row(identity: str, state: str, *, wants: str, **fields: Any) -> OperationRow:
    told = () if state == "review" else (state,)
    amount, currency = (500, None) if wants == "refund" else (2_000, "usd")
    made = OperationRow(identity, f"order-{identity[0]}", state, wants, amount, currency, AT, 5, told)
    return replace(made, **fields)


def attempt(identity: str, n: int, step: str = "", *, evidence: str = "done", late_hours: int = 0) -> AttemptRow:
    key = f"{identity}.{step}" if step else identity
    return AttemptRow(identity, n, key, n, AT + timedelta(hours=late_hours), evidence)


def post(n: int, path: str, key: str) -> Request:
    return Request(n, "POST", path, key, {"onceflow_operation": key.partition(".")[0]})


ROWS = (
    row(REFUND, "succeeded", wants="refund"),
    row(CHARGE, "succeeded", wants="charge"),
    row(DECLINED, "failed", wants="charge"),
    row(REVIEWED, "review", wants="refund", review="operation_not_found"),
)
ATTEMPTS = (
    attempt(REFUND, 1),
    attempt(CHARGE, 1, "create"),
    attempt(CHARGE, 2, "confirm"),
    attempt(DECLINED, 1, "create"),
    attempt(DECLINED, 2, "confirm", evidence="declined"),
    attempt(DECLINED, 3, "cancel", evidence="ended"),
    attempt(REVIEWED, 1, evidence="unknown"),
)
MOVEMENTS = (
    Movement("charge", "ch_0", None, 2_000, "usd"),
    Movement("refund", "re_1", REFUND, 500, "usd"),
    Movement("intent", "pi_2", CHARGE, 2_000, "usd"),
    Movement("charge", "ch_2", CHARGE, 2_000, "usd"),
    Movement("intent", "pi_3", DECLINED, 2_000, "usd"),
    Movement("cancel", "pi_3", DECLINED, 0, "usd"),
)
REQUESTS = (
    post(1, "/v1/refunds", REFUND),
    post(2, "/v1/payment_intents", f"{CHARGE}.create"),
    post(3, "/v1/payment_intents/pi_2/confirm", f"{CHARGE}.confirm"),
    post(4, "/v1/payment_intents", f"{DECLINED}.create"),
    post(5, "/v1/payment_intents/pi_3/confirm", f"{DECLINED}.confirm"),
    post(6, "/v1/payment_intents/pi_3/cancel", f"{DECLINED}.cancel"),
    Request(7, "GET", "/v1/refunds", None, {"order": "order-4"}),
)
TOLD = tuple(Told(one.id, one.state, f"x.{one.state}", one.subject) for one in ROWS if one.told)
SOUND = Operations(
    rows=ROWS,
    attempts=ATTEMPTS,
    movements=MOVEMENTS,
    requests=REQUESTS,
    told=TOLD,
    settlements=tuple((one.id, one.state) for one in ROWS if one.told),
    closed={REVIEWED: 6},
)


def changed(identity: str, **fields: Any) -> dict[str, Any]:
    return {"rows": tuple(replace(one, **fields) if one.id == identity else one for one in ROWS)}


def more(**lists: Any) -> dict[str, Any]:
    return {name: (*getattr(SOUND, name), *added) for name, added in lists.items()}


DOCTORED: dict[str, tuple[str, dict[str, Any]]] = {
    "a refund was given twice": ("I2", more(movements=[Movement("refund", "re_9", REFUND, 500, "usd")])),
    "a charge was made twice": ("I2", more(movements=[Movement("charge", "ch_9", CHARGE, 2_000, "usd")])),
    "what succeeded is not at Stripe": ("I2", {"movements": MOVEMENTS[:1] + MOVEMENTS[2:]}),
    "what failed is at Stripe": ("I2", more(movements=[Movement("charge", "ch_9", DECLINED, 2_000, "usd")])),
    "a refund that failed later still counts as succeeded": (
        "I2",
        more(movements=[Movement("refund_failed", "re_1", REFUND, 500, "usd")]),
    ),
    "another amount was refunded": (
        "I2",
        {"movements": (*MOVEMENTS[:1], replace(MOVEMENTS[1], amount=501), *MOVEMENTS[2:])},
    ),
    "another currency was charged": (
        "I2",
        {"movements": (*MOVEMENTS[:3], replace(MOVEMENTS[3], currency="eur"), *MOVEMENTS[4:])},
    ),
    "money moved for nothing that was asked for": (
        "I2",
        more(movements=[Movement("refund", "re_9", STRANGER, 500, "usd")]),
    ),
    "an intent of a failed charge is open": ("I2", {"movements": MOVEMENTS[:5]}),
    "an intent too many is open": ("I2", more(movements=[Movement("intent", "pi_9", CHARGE, 2_000, "usd")])),
    "a doubled refund of a sleeper was not found": (
        "I2",
        {**more(movements=[Movement("refund", "re_9", REFUND, 500, "usd")]), "asleep": frozenset({REFUND})},
    ),
    "something is left unknown": ("I8", changed(REVIEWED, state="unknown")),
    "a review has no reason": ("I8", changed(REVIEWED, review=None)),
    "a worker still has one": ("I8", changed(REFUND, busy="worker-1 has it")),
    "a callback did not run": ("I3", {"settlements": SOUND.settlements[1:]}),
    "an outcome is missing": ("I3", {"told": TOLD[1:]}),
    "a state was not told": (
        "I3",
        {**changed(REFUND, told=()), "told": TOLD[1:], "settlements": SOUND.settlements[1:]},
    ),
    "a callback ran twice": ("I4", more(settlements=[(CHARGE, "succeeded")])),
    "an outcome was written twice": ("I4", more(told=[TOLD[0]])),
    "an outcome of another state was written": ("I4", more(told=[replace(TOLD[0], state="failed")])),
    "an attempt was made under an old fence": (
        "I6",
        {"attempts": (*ATTEMPTS[:2], replace(ATTEMPTS[2], fence=1), *ATTEMPTS[3:])},
    ),
    "an attempt has a fence that was never given": (
        "I6",
        {"attempts": (replace(ATTEMPTS[0], fence=6), *ATTEMPTS[1:])},
    ),
    "a request has no committed attempt": ("I7", more(requests=[post(8, "/v1/refunds", REFUND)])),
    "it was sent blindly after the window": (
        "I7",
        {
            "closed": {REVIEWED: 7},
            **more(requests=[post(8, "/v1/refunds", REVIEWED)]),
        },
    ),
    "it was sent twice after one look-up": (
        "I7",
        {
            **more(
                requests=[post(8, "/v1/refunds", REVIEWED), post(9, "/v1/refunds", REVIEWED)],
                attempts=[attempt(REVIEWED, 2, evidence="unknown")],
            )
        },
    ),
    "another order's list was looked at": (
        "I7",
        {
            "requests": (
                *REQUESTS[:6],
                replace(REQUESTS[6], names={"order": "order-1"}),
                post(8, "/v1/refunds", REVIEWED),
            ),
        },
    ),
    "an attempt is late and Stripe was never asked": (
        "I7",
        {"attempts": (attempt(REFUND, 1, late_hours=20), *ATTEMPTS[1:]), "requests": REQUESTS[:6], "closed": {}},
    ),
    "a search was made": ("I7", more(requests=[Request(8, "GET", "/v1/charges/search", None)])),
}


def test_sound_ledgers_have_no_violation() -> None:
    assert judge_operations(SOUND) == []


@pytest.mark.parametrize("name", DOCTORED)
def test_each_doctored_ledger_is_convicted_of_that(name: str) -> None:
    code, fields = DOCTORED[name]
    found = judge_operations(replace(SOUND, **fields))
    assert {violation.code for violation in found} == {code}, [str(one) for one in found]


def test_a_send_after_a_look_up_is_legal() -> None:
    sent = more(requests=[post(8, "/v1/refunds", REVIEWED)])
    assert judge_operations(replace(SOUND, **sent)) == []


def test_a_doubled_refund_of_a_sleeper_that_was_found_is_legal() -> None:
    doubled = {
        **changed(REFUND, state="review", review="several_objects"),
        **more(movements=[Movement("refund", "re_9", REFUND, 500, "usd")]),
        "asleep": frozenset({REFUND}),
    }
    assert judge_operations(replace(SOUND, **doubled)) == []


def test_the_cancel_of_an_intent_too_many_needs_no_look_up() -> None:
    surplus = {
        "closed": {CHARGE: 3},
        **more(
            requests=[post(8, "/v1/payment_intents/pi_9/cancel", f"{CHARGE}.cancel.pi_9")],
            movements=[Movement("intent", "pi_9", CHARGE, 0, "usd"), Movement("cancel", "pi_9", CHARGE, 0, "usd")],
        ),
    }
    assert judge_operations(replace(SOUND, **surplus)) == []


@pytest.mark.parametrize(
    ("state", "broken"),
    [("succeeded", False), ("failed", False), ("review", False), ("unknown", True), ("requested", True)],
)
def test_what_is_settled_stays(state: str, broken: bool) -> None:  # noqa: FBT001 - a column of the table above
    later = replace(SOUND, **changed(REFUND, state=state))
    assert bool(judge_operations_pair(SOUND, later)) is broken


def test_an_outcome_stays() -> None:
    [violation] = judge_operations_pair(SOUND, replace(SOUND, told=TOLD[1:]))
    assert violation.code == "I6"
