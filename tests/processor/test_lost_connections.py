"""An event that costs connections is given up; one that was done meanwhile is not."""

from __future__ import annotations

from onceflow_processor.admission import Fault, Item
from onceflow_processor.lost_connections import LOST_CONNECTIONS_MAX, LostConnections
from onceflow_processor.position import Position
from onceflow_processor.records import Partition, Record

PARTITION = Partition("stripe.events.v1", 0)


def item(offset: int, *, partition: Partition = PARTITION) -> Item:
    return Item(Record(partition, offset, 1_700_000_000_000, b"key", b"{}", [], 1), None)


def test_after_so_many_losses_an_event_gets_its_fault() -> None:
    lost = LostConnections()
    for times in range(1, LOST_CONNECTIONS_MAX + 1):
        again = item(7)
        lost.judge(again)
        assert again.fault is None
        assert lost.note(again) == times
    given_up, neighbour, elsewhere = item(7), item(8), item(7, partition=Partition("stripe.events.v1", 1))
    for one in (given_up, neighbour, elsewhere):
        lost.judge(one)
    assert given_up.fault is not None
    assert given_up.fault.code == "handler_broke_transaction"
    assert neighbour.fault is None
    assert elsewhere.fault is None


def test_a_fault_that_is_there_stays() -> None:
    lost = LostConnections()
    known = item(7)
    known.fault = Fault("too_old", "older than the horizon")
    for _ in range(LOST_CONNECTIONS_MAX):
        lost.note(known)
    lost.judge(known)
    assert known.fault.code == "too_old"


def test_what_is_done_is_forgotten() -> None:
    lost = LostConnections()
    for _ in range(LOST_CONNECTIONS_MAX):
        lost.note(item(7))
        lost.note(item(8))
    lost.forget_done({PARTITION: Position("topic-id-1", 1, 8, None), Partition("other", 0): Position("t", 1, 9, None)})
    assert lost.note(item(7)) == 1
    assert lost.note(item(8)) == LOST_CONNECTIONS_MAX + 1
