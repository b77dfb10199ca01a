"""The demo's own count is tried: what is lost, doubled or wrong must turn its last line."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Any

import pytest

from onceflow.demo.counting import count, money_published, money_sent
from onceflow.demo.delivery import Attempt
from onceflow.demo.ledgers import Delivery, Ledgers, OutcomeEntry, TopicEvent
from onceflow.demo.oddities import Oddity
from onceflow.demo.operation_count import Movement, OperationSums
from onceflow.demo.poison_count import PoisonSums
from onceflow.demo.proof_count import Proved, listable
from onceflow.demo.stripe_events import StripeEvent
from onceflow.demo.traffic import Plan, Request


def sha(body: bytes) -> bytes:
    return hashlib.sha256(body).digest()


def event(event_id: str, kind: str, object_id: str) -> StripeEvent:
    subject = {"id": object_id, "amount": 500, "currency": "eur"}
    body = json.dumps({"id": event_id, "type": kind, "data": {"object": subject}}).encode()
    return StripeEvent(event_id, kind, object_id, body)


PAID = event("evt_1", "payment_intent.succeeded", "pi_1")
TWIN = event("evt_2", "payment_intent.succeeded", "pi_1")
FAILED = event("evt_3", "payment_intent.payment_failed", "pi_2")
OTHER = event("evt_4", "payout.paid", "po_1")
ODD = Oddity("null", b"null", "not_an_event")
FORGED = Request("forged", b"forged")
SENT = [Request("event", item.body) for item in (PAID, TWIN, FAILED, OTHER)]
PLAN = Plan([*SENT, Request("repeat", PAID.body), Request("odd", ODD.body), FORGED], [PAID, TWIN, FAILED, OTHER], [ODD])
ATTEMPTS = [Attempt(SENT[0], None), *(Attempt(request, 200) for request in PLAN.requests[:-1]), Attempt(FORGED, 400)]
HASH_ID = f"sha256:{sha(b'null').hex()}"


def outcome(lane: int, seq: int, cause: str, kind: str, key: str, *, amount: int = 0) -> OutcomeEntry:
    return OutcomeEntry(
        lane, seq, f"ce-{lane}-{seq}", kind, key, f"event:a/test/{cause}", sha(cause.encode()), amount, "eur"
    )


WRITTEN = [outcome(0, 1, "evt_1", "payment.succeeded", "pi_1"), outcome(0, 2, "evt_3", "payment.failed", "pi_2")]
PUBLISHED = [replace(WRITTEN[0], amount=500), WRITTEN[1]]
SOUND = Ledgers(
    events=[
        *(TopicEvent(sha(item.body), f"a/test/{item.id}") for item in (PAID, TWIN, FAILED, OTHER, PAID)),
        TopicEvent(sha(b"null"), f"a/test/{HASH_ID}"),
    ],
    published=PUBLISHED,
    markers={
        "a/test/evt_1": "processed",
        "a/test/evt_2": "processed",
        "a/test/evt_3": "processed",
        "a/test/evt_4": "ignored",
    },
    quarantined=[(HASH_ID, "not_an_event", sha(b"null"))],
    written=WRITTEN,
)

SUMS = OperationSums(operations=9, effects=7, declined=2, were_unknown=3)
POISON = PoisonSums(redriven=3, replay_runs=0, wrong=())
PROVED = Proved(events=5, unexplained=0)


def test_sound_ledgers_give_the_line_of_the_contract() -> None:
    assert count(PLAN, ATTEMPTS, ledgers=SOUND, sums=SUMS, poison=POISON, proved=PROVED).last_line() == (
        "demo: ok - 8 requests sent, 6 answered 200, 5 distinct events in the topic, 3 processed, 1 ignored, 1 quarantined,"
        " 2 outcomes written, 2 outcomes published, 9 operations, 7 effects, 2 declined, 3 were unknown, 0 in review,"
        " 3 redriven in order, 0 to replay, 0 unexplained, 0 lost, 0 doubled"
    )


def test_webhooks_of_the_simulated_stripe_are_requests_too() -> None:
    sent = [Delivery("evt_4", 200), Delivery("evt_4", None)]
    found = count(PLAN, ATTEMPTS, ledgers=replace(SOUND, deliveries=sent), sums=SUMS, poison=POISON, proved=PROVED)
    assert (found.sent, found.answered, found.simulated, found.ok) == (10, 7, 2, True)
    lost = count(
        PLAN,
        ATTEMPTS,
        ledgers=replace(SOUND, deliveries=[Delivery("evt_9", 200)]),
        sums=SUMS,
        poison=POISON,
        proved=PROVED,
    )
    assert lost.lost == ("answered 200 and not in the topic: evt_9",)


@pytest.mark.parametrize("kind", ["lost", "doubled", "wrong"])
def test_what_is_wrong_about_operations_turns_the_last_line(kind: str) -> None:
    sums = replace(SUMS, **{kind: ("2 effects of operation x",)})  # type: ignore[arg-type]
    found = count(PLAN, ATTEMPTS, ledgers=SOUND, sums=sums, poison=POISON, proved=PROVED)
    assert found.last_line().startswith("demo: FAILED - ")
    assert found.last_line().endswith("2 effects of operation x")


def test_money_is_counted_once_per_payment() -> None:
    assert money_sent(PLAN) == {"eur": 500}
    moved = [Movement("charge", "", 70, "eur"), Movement("refund", "x", 70, "eur"), Movement("charge", "y", 9, "jpy")]
    assert money_sent(PLAN, moved) == {"eur": 570, "jpy": 9}
    assert money_published(SOUND) == {"eur": 500}


FAULTS: dict[str, tuple[str, dict[str, Any]]] = {
    "not in the topic": ("lost", {"events": SOUND.events[:2] + SOUND.events[3:]}),
    "no state": ("lost", {"markers": {k: v for k, v in SOUND.markers.items() if k != "a/test/evt_4"}}),
    "no outcome": ("lost", {"written": WRITTEN[:1], "published": PUBLISHED[:1]}),
    "not published": ("lost", {"published": PUBLISHED[:1]}),
    "published with another value": ("lost", {"published": [replace(PUBLISHED[0], digest=b""), PUBLISHED[1]]}),
    "published twice": ("doubled", {"published": [*PUBLISHED, PUBLISHED[1]]}),
    "the twin had an effect": ("doubled", {"written": [*WRITTEN, outcome(0, 3, "evt_2", "payment.succeeded", "pi_1")]}),
    "two outcomes of a cause": ("doubled", {"written": [*WRITTEN, outcome(0, 3, "evt_3", "payment.failed", "pi_2")]}),
    "published and not written": ("doubled", {"published": [*PUBLISHED, outcome(0, 3, "evt_9", "x", "y")]}),
    "swapped": ("wrong", {"published": [PUBLISHED[1], PUBLISHED[0]]}),
    "a forgery in the topic": ("wrong", {"events": [*SOUND.events, TopicEvent(sha(b"forged"), "a/test/evt_1")]}),
    "another code": ("wrong", {"quarantined": [(HASH_ID, "not_json", sha(b"null"))]}),
    "parked": ("wrong", {"markers": SOUND.markers | {"a/test/evt_4": "parked"}}),
    "done and quarantined": ("wrong", {"quarantined": [*SOUND.quarantined, ("evt_4", "too_old", sha(OTHER.body))]}),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_fault_turns_the_last_line(fault: str) -> None:
    kind, changes = FAULTS[fault]
    found = count(PLAN, ATTEMPTS, ledgers=replace(SOUND, **changes), sums=SUMS, poison=POISON, proved=PROVED)
    assert getattr(found, kind), found
    assert found.last_line().startswith("demo: FAILED - ")


def test_answers_are_held_against_the_plan() -> None:
    unanswered = count(PLAN, [*ATTEMPTS[:2], *ATTEMPTS[3:]], ledgers=SOUND, sums=SUMS, poison=POISON, proved=PROVED)
    assert unanswered.wrong == ("1 webhooks were never answered with 200",)
    believed = count(PLAN, [*ATTEMPTS, Attempt(FORGED, 200)], ledgers=SOUND, sums=SUMS, poison=POISON, proved=PROVED)
    assert "a wrong signature was answered 200" in believed.wrong
    assert count(
        PLAN, ATTEMPTS, ledgers=SOUND, sums=SUMS, poison=POISON, proved=PROVED, unsettled="lane 0 has published 1 of 2"
    ).wrong == ("lane 0 has published 1 of 2",)


def test_what_the_proof_leaves_unexplained_is_a_failure() -> None:
    proved = Proved(events=5, unexplained=2, differences=("unexplained: marker_differs acct_1/evt_1: ...",))
    found = count(PLAN, ATTEMPTS, ledgers=SOUND, sums=SUMS, poison=POISON, proved=proved)
    assert not found.ok
    assert found.last_line().startswith("demo: FAILED - 0 lost, 0 doubled: unexplained: marker_differs")
    assert not count(PLAN, ATTEMPTS, ledgers=SOUND, sums=SUMS, poison=POISON, proved=Proved(5, 1)).ok


def test_stripe_lists_what_was_sent_and_is_an_event() -> None:
    good = {"id": "evt_1", "type": "a.b", "created": 5, "livemode": False, "data": {"object": {}}}
    bodies: list[object] = [
        good, {**good, "created": 9}, {**good, "id": "evt_2", "created": 1}, {**good, "id": 5}, {**good, "livemode": True},
        {**good, "id": "evt_3", "account": "acct_2"}, {**good, "id": "evt_4", "created": "x"}, {**good, "id": "evt_5", "data": []},
        [], None,
    ]  # fmt: skip
    found = listable([*(json.dumps(body).encode() for body in bodies), b"no json", b"\xff"])
    assert [(event["id"], event["created"]) for event in found] == [("evt_2", 1), ("evt_1", 5)]
