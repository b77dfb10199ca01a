"""Records without the client library's type."""

from __future__ import annotations

from onceflow_processor.records import Partition, Record


def test_a_partition_reads_as_operators_write_it_and_sorts_by_topic_and_number() -> None:
    assert str(Partition("stripe.events.v1", 3)) == "stripe.events.v1/3"
    assert sorted([Partition("b", 0), Partition("a", 10), Partition("a", 9)]) == [
        Partition("a", 9),
        Partition("a", 10),
        Partition("b", 0),
    ]


def test_headers_do_not_count_for_the_limit_of_a_batch() -> None:
    partition = Partition("t", 0)
    assert Record(partition, 0, 0, b"abc", b"defg", [("x", b"y")], 1).size_bytes() == 7
    assert Record(partition, 0, 0, None, None, [], 1).size_bytes() == 0
