"""Bodies and records of the bench: those of the demo, as Stripe writes them, 3 kB in the median.

Rule: every event has an id of its own and an object has a handful of events, as in production, and the records are made by the
very function that the bridge uses.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache

from onceflow.demo.stripe_events import StripeEvent, stripe_events
from onceflow_schemas.attestation import AttestationKey
from onceflow_schemas.envelope import read_envelope
from onceflow_schemas.event_record import OutgoingRecord, build_event

DEPLOYMENT = "bench"
ACCOUNT = "acct_bench"
ENDPOINT = "bench"
ATTESTATION_KEY = AttestationKey("bench", bytes(range(100, 132)))
WEBHOOK_SECRET = "whsec_bench_secret_of_the_endpoint"  # noqa: S105 - made up
TEMPLATES_MAX = 3_000
"""So many different bodies; more events are copies of them with other ids."""
COPY_DIGITS = 6
"""So many of an object's id tell its copies apart."""
SEED = 20_260_101


@cache
def _templates(count: int) -> list[StripeEvent]:
    return stripe_events(seed=SEED, count=count, now=int(time.time()))


@cache
def _order_ids(count: int) -> list[str | None]:
    return [read_envelope(template.body).order_id for template in _templates(count)]


def key_id(number: int) -> str:
    """Return the id of the object of a load of so many keys."""
    return f"pi_Bench{number:019d}"


def bodies(count: int, *, series: str, keys: int | None = None) -> Iterator[tuple[str, bytes]]:
    """Yield (event id, body) of ``count`` events.

    Args:
        count: how many.
        series: letters and digits that make the ids differ from those of another series.
        keys: so many order keys take turns; None: each copy of the templates has objects of its own.
    """
    templates, order_ids = _templates(min(count, TEMPLATES_MAX)), _order_ids(min(count, TEMPLATES_MAX))
    for number in range(count):
        template = templates[number % len(templates)]
        event_id = f"evt_{series}{number:08d}"
        body = template.body.replace(template.id.encode(), event_id.encode(), 1)
        order_id, copy = order_ids[number % len(templates)], number // len(templates)
        if order_id and (copy or keys is not None):
            own = f"{order_id[:-COPY_DIGITS]}{copy:0{COPY_DIGITS}d}" if keys is None else key_id(number % keys)
            body = body.replace(order_id.encode(), own.encode())
        yield event_id, body


def record_of(body: bytes, *, topic: str) -> OutgoingRecord:
    """Return the record that the bridge would make of a body now."""
    return build_event(
        body,
        envelope=read_envelope(body),
        default_account=ACCOUNT,
        default_mode="test",
        received_at=datetime.now(UTC),
        endpoint=ENDPOINT,
        source="webhook",
        deployment=DEPLOYMENT,
        topic=topic,
        key=ATTESTATION_KEY,
        traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    )
