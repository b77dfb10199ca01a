"""What is known about the broker, and whether an event may be handed to it.

Rule: ready means exactly "a publish will be tried".  An event is refused at once when the broker is known to be away,
instead of waiting for a timeout that is sure to come, and taken again as soon as the broker answers.  Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

STALL_AFTER_SECONDS = 3.0
"""Shorter absences are waited out: the event stays in the queue and its sender gets a late 200."""


@dataclass(frozen=True, slots=True)
class Reason:
    """Why the bridge is not ready.

    Attributes:
        code: a failure code.
        detail: one sentence, free of addresses: anyone may ask for it.
        closed: no publish is even tried meanwhile.
        said: what the client said last; for the log only.
    """

    code: str
    detail: str
    closed: bool = True
    said: str = ""


@dataclass(frozen=True, slots=True)
class BrokerState:
    """Times are of a monotonic clock in seconds.

    Attributes:
        seen_at: when the broker last proved to work for us, by metadata or by a delivery; None before the first time.
        topic_missing: the last metadata said that the topic does not exist.
        credentials_refused: name of the client's error while login or TLS fail; cleared by the next proof.
        write_refused: name of the broker's error while it answers but refuses records; cleared by the next delivery.
        producer_failed: name of the fatal error while a new producer has not proved to work yet.
        last_error: what the client said last.
    """

    seen_at: float | None = None
    topic_missing: bool = False
    credentials_refused: str | None = None
    write_refused: str | None = None
    producer_failed: str | None = None
    last_error: str = ""


def reasons(state: BrokerState, *, now: float) -> tuple[Reason, ...]:
    """Return why the bridge is not ready, the most telling first; empty when it is."""
    found: list[Reason] = []
    if state.producer_failed is not None:
        found.append(Reason("broker_unavailable", f"the producer failed: {state.producer_failed}"))
    if state.credentials_refused is not None:
        found.append(Reason("broker_refused", f"the broker refused us: {state.credentials_refused}", closed=False))
    if state.topic_missing:
        found.append(Reason("topic_missing", "the event topic does not exist"))
    if state.seen_at is None:
        found.append(Reason("broker_unavailable", "the broker has not answered yet", said=state.last_error))
    elif now - state.seen_at > STALL_AFTER_SECONDS:
        found.append(Reason("broker_unavailable", "the broker does not answer", said=state.last_error))
    if state.write_refused is not None:
        found.append(Reason("broker_refused", f"the broker refuses records: {state.write_refused}", closed=False))
    return tuple(found)


def closing_reason(found: tuple[Reason, ...]) -> Reason | None:
    """Return the first reason for which no publish is tried, None when the road is open."""
    return next((reason for reason in found if reason.closed), None)
