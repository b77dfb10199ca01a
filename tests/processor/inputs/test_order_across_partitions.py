"""Order over foreign keys, partitioners and topics: it is kept by the object, whatever the bus did to its events."""

from __future__ import annotations

from tests.processor.conftest import event_body
from tests.processor.inputs.test_roads import Bus
from tests.processor.processor_process import CREATED, MakeRoad


def test_order_is_kept_by_the_object_and_not_by_the_partition(make_road: MakeRoad) -> None:
    """The newer event comes first, under another key, on another partition, for the third object on another topic."""
    road = make_road(partitions=1)
    bus = Bus(road, ("stripe-json", "stripe-signature"), ("eventbridge", "transport"))

    def publish(number: int, status: str, *, topic: int, partition: int) -> None:
        newer = status == "active"
        subject = {"id": f"sub_{number}", "object": "subscription", "status": status}
        event_type = f"customer.subscription.{'updated' if newer else 'created'}"
        body = event_body(f"evt_{status}{number}", event_type, subject, created=CREATED + newer)
        bus.publish(body, number=topic, key=status.encode(), partition=partition)

    # About the second object both are there before the start, and whichever partition is read first is right.
    for status, partition in (("active", 0), ("incomplete", 1)):
        publish(2, status, topic=0, partition=partition)
    bus.flush()
    handlers = "tests.processor.inputs.ordered_handlers:handlers"
    with road.processor(**bus.settings, ONCEFLOW_PROCESSOR_HANDLERS=handlers):
        for number in (1, 3):
            publish(number, "active", topic=0, partition=0)
        bus.flush()
        road.wait_for_events(4)
        publish(1, "incomplete", topic=0, partition=1)
        publish(3, "incomplete", topic=1, partition=1)
        bus.flush()
        road.wait_for_events(6)
    assert set(road.states().values()) == {"processed"}
    rows = road.rows("SELECT pid, event_id FROM public.seen ORDER BY pid")
    assert [(row["pid"], row["event_id"]) for row in rows] == [(1, "active"), (2, "active"), (3, "active")]
    steps = road.rows("SELECT key, count(*) FROM onceflow.outcome WHERE type = 'step' GROUP BY key ORDER BY key")
    assert [(row["key"], row["count"]) for row in steps] == [("sub_1", 2), ("sub_2", 2), ("sub_3", 2)]
