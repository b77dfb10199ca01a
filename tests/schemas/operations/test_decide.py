"""Decisions: each policy inside and after the window, never sent, sent, restored; the expectation is written by hand."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from onceflow_schemas.operations.calls import Call
from onceflow_schemas.operations.decide import Decision, LookUp, Review, Send, Settle, Wait, decide, into_review
from onceflow_schemas.operations.evidence import Evidence, Proof, evidence_json
from onceflow_schemas.operations.limits import LIMITS
from onceflow_schemas.operations.operation import SETTLED, Operation, Policy, State
from tests.schemas.operations.samples import (
    CAPTURE,
    CHARGE,
    HOUR,
    MAIL,
    MINUTE,
    NOW,
    RAW,
    REFUND,
    http,
    operation,
)

EARLY, LATE = NOW + HOUR, NOW + 21 * HOUR
JUST_SENT = timedelta(seconds=30)

SAMPLES: dict[str, tuple[Call, str]] = {
    "stripe": (REFUND, "call"),
    "stripe_blind": (RAW, "call"),
    "idempotent": (http(Policy.IDEMPOTENT), "call"),
    "mail": (MAIL, "call"),
    "at_most_once": (http(Policy.AT_MOST_ONCE), "call"),
    "at_most_once_seen": (http(Policy.AT_MOST_ONCE, lookup=True), "call"),
    "reconcile_first": (http(Policy.RECONCILE_FIRST, lookup=True), "call"),
    "fenced": (CAPTURE, "call"),
    "create": (CHARGE, "create"),
    "confirm": (CHARGE, "confirm"),
    "cancel": (CHARGE, "cancel"),
}

# send: again with its key while the window is open; SEND: because a look-up allows it; look: a look-up first;
# wait: for the absence to count; person: review; gone: review since nothing is found.
WINDOW = """
                   new-in new-out sent-in sent-out restored-in restored-out
stripe             send   look    send    look     send        look
stripe_blind       send   SEND    send    person   send        person
idempotent         send   SEND    send    person   send        person
mail               send   SEND    send    person   send        person
at_most_once       send   SEND    person  person   person      person
at_most_once_seen  send   look    look    look     look        look
reconcile_first    look   look    look    look     look        look
fenced             send   look    look    look     look        look
create             send   look    send    look     send        look
confirm            send   look    look    look     look        look
cancel             send   look    look    look     look        look
"""

# The same after a complete look-up just now that found nothing; it was sent 30 seconds ago, or an hour ago.
LOOKED = """
                   new-in new-out sent-in sent-out old-in  old-out restored-out
stripe             send   SEND    send    wait     send    gone    gone
at_most_once_seen  send   SEND    wait    wait     gone    gone    gone
reconcile_first    SEND   SEND    wait    wait     SEND    gone    gone
fenced             send   SEND    SEND    SEND     SEND    SEND    SEND
create             send   SEND    send    SEND     send    SEND    SEND
confirm            send   SEND    SEND    SEND     SEND    SEND    SEND
cancel             send   SEND    SEND    SEND     SEND    SEND    SEND
"""


def rows(table: str) -> list[tuple[str, str, str]]:
    head, *lines = table.strip("\n").splitlines()
    columns = head.split()
    return [
        (cells[0], column, cell)
        for cells in (line.split() for line in lines)
        for column, cell in zip(columns, cells[1:], strict=True)
    ]


def sample(name: str, **fields: Any) -> Operation:
    call, step = SAMPLES[name]
    stored = {"external_id": "pi_1"} if step in ("confirm", "cancel") else {}
    return operation(call, step=step, **stored, **fields)


def word(decision: Decision) -> str:
    match decision:
        case Send(in_window=True):
            return "send"
        case Send():
            return "SEND"
        case LookUp():
            return "look"
        case Wait():
            return "wait"
        case Review(code="operation_not_found"):
            return "gone"
        case Review():
            return "person"
        case Settle():
            return "settle"


def situation(name: str, column: str, *, looked: bool) -> tuple[Operation, Any]:
    how, window = column.split("-")
    now = EARLY if window == "in" else LATE
    sent = {"sent": now - JUST_SENT, "old": now - HOUR}.get(how)
    state = State.UNKNOWN if sent else State.REQUESTED
    if SAMPLES[name][1] == "cancel":
        state = State.PENDING
    made = sample(name, state=state, sent=sent is not None, last_sent_at=sent, restored=how == "restored")
    return replace(made, looked_up_at=now if looked else None), now


@pytest.mark.parametrize(("name", "column", "expected"), rows(WINDOW))
def test_before_a_look(name: str, column: str, expected: str) -> None:
    made, now = situation(name, column, looked=False)
    assert word(decide(made, now=now)) == expected


@pytest.mark.parametrize(("name", "column", "expected"), rows(LOOKED))
def test_after_a_look_that_found_nothing(name: str, column: str, expected: str) -> None:
    made, now = situation(name, column, looked=True)
    assert word(decide(made, now=now)) == expected


def test_the_tables_have_every_policy_and_all_that_can_be_looked_up() -> None:
    assert {sample(name).present.policy for name, _, _ in rows(WINDOW)} == set(Policy)
    assert {name for name, _, _ in rows(WINDOW)} == set(SAMPLES)
    seen = {name for name in SAMPLES if sample(name).present.lookup is not None}
    assert {name for name, _, _ in rows(LOOKED)} == seen


@pytest.mark.parametrize("name", [*SAMPLES])
def test_an_old_look_allows_nothing(name: str) -> None:
    old = LATE - LIMITS.lookup_fresh - timedelta(seconds=1)
    decision = decide(sample(name, looked_up_at=old), now=LATE)
    assert word(decision) == ("look" if sample(name).present.lookup else "SEND")


def test_the_window_starts_with_the_cause_and_not_with_the_row() -> None:
    redelivered = sample("stripe", window_from=NOW - 20 * HOUR)
    assert word(decide(redelivered, now=NOW)) == "look"
    assert word(decide(redelivered, now=NOW - MINUTE)) == "send"


def test_an_absence_counts_a_quarter_of_an_hour_after_the_last_send() -> None:
    sent = sample("stripe", state=State.UNKNOWN, sent=True, last_sent_at=LATE, looked_up_at=LATE + MINUTE)
    assert decide(sent, now=LATE + MINUTE) == Wait(
        LATE + 15 * MINUTE, "nothing of it is found yet, and a request may still be on its way"
    )
    assert word(decide(sent, now=LATE + 15 * MINUTE)) == "look"
    again = replace(sent, looked_up_at=LATE + 15 * MINUTE)
    assert word(decide(again, now=LATE + 15 * MINUTE)) == "gone"


def test_a_look_before_the_last_send_is_worth_nothing() -> None:
    sent = sample(
        "confirm", state=State.UNKNOWN, sent=True, last_sent_at=LATE, looked_up_at=LATE - timedelta(seconds=1)
    )
    assert word(decide(sent, now=LATE)) == "look"


@pytest.mark.parametrize(
    ("name", "external_id", "how"),
    [
        ("stripe", None, {"list": "/v1/refunds", "params": {"charge": "ch_1"}}),
        ("stripe", "re_1", {"retrieve": "/v1/refunds/re_1"}),
        ("create", None, {"list": "/v1/payment_intents", "params": {"customer": "cus_1"}}),
        ("confirm", "pi_1", {"retrieve": "/v1/payment_intents/pi_1"}),
        ("fenced", None, {"retrieve": "/v1/payment_intents/pi_7"}),
    ],
)
def test_where_is_looked(name: str, external_id: str | None, how: dict[str, Any]) -> None:
    asked = replace(sample(name), external_id=external_id)
    decision = decide(asked, now=LATE)
    assert isinstance(decision, LookUp)
    assert decision.how == how


@pytest.mark.parametrize("name", ["stripe", "reconcile_first", "confirm"])
def test_what_is_pending_is_looked_at_and_never_sent(name: str) -> None:
    for now in (EARLY, LATE):
        assert word(decide(sample(name, state=State.PENDING, looked_up_at=now), now=now)) == "look"


def test_what_is_pending_and_cannot_be_looked_at_is_for_a_person() -> None:
    assert word(decide(sample("stripe_blind", state=State.PENDING), now=EARLY)) == "person"


def test_an_attempt_without_a_worker_may_have_been_sent() -> None:
    decision = decide(sample("stripe", state=State.SENDING), now=EARLY)
    assert isinstance(decision, Settle)
    assert decision.evidence.proof is Proof.LEASE_EXPIRED


def test_a_conclusion_whose_callback_failed_is_settled_before_anything_else() -> None:
    proved = Evidence(proof=Proof.DONE, external_id="re_1", object={"id": "re_1"}, http_status=200, replayed=True)
    for state in (State.SENDING, State.UNKNOWN, State.PENDING, State.SUCCEEDED):
        kept = sample("stripe", state=state, conclusion=evidence_json(proved), cancel_asked=True)
        assert decide(kept, now=LATE) == Settle(proved)


@pytest.mark.parametrize("state", [*SETTLED, State.REVIEW])
def test_what_rests_is_looked_at_only_when_there_is_a_reason(state: State) -> None:
    rests = sample("stripe", state=state, external_id="re_1")
    assert decide(rests, now=LATE) == Wait(None, f"it is {state}")
    assert word(decide(replace(rests, look_asked=True), now=LATE)) == "look"
    assert word(decide(sample("mail", state=state, look_asked=True), now=LATE)) == "wait"


@pytest.mark.parametrize(
    ("name", "fields", "expected"),
    [
        ("stripe", {}, "settle"),
        ("stripe", {"state": State.UNKNOWN, "sent": True, "last_sent_at": EARLY}, "send"),
        ("stripe", {"state": State.PENDING, "external_id": "re_1"}, "look"),
        ("stripe", {"restored": True}, "send"),
        ("create", {}, "settle"),
        ("create", {"state": State.UNKNOWN, "sent": True, "last_sent_at": EARLY}, "send"),
        ("confirm", {}, "settle"),
        ("confirm", {"state": State.UNKNOWN, "sent": True, "last_sent_at": EARLY}, "settle"),
        ("confirm", {"state": State.PENDING}, "settle"),
        ("cancel", {"state": State.PENDING}, "send"),
    ],
)
def test_a_cancel_happens_where_nothing_was_sent_or_an_intent_can_be_closed(
    name: str, fields: dict[str, Any], expected: str
) -> None:
    decision = decide(sample(name, cancel_asked=True, **fields), now=EARLY)
    assert word(decision) == expected
    if isinstance(decision, Settle):
        assert decision.evidence.proof is Proof.ABANDONED


def test_a_required_action_is_waited_for_until_its_deadline() -> None:
    waiting = sample("confirm", state=State.PENDING, sent=True, last_sent_at=NOW, action_until=EARLY)
    assert word(decide(waiting, now=EARLY - timedelta(seconds=1))) == "look"
    over = decide(waiting, now=EARLY)
    assert over == Settle(Evidence(proof=Proof.ABANDONED, detail="the customer did not act in time"))


REFUSED: dict[str, Any] = {"state": State.UNKNOWN, "sent": True, "last_proof": Proof.REFUSED, "last_error": "code: why"}


@pytest.mark.parametrize(
    ("name", "looked_after", "now_after", "expected"),
    [
        ("stripe", None, MINUTE, "look"),
        ("stripe", MINUTE, MINUTE, "wait"),
        ("stripe", MINUTE, 15 * MINUTE, "look"),
        ("stripe", 15 * MINUTE, 15 * MINUTE, "settle"),
        ("reconcile_first", 15 * MINUTE, 15 * MINUTE, "settle"),
        ("create", None, MINUTE, "look"),
        ("create", MINUTE, MINUTE, "settle"),
        ("confirm", None, MINUTE, "look"),
        ("confirm", -MINUTE, MINUTE, "look"),
        ("confirm", MINUTE, MINUTE, "settle"),
        ("stripe_blind", None, MINUTE, "person"),
        ("mail", None, MINUTE, "person"),
    ],
)
def test_a_refusal_counts_once_nothing_is_there(
    name: str, looked_after: timedelta | None, now_after: timedelta, expected: str
) -> None:
    looked = None if looked_after is None else EARLY + looked_after
    refused = sample(name, last_sent_at=EARLY, looked_up_at=looked, **REFUSED)
    decision = decide(refused, now=EARLY + now_after)
    assert word(decision) == expected
    if isinstance(decision, Settle):
        assert decision.evidence == Evidence(proof=Proof.REFUSED, from_lookup=True, detail="code: why")


def test_a_refused_cancel_is_looked_at() -> None:
    closing = sample("cancel", last_sent_at=EARLY, **(REFUSED | {"state": State.PENDING}))
    assert word(decide(closing, now=EARLY + MINUTE)) == "look"
    still_open = replace(closing, looked_up_at=EARLY + MINUTE)
    assert word(decide(still_open, now=EARLY + MINUTE)) == "settle"


STORED = REFUSED | {"last_proof": Proof.STORED_FAILURE}


@pytest.mark.parametrize(
    ("name", "looked_after", "now_after", "expected"),
    [
        ("stripe", None, MINUTE, "look"),
        ("stripe", MINUTE, 14 * MINUTE, "wait"),
        ("stripe", MINUTE, 15 * MINUTE, "look"),
        ("stripe", 15 * MINUTE, 15 * MINUTE, "gone"),
        ("fenced", 15 * MINUTE, 15 * MINUTE, "gone"),
        ("create", MINUTE, 14 * MINUTE, "wait"),
        ("create", 15 * MINUTE, 15 * MINUTE, "settle"),
        ("confirm", MINUTE, 14 * MINUTE, "wait"),
        ("confirm", 15 * MINUTE, 15 * MINUTE, "settle"),
        ("stripe_blind", None, MINUTE, "person"),
        ("idempotent", None, MINUTE, "person"),
    ],
)
def test_a_key_that_answers_with_a_failure_for_ever_is_not_sent_again(
    name: str, looked_after: timedelta | None, now_after: timedelta, expected: str
) -> None:
    looked = None if looked_after is None else EARLY + looked_after
    stored = sample(name, last_sent_at=EARLY, looked_up_at=looked, **STORED)
    assert word(decide(stored, now=EARLY + now_after)) == expected


@pytest.mark.parametrize(
    ("name", "looked_after", "now_after", "expected"),
    [
        ("stripe", None, MINUTE, "look"),
        ("create", None, MINUTE, "look"),
        ("stripe", MINUTE, 14 * MINUTE, "wait"),
        ("stripe", 15 * MINUTE, 15 * MINUTE, "key_mismatch"),
        ("create", 15 * MINUTE, 15 * MINUTE, "key_mismatch"),
        ("stripe_blind", None, MINUTE, "key_mismatch"),
        ("idempotent", None, MINUTE, "key_mismatch"),
    ],
)
def test_a_key_that_was_used_with_other_words_is_looked_at_and_never_sent_again(
    name: str, looked_after: timedelta | None, now_after: timedelta, expected: str
) -> None:
    looked = None if looked_after is None else EARLY + looked_after
    refused = sample(name, last_sent_at=EARLY, looked_up_at=looked, **(REFUSED | {"last_proof": Proof.KEY_MISMATCH}))
    decision = decide(refused, now=EARLY + now_after)
    assert (decision.code if isinstance(decision, Review) else word(decision)) == expected


def test_a_cancel_whose_key_answers_with_a_failure_is_looked_at_and_then_for_a_person() -> None:
    closing = sample("cancel", last_sent_at=EARLY, **(STORED | {"state": State.PENDING}))
    assert word(decide(closing, now=EARLY + MINUTE)) == "look"
    still_open = replace(closing, looked_up_at=EARLY + 15 * MINUTE)
    assert decide(still_open, now=EARLY + 15 * MINUTE) == Settle(
        Evidence(proof=Proof.REFUSED, from_lookup=True, detail="code: why")
    )


def test_a_review_is_written_with_all_that_was_known() -> None:
    before = sample(
        "stripe", state=State.UNKNOWN, external_id="re_1", tries=4, last_error="a timeout", looked_up_at=NOW
    )
    change = into_review(before, Review("operation_not_found", "nothing"))
    assert (change.state, change.review, change.next_attempt_at) == (
        State.REVIEW,
        ("operation_not_found", "nothing"),
        None,
    )
    assert (change.external_id, change.tries, change.last_error, change.tells) == ("re_1", 4, "a timeout", False)


@pytest.mark.parametrize("name", ["reconcile_first", "fenced"])
@pytest.mark.parametrize("sent", [False, True])
@pytest.mark.parametrize("now", [EARLY, LATE])
def test_a_step_that_needs_a_look_and_has_none_is_never_a_fault(name: str, *, sent: bool, now: datetime) -> None:
    found = sample(name, **({"state": State.UNKNOWN, "sent": True, "last_sent_at": EARLY} if sent else {}))
    blind = replace(found, steps=(replace(found.steps[0], lookup=None),))
    decision = decide(blind, now=now)
    if name == "fenced" and not sent and now == EARLY:
        assert isinstance(decision, Send)
    else:
        assert isinstance(decision, Review)
        assert decision.code == "operation_unproved"
