"""Histories of eight events, shuffled, doubled and cut into batches at random, end as the true order does.

Both roads run on a real PostgreSQL, over the same handlers, about objects of their own: what is compared is what they left.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import psycopg
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onceflow_schemas.object_order import Order, compare, read_state
from tests.processor.conftest import Bench
from tests.processor.reports.shop import shop
from tests.processor.reports.stripe_events import T0, MakeBench, records, told

EVENTS = 8
HISTORIES_MAX = 5
PARTITIONS = 2
Step = tuple[str, dict[str, Any]]


def invoice(event: str, status: str, tries: int, paid: int = 0) -> Step:
    return f"invoice.{event}", {"status": status, "attempt_count": tries, "amount_paid": paid}


def dispute(event: str, status: str) -> Step:
    return f"charge.dispute.{event}", {"status": status, "amount": 400, "fee": 15}


LIVES: dict[str, list[Step]] = {
    "subscription": [
        ("customer.subscription.created", {"status": "incomplete"}),
        ("customer.subscription.updated", {"status": "active"}),
        ("customer.subscription.updated", {"status": "past_due"}),
        ("customer.subscription.updated", {"status": "active"}),
        ("customer.subscription.updated", {"status": "active", "cancel_at_period_end": True}),
        ("customer.subscription.updated", {"status": "unpaid"}),
        ("customer.subscription.updated", {"status": "canceled", "metadata": {"a": "b"}}),
        ("customer.subscription.deleted", {"status": "canceled"}),
    ],
    "invoice": [
        invoice("created", "draft", 0),
        invoice("updated", "draft", 0),
        invoice("finalized", "open", 0),
        invoice("payment_failed", "open", 1),
        invoice("payment_action_required", "open", 2),
        invoice("payment_failed", "open", 3),
        invoice("payment_succeeded", "paid", 4, 500),
        invoice("paid", "paid", 4, 500),
    ],
    "payment_intent": [
        ("payment_intent.created", {"status": "requires_payment_method"}),
        ("payment_intent.requires_action", {"status": "requires_action"}),
        ("payment_intent.payment_failed", {"status": "requires_payment_method", "error": 1}),
        ("payment_intent.requires_action", {"status": "requires_action"}),
        ("payment_intent.processing", {"status": "processing"}),
        ("payment_intent.payment_failed", {"status": "requires_payment_method", "error": 2}),
        ("payment_intent.processing", {"status": "processing"}),
        ("payment_intent.succeeded", {"status": "succeeded", "amount_received": 500}),
    ],
    "refund": [
        ("refund.created", {"status": "pending"}),
        ("refund.updated", {"status": "pending"}),
        ("refund.updated", {"status": "requires_action"}),
        ("refund.updated", {"status": "succeeded"}),
        ("charge.refund.updated", {"status": "succeeded", "metadata": {"a": "b"}}),
        ("refund.updated", {"status": "succeeded", "metadata": {}}),
        ("refund.failed", {"status": "failed"}),
        ("refund.updated", {"status": "failed"}),
    ],
    "dispute": [
        dispute("created", "needs_response"),
        dispute("funds_withdrawn", "needs_response"),
        dispute("updated", "needs_response"),
        dispute("updated", "under_review"),
        dispute("updated", "under_review"),
        dispute("closed", "won"),
        dispute("funds_reinstated", "won"),
        dispute("updated", "won"),
    ],
}
_objects = itertools.count()


@dataclass
class History:
    """One object's events in their true order; ``shuffled`` and ``doubles`` are what arrives."""

    kind: str
    gaps: list[int]
    shuffled: list[int]
    doubles: list[tuple[int, bool]]
    number: int = field(default_factory=lambda: next(_objects))

    def name(self, road: str) -> str:
        return f"{self.kind.replace('.', '_')}_{self.number}_{road}"

    def bodies(self, road: str) -> Iterator[tuple[bytes, bytes]]:
        """Each event, and the same change under another event id."""
        at, second = 0, list[Any]()
        for place, (event_type, fields) in enumerate(LIVES[self.kind]):
            name = self.name(road)
            subject = {"id": name, "object": self.kind, "n": place, "charge": f"ch_{name}", **fields}
            state = read_state(subject, created=datetime.fromtimestamp(T0, UTC), event_id="", event_type=event_type)
            # Events share a second only where their order within it is certain; any other pair would be a tie.
            if self.gaps[place] or any(compare(other, state) is not Order.NEWER for other in second):
                at += self.gaps[place] or 1
                second.clear()
            second.append(state)
            before = {"n": place - 1} if event_type.endswith("updated") else None
            made = [
                told(
                    f"evt_{name}_{place}{other}",
                    event_type,
                    subject,
                    at=at,
                    before=before,
                    request={"id": f"req_{place}"},
                )
                for other in ("", "_again")
            ]
            yield made[0], made[1]

    def arrival(self) -> list[bytes]:
        """The shuffled road: every event once, some again, some under a second id, anywhere."""
        bodies = list(self.bodies("shuffled"))
        arriving = [bodies[place][0] for place in self.shuffled]
        for place, (again, is_other_id) in enumerate(self.doubles):
            arriving.insert((again * 7 + place) % (len(arriving) + 1), bodies[again][int(is_other_id)])
        return arriving


places = st.integers(0, EVENTS - 1)
histories = st.builds(
    History,
    kind=st.sampled_from(sorted(LIVES)),
    gaps=st.lists(st.sampled_from([0, 0, 1, 3600]), min_size=EVENTS, max_size=EVENTS),
    shuffled=st.permutations(range(EVENTS)),
    doubles=st.lists(st.tuples(places, st.booleans()), max_size=4),
)


@dataclass
class Left:
    """What the events of one object left behind."""

    state: str = ""
    outcomes: Counter[str] = field(default_factory=Counter)
    totals: dict[str, int] = field(default_factory=dict)


class Roads:
    """A bench whose records go to two partitions, batch after batch."""

    def __init__(self, one: Bench) -> None:
        self.one = one
        self.offsets = [0] * PARTITIONS

    def run(self, bodies: Sequence[bytes], cuts: Sequence[int]) -> None:
        """Cut the arriving events into batches; neighbours go to different partitions."""
        edges = sorted({0, len(bodies), *(cut % (len(bodies) + 1) for cut in cuts)})
        for start, end in itertools.pairwise(edges):
            batch = []
            for place in range(start, end):
                partition = place % PARTITIONS
                batch += records([bodies[place]], first=self.offsets[partition], partition=partition)
                self.offsets[partition] += 1
            self.one.run(batch)

    def left(self, names: Sequence[str]) -> dict[str, Left]:
        """By object: its state, its outcomes, its running totals."""
        keys = [*names, *(f"ch_{name}" for name in names)]
        found = {name: Left() for name in names}
        with psycopg.connect(self.one.url) as reader:
            for name, note in reader.execute(
                "SELECT event_id, note FROM public.ledger WHERE event_id = ANY(%s)", [keys]
            ):
                found[name].state = note
            for name, kind, value in reader.execute(
                "SELECT key, type, value FROM onceflow.outcome WHERE key = ANY(%s)", [keys]
            ):
                found[name].outcomes[f"{kind} {bytes(value).decode()}"] += 1
            for name, namespace, total in reader.execute(
                "SELECT key, namespace, total FROM onceflow.booked WHERE key = ANY(%s)", [keys]
            ):
                found[name.removeprefix("ch_")].totals[namespace] = total
        return found


def test_a_shuffled_history_ends_as_the_true_one(bench: MakeBench) -> None:
    roads = Roads(bench(shop()))

    @given(
        drawn=st.lists(histories, min_size=1, max_size=HISTORIES_MAX),
        cuts=st.lists(st.integers(0, 100), max_size=6),
        mixed=st.randoms(use_true_random=False),
    )
    @settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
    def ends_alike(drawn: list[History], cuts: list[int], mixed: Any) -> None:
        drawn = [History(one.kind, one.gaps, one.shuffled, one.doubles) for one in drawn]
        roads.run([body for one in drawn for body, _ in one.bodies("true")], [])
        queues = [one.arrival() for one in drawn]
        arriving = []
        while any(queues):
            arriving.append(mixed.choice([queue for queue in queues if queue]).pop(0))
        roads.run(arriving, cuts)
        left = roads.left([one.name(road) for one in drawn for road in ("true", "shuffled")])
        for one in drawn:
            true, shuffled = left[one.name("true")], left[one.name("shuffled")]
            assert shuffled == true
            assert true.state.startswith(LIVES[one.kind][-1][1]["status"])
            assert sum(count for told_of, count in true.outcomes.items() if told_of.startswith("seen.")) == EVENTS

    ends_alike()
    assert set(roads.one.states().values()) == {"processed"}
