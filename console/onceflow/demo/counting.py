"""The count: what was sent against what stands in topics and tables.

Rule: pure, and written from the promise, not from the product: the table below is what the shipped example says it
does.  Whatever does not agree is named; nothing is rounded, explained away or left out.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from onceflow.demo.delivery import Attempt
from onceflow.demo.ledgers import Ledgers, OutcomeEntry
from onceflow.demo.operation_count import Movement, OperationSums
from onceflow.demo.poison_count import PoisonSums
from onceflow.demo.proof_count import Proved
from onceflow.demo.stripe_events import StripeEvent
from onceflow.demo.traffic import Plan

ANSWERED = 200

OUTCOMES = {
    "payment_intent.succeeded": "payment.succeeded",
    "payment_intent.payment_failed": "payment.failed",
    "charge.refunded": "charge.refunded",
    "invoice.paid": "invoice.paid",
    "customer.subscription.created": "subscription.changed",
    "customer.subscription.updated": "subscription.changed",
    "customer.subscription.deleted": "subscription.changed",
    "charge.dispute.created": "dispute.changed",
    "charge.dispute.updated": "dispute.changed",
    "charge.dispute.closed": "dispute.changed",
    "charge.dispute.funds_withdrawn": "dispute.changed",
    "charge.dispute.funds_reinstated": "dispute.changed",
    "product.updated": "product.changed",
}
ONCE_PER_OBJECT = frozenset({"payment_intent.succeeded", "invoice.paid"})


@dataclass(frozen=True, slots=True)
class Count:
    """The sums of the demo's last line, and every disagreement in words."""

    sent: int
    answered: int
    repeats: int
    refused: int
    retried: int
    simulated: int
    distinct: int
    records: int
    processed: int
    ignored: int
    quarantined: int
    written: int
    published: int
    operations: int
    effects: int
    declined: int
    were_unknown: int
    in_review: int
    redriven: int
    replay_runs: int
    unexplained: int
    lost: tuple[str, ...]
    doubled: tuple[str, ...]
    wrong: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Nothing disagrees."""
        return not (self.lost or self.doubled or self.wrong)

    def last_line(self) -> str:
        """Return the line that other programs read (contracts.md)."""
        if not self.ok:
            faults = [*self.lost, *self.doubled, *self.wrong]
            more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
            return f"demo: FAILED - {len(self.lost)} lost, {len(self.doubled)} doubled: {faults[0]}{more}"
        return (
            f"demo: ok - {self.sent} requests sent, {self.answered} answered 200, {self.distinct} distinct events in the"
            f" topic, {self.processed} processed, {self.ignored} ignored, {self.quarantined} quarantined,"
            f" {self.written} outcomes written, {self.published} outcomes published, {self.operations} operations,"
            f" {self.effects} effects, {self.declined} declined, {self.were_unknown} were unknown,"
            f" {self.in_review} in review, {self.redriven} redriven in order, {self.replay_runs} to replay,"
            f" {self.unexplained} unexplained, 0 lost, 0 doubled"
        )


def count(
    plan: Plan,
    attempts: Iterable[Attempt],
    *,
    ledgers: Ledgers,
    sums: OperationSums,
    poison: PoisonSums,
    proved: Proved,
    unsettled: str | None = None,
) -> Count:
    """Compare the sender's list with the ledgers.

    Args:
        plan: what was to be sent.
        attempts: what was sent, with the answers.
        ledgers: what was found.
        sums: those of the operations.
        poison: those of the act with the poisoned event.
        proved: what ``onceflow verify`` found.
        unsettled: why the system had not come to rest before the ledgers were read, None when it had.
    """
    tried = list(attempts)
    answers = [attempt.status for attempt in tried] + [one.status for one in ledgers.deliveries]
    in_topic = {event.identity for event in ledgers.events}
    states = Counter(state for identity, state in ledgers.markers.items() if identity in in_topic)
    waiting = {event_id for event_id, _, _ in ledgers.quarantined}
    quarantined = {identity for identity in in_topic if identity.rpartition("/")[2] in waiting}
    return Count(
        sent=len(tried) + len(ledgers.deliveries),
        answered=answers.count(ANSWERED),
        repeats=sum(1 for request in plan.requests if request.kind == "repeat"),
        refused=sum(1 for attempt in tried if attempt.request.kind == "forged" and attempt.status is not None),
        retried=len(tried) - len(plan.requests),
        simulated=len(ledgers.deliveries),
        distinct=len(in_topic),
        records=len(ledgers.events),
        processed=states["processed"],
        ignored=states["ignored"],
        quarantined=len(quarantined),
        written=len(ledgers.written),
        published=len(ledgers.published),
        operations=sums.operations,
        effects=sums.effects,
        declined=sums.declined,
        were_unknown=sums.were_unknown,
        in_review=sums.in_review,
        redriven=poison.redriven,
        replay_runs=poison.replay_runs,
        unexplained=proved.unexplained,
        lost=(*_lost(plan, tried, ledgers), *sums.lost),
        doubled=(*_doubled(ledgers), *sums.doubled),
        wrong=(
            *((unsettled,) if unsettled else ()),
            *_wrong(plan, tried, ledgers),
            *sums.wrong,
            *poison.wrong,
            *_unproved(proved),
        ),
    )


def _unproved(proved: Proved) -> list[str]:
    if not proved.unexplained:
        return []
    return list(proved.differences) or [f"onceflow verify leaves {proved.unexplained} unexplained"]


def _processed(plan: Plan, ledgers: Ledgers) -> list[tuple[StripeEvent, str]]:
    """The events of the plan that were processed, each with the cause text of its outcomes."""
    by_id = {
        identity.rpartition("/")[2]: identity for identity, state in ledgers.markers.items() if state == "processed"
    }
    return [(event, f"event:{by_id[event.id]}") for event in plan.events if event.id in by_id]


def _lost(plan: Plan, tried: list[Attempt], ledgers: Ledgers) -> Iterator[str]:
    digests = {event.digest for event in ledgers.events}
    answered = {attempt.request.digest for attempt in tried if attempt.status == ANSWERED}
    yield from (f"answered 200 and not in the topic: body {digest.hex()[:12]}" for digest in answered - digests)
    named = {event.identity.rpartition("/")[2] for event in ledgers.events}
    told = {one.event_id for one in ledgers.deliveries if one.status == ANSWERED}
    yield from (f"answered 200 and not in the topic: {event_id}" for event_id in sorted(told - named))
    known = set(ledgers.markers) | {event_id for event_id, _, _ in ledgers.quarantined}
    for record in ledgers.events:
        if record.identity not in known and record.identity.rpartition("/")[2] not in known:
            yield f"in the topic and without a state: {record.identity}"
    causes = {row.cause for row in ledgers.written}
    effects = {(row.type, row.key) for row in ledgers.written}
    for event, cause in _processed(plan, ledgers):
        effect = (OUTCOMES.get(event.type), event.object_id)
        if (
            effect[0] is not None
            and cause not in causes
            and (event.type not in ONCE_PER_OBJECT or effect not in effects)
        ):
            yield f"processed and without its outcome: {event.id} ({event.type})"
    published = {(entry.lane, entry.seq, entry.ce_id, entry.digest) for entry in ledgers.published}
    for row in ledgers.written:
        if (row.lane, row.seq, row.ce_id, row.digest) not in published:
            yield f"written and not published: outcome {row.ce_id}"


def _doubled(ledgers: Ledgers) -> Iterator[str]:
    yield from (f"published {n} times: outcome {name}" for name, n in _several(e.ce_id for e in ledgers.published))
    yield from (f"{n} outcomes of one cause: {name}" for name, n in _several(row.cause for row in ledgers.written))
    once = {OUTCOMES[kind] for kind in ONCE_PER_OBJECT}
    facts = (f"{row.type} {row.key}" for row in ledgers.written if row.type in once)
    yield from (f"{n} outcomes of one fact: {name}" for name, n in _several(facts))
    rows = {(row.lane, row.seq, row.ce_id) for row in ledgers.written}
    for entry in ledgers.published:
        if (entry.lane, entry.seq, entry.ce_id) not in rows:
            yield f"published and not written: lane {entry.lane}, sequence {entry.seq}"


def _several(names: Iterable[str]) -> list[tuple[str, int]]:
    return [(name, times) for name, times in Counter(names).items() if times > 1]


def _wrong(plan: Plan, tried: list[Attempt], ledgers: Ledgers) -> Iterator[str]:
    """What is neither lost nor doubled and still not as promised."""
    forged = {request.digest for request in plan.requests if request.kind == "forged"}
    if forged & {event.digest for event in ledgers.events}:
        yield "a body with a wrong signature is in the topic"
    for attempt in tried:
        if attempt.request.kind == "forged" and attempt.status == ANSWERED:
            yield "a wrong signature was answered 200"
    answered = {attempt.request.digest for attempt in tried if attempt.status == ANSWERED}
    unanswered = {request.digest for request in plan.requests if request.kind != "forged"} - answered
    if unanswered:
        yield f"{len(unanswered)} webhooks were never answered with 200"
    yield from _wrong_oddities(plan, ledgers)
    yield from _out_of_order(ledgers.published)
    ended = {event.identity for event in ledgers.events if ledgers.markers.get(event.identity) == "parked"}
    yield from (f"still parked: {identity}" for identity in ended)
    kept = {event_id for event_id, _, _ in ledgers.quarantined}
    for event in ledgers.events:
        done = ledgers.markers.get(event.identity) in {"processed", "ignored"}
        if done and event.identity.rpartition("/")[2] in kept:
            yield f"done and quarantined at once: {event.identity}"


def _wrong_oddities(plan: Plan, ledgers: Ledgers) -> Iterator[str]:
    """Each oddity ends as it should: quarantined with its code, or processed with its outcome."""
    codes = {digest: code for _, code, digest in ledgers.quarantined}
    causes = {row.cause for row in ledgers.written}
    identities = {record.digest: record.identity for record in ledgers.events}
    for item in plan.odd:
        digest = hashlib.sha256(item.body).digest()
        identity = identities.get(digest)
        if (code := codes.get(digest)) != item.code:
            yield f"{item.name}: expected {item.code}, found {code}"
        if item.code is None and f"event:{identity}" not in causes:
            yield f"{item.name}: no outcome"


def _out_of_order(published: list[OutcomeEntry]) -> Iterator[str]:
    """In the order of the log, each lane counts 1, 2, 3 ..."""
    next_seq: dict[int, int] = defaultdict(lambda: 1)
    for entry in published:
        if entry.seq != next_seq[entry.lane]:
            yield f"lane {entry.lane}: sequence {entry.seq} where {next_seq[entry.lane]} should be"
        next_seq[entry.lane] = entry.seq + 1


def money_sent(plan: Plan, movements: Iterable[Movement] = ()) -> dict[str, int]:
    """Return the sum of all payments that succeeded, per currency in minor units, each payment counted once.

    Args:
        plan: the events of payments that were sent.
        movements: what was really charged at the simulated Stripe.
    """
    payments: dict[str, tuple[str, int]] = {}
    for body in [event.body for event in plan.events] + [item.body for item in plan.odd if item.code is None]:
        event = json.loads(body)
        if event["type"] == "payment_intent.succeeded":
            intent = event["data"]["object"]
            payments[intent["id"]] = (intent["currency"], intent["amount"])
    charged = [(one.currency, one.amount) for one in movements if one.kind == "charge"]
    return _summed([*payments.values(), *charged])


def money_published(ledgers: Ledgers) -> dict[str, int]:
    """Return the sum that a consumer of the outcome topic books for payments, per currency in minor units."""
    paid = (entry for entry in ledgers.published if entry.type == OUTCOMES["payment_intent.succeeded"])
    return _summed((entry.currency, entry.amount) for entry in paid)


def _summed(amounts: Iterable[tuple[str, int]]) -> dict[str, int]:
    sums: dict[str, int] = defaultdict(int)
    for currency, amount in amounts:
        sums[currency] += amount
    return dict(sorted(sums.items()))
