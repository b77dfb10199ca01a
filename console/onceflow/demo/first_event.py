"""The first act: one webhook in, one outcome out, and the time between.

Rule: the outcome is seen as a consumer sees it, by reading the topic; nothing of ours is asked when it was done.
"""

from __future__ import annotations

import time
from typing import Any

from confluent_kafka import OFFSET_END, TopicPartition

from onceflow.demo.counting import OUTCOMES
from onceflow.demo.delivery import StripeLikeSender
from onceflow.demo.ledgers import open_reader, partitions_of
from onceflow.demo.running_system import Ready
from onceflow.demo.stripe_events import StripeEvent
from onceflow.demo.traffic import Plan, Request

SEEN_SECONDS = 20.0
POLL_SECONDS = 0.1


def put_first(plan: Plan) -> StripeEvent:
    """Move an event that has an outcome to the front of the plan and return it."""
    event = next(event for event in plan.events if event.type in OUTCOMES)
    position = next(number for number, request in enumerate(plan.requests) if request.body == event.body)
    plan.requests.insert(0, plan.requests.pop(position))
    return event


def send_and_see(event: StripeEvent, *, ready: Ready, sender: StripeLikeSender) -> float | None:
    """Send the event and return the seconds until its outcome is in the topic, None when it did not come in time."""
    reader = open_reader(ready.kafka_bootstrap)
    try:
        partitions = partitions_of(reader, ready.outcome_topic)
        reader.assign([TopicPartition(ready.outcome_topic, partition, OFFSET_END) for partition in partitions])
        reached = 0
        while reached < len(partitions):  # each partition's end is told once: then the reader stands there
            reached += sum(1 for message in reader.consume(len(partitions), timeout=POLL_SECONDS) if message.error())
        began = time.monotonic()
        sender.send(Request("event", event.body))
        while time.monotonic() - began < SEEN_SECONDS:
            message = reader.poll(POLL_SECONDS)
            if message is not None and message.error() is None and _cause(message.headers()).endswith(event.id):
                return time.monotonic() - began
        return None
    finally:
        reader.close()


def _cause(headers: Any) -> str:
    return next((raw.decode() for name, raw in headers or [] if name == "onceflow_cause"), "")
