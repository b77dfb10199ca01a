"""The librdkafka properties of the bridge's producer.

Rule: what an acknowledgement means is ours to say (all replicas, idempotent, in time), so a setting that would weaken
it is refused and not silently replaced.  Everything else is the operator's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onceflow_schemas.failure import Misconfigured

BATCH_BYTES_MAX = 1_000_000
QUEUE_RECORDS_MAX = 10_000
QUEUE_KILOBYTES_MAX = 65_536
MESSAGE_TIMEOUT_SHARE = 0.75
"""Of the answer's deadline: the client looks for expired records once per second, so its report comes a little late."""

_SAFE: Mapping[str, tuple[str, ...]] = {
    "acks": ("all", "-1"),
    "request.required.acks": ("all", "-1"),
    "enable.idempotence": ("true",),
    "partitioner": ("murmur2_random",),
    "allow.auto.create.topics": ("false",),
}
"""Fixed properties with the values that say the same; murmur2_random is what Java producers do."""

_OURS = ("message.timeout.ms", "delivery.timeout.ms", "message.max.bytes", "batch.size", "transactional.id")
"""Properties that follow from the bridge's own limits."""

_DEFAULTS: Mapping[str, object] = {
    "client.id": "onceflow-bridge",
    # Under load five milliseconds make batches, which spares the broker a third of its work; alone they are not felt.
    "linger.ms": 5,
    # The client's defaults (10 s, 60 s, 30 s) would keep a recovered broker away from us for longer than it was gone.
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 1_000,
    "socket.timeout.ms": 5_000,
    "socket.connection.setup.timeout.ms": 3_000,
    "socket.keepalive.enable": True,
    "socket.nagle.disable": True,
    "queue.buffering.max.messages": QUEUE_RECORDS_MAX,
    "queue.buffering.max.kbytes": QUEUE_KILOBYTES_MAX,
}


def message_timeout_ms(answer_deadline_seconds: float) -> int:
    """Return after how long a record is given up, so that the answer is in time."""
    return max(1_000, int(answer_deadline_seconds * MESSAGE_TIMEOUT_SHARE * 1_000))


def producer_properties(
    kafka: Mapping[str, object], *, record_bytes_max: int, message_timeout_ms: int
) -> dict[str, Any]:
    """Merge the operator's properties with ours.

    Args:
        kafka: librdkafka properties, ``bootstrap.servers`` among them.
        record_bytes_max: the largest record, and so the largest batch.
        message_timeout_ms: after this long a record is given up; below the deadline of the HTTP answer.

    Raises:
        Misconfigured: ``settings_invalid`` naming each property that would weaken an acknowledgement.
    """
    faults = [
        f"kafka property {name} must stay {_SAFE[name][0]}"
        for name in _SAFE
        if name in kafka and str(kafka[name]).lower() not in _SAFE[name]
    ]
    faults += [f"kafka property {name} follows from the bridge's own limits" for name in _OURS if name in kafka]
    if faults:
        raise Misconfigured("settings_invalid", "; ".join(faults), faults=tuple(faults))
    return {
        **_DEFAULTS,
        **kafka,
        "acks": "all",
        "enable.idempotence": True,
        "partitioner": "murmur2_random",
        "allow.auto.create.topics": False,
        "message.timeout.ms": message_timeout_ms,
        "message.max.bytes": record_bytes_max,
        "batch.size": min(BATCH_BYTES_MAX, record_bytes_max),
    }
