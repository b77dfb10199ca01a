"""The words that ``operations show`` prints, for each state and each decision."""

from __future__ import annotations

from typing import Any

import pytest

from onceflow_schemas.operations.calls import Call
from onceflow_schemas.operations.evidence import Evidence, Proof, evidence_json
from onceflow_schemas.operations.operation import State
from onceflow_schemas.operations.why import why
from tests.schemas.operations.samples import CHARGE, HOUR, MAIL, MINUTE, NOW, REFUND, operation

LATE = NOW + 21 * HOUR
UNKNOWN: dict[str, Any] = {"state": State.UNKNOWN, "sent": True, "last_sent_at": LATE - HOUR, "last_error": "a timeout"}

RULED = evidence_json(Evidence(proof=Proof.RULED_FAILED, detail="seen in the dashboard"))


@pytest.mark.parametrize(
    ("call", "step", "fields", "expected"),
    [
        (REFUND, "call", {}, "Nothing of the call is known to have been sent. Next it is looked up (/v1/refunds); nothing is sent before that."),
        (MAIL, "call", {"last_error": "no_credential: the credential partner is not set"}, "Nothing of the call is known to have been sent (no_credential: the credential partner is not set). Next the call is sent."),
        (MAIL, "call", {}, "Nothing of the call is known to have been sent. Next the call is sent."),
        (REFUND, "call", {"looked_up_at": LATE}, "Nothing of the call is known to have been sent. Next the call is sent: a complete look-up at 2026-03-02 09:00:00 UTC has nothing of it."),
        (REFUND, "call", {"window_from": LATE, **UNKNOWN}, "The call may have happened (a timeout). Next the call is sent again with the same key, which is safe until 2026-03-03 05:00:00 UTC."),
        (REFUND, "call", {"looked_up_at": LATE - MINUTE, **UNKNOWN}, "The call may have happened (a timeout). Next it is put before a person (operation_not_found): it may have been sent, the safe window is over, and a complete look-up has nothing of it."),
        (REFUND, "call", {**UNKNOWN, "last_sent_at": LATE - MINUTE, "looked_up_at": LATE}, "The call may have happened (a timeout). Nothing happens before 2026-03-02 09:14:00 UTC: nothing of it is found yet, and a request may still be on its way."),
        (CHARGE, "confirm", {"external_id": "pi_1", "looked_up_at": LATE, **UNKNOWN}, "The confirm of the charge may have happened (a timeout). Next the confirm of the charge is sent: it has not happened yet at 2026-03-02 09:00:00 UTC, and it cannot happen twice."),
        (CHARGE, "confirm", {"external_id": "pi_1", "cancel_asked": True}, "Nothing of the confirm of the charge is known to have been sent. Next it is canceled: its cancel was asked for."),
        (CHARGE, "confirm", {"external_id": "pi_1", "state": State.PENDING, "action_until": LATE + HOUR}, "The customer must act until 2026-03-02 10:00:00 UTC. Next it is looked up (/v1/payment_intents/pi_1); nothing is sent before that."),
        (REFUND, "call", {"state": State.PENDING, "external_id": "re_1"}, "The other side has it and has not decided yet. Next it is looked up (/v1/refunds/re_1); nothing is sent before that."),
        (CHARGE, "cancel", {"external_id": "pi_1", "state": State.PENDING, "result": {"reason": "card_declined"}}, "pi_1 is to be canceled (card_declined); it counts as failed only when that is certain. Next it is looked up (/v1/payment_intents/pi_1); nothing is sent before that."),
        (REFUND, "call", {"state": State.SENDING}, "A worker has committed an attempt of the call and may be sending it now. If its lease ends without an answer, it counts as unknown."),
        (REFUND, "call", {"state": State.UNKNOWN, "conclusion": evidence_json(Evidence(proof=Proof.DONE))}, "The call is done, and nothing of it is sent any more."),
        (CHARGE, "confirm", {"state": State.UNKNOWN, "conclusion": evidence_json(Evidence(proof=Proof.DONE)), "tries": 3, "last_error": "handler_failed: ValueError: not today"}, "The charge is done, and nothing of it is sent any more. Its settled callback has failed 3 times, last with: handler_failed: ValueError: not today. It is tried again by the next worker; `onceflow operations retry` has it tried at once."),
        (REFUND, "call", {"state": State.UNKNOWN, "conclusion": evidence_json(Evidence(proof=Proof.REFUSED)), "tries": 1, "last_error": "the lane is behind"}, "The call was refused, and nothing of it is sent any more. Writing that down has failed once, last with: the lane is behind. It is tried again by the next worker; `onceflow operations retry` has it tried at once."),
        (REFUND, "call", {**UNKNOWN, "conclusion": RULED, "tries": 2, "last_error": "handler_failed: x"}, "A person has decided (ruled_failed): a worker that knows the effect settles it next. Its settled callback has failed 2 times, last with: handler_failed: x. It is tried again by the next worker; `onceflow operations retry` has it tried at once."),
        (REFUND, "call", {**UNKNOWN, "last_proof": Proof.REFUSED, "looked_up_at": LATE}, "The call may have happened (a timeout). Next it is settled: it was refused, and nothing of it is there."),
        (REFUND, "call", {"state": State.REVIEW, "review_code": "several_objects"}, "Only a person may decide (several_objects): More than one object carries the operation's id: it may have acted twice. Compare with the object at Stripe, then `onceflow operations resolve`."),
        (REFUND, "call", {"state": State.REVIEW}, "Only a person may decide."),
        (REFUND, "call", {"state": State.REVIEW, "conclusion": RULED}, "It was put before a person. A person has decided (ruled_failed): a worker that knows the effect settles it next."),
        (REFUND, "call", {**UNKNOWN, "conclusion": RULED}, "The call may have happened (a timeout). A person has decided (ruled_failed): a worker that knows the effect settles it next."),
        (REFUND, "call", {"state": State.SUCCEEDED}, "It has succeeded."),
        (REFUND, "call", {"state": State.FAILED, "last_error": "charge_already_refunded"}, "It has failed (charge_already_refunded)."),
        (REFUND, "call", {"state": State.CANCELED}, "It was canceled, and nothing of it will happen."),
    ],
)  # fmt: skip
def test_words(call: Call, step: str, fields: dict[str, Any], expected: str) -> None:
    assert why(operation(call, step=step, **fields), now=LATE) == expected


def test_the_next_look_is_told_while_there_is_one() -> None:
    told = why(operation(MAIL, **UNKNOWN), now=NOW, next_attempt_at=NOW + MINUTE)
    assert told.endswith(" A worker looks at it at 2026-03-01 12:01:00 UTC.")
    known: dict[str, Any] = {"conclusion": evidence_json(Evidence(proof=Proof.ENDED)), "tries": 1, "last_error": "x"}
    for state in (State.UNKNOWN, State.SUCCEEDED):
        told = why(operation(REFUND, state=state, **known), now=NOW, next_attempt_at=NOW + MINUTE)
        assert "It is tried again at 2026-03-01 12:01:00 UTC; `onceflow operations retry`" in told
    settled = operation(MAIL, state=State.FAILED, last_error="x")
    assert why(settled, now=NOW, next_attempt_at=NOW + MINUTE) == "It has failed (x)."
