"""A client that fetches nothing although there is something, told from one that has nothing to do."""

from __future__ import annotations

from typing import Any, cast

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from onceflow_processor.records import Partition
from onceflow_processor.stall_watch import LOOK_SECONDS, StallWatch

PLACE = Partition("events", 3)
UNKNOWN = KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION))
AWAY = KafkaException(KafkaError(KafkaError._TRANSPORT))

Answer = tuple[int, int] | None | KafkaException


class Client:
    """Answers with what the last fetch saw, and with what the broker says."""

    def __init__(self) -> None:
        self.fetched: Answer = (0, 40)
        self.there: Answer = (0, 40)
        self.asked = 0

    def get_watermark_offsets(self, _place: TopicPartition, *, cached: bool, timeout: float = 0.0) -> Any:
        answer = self.fetched if cached else self.there
        self.asked += not cached
        assert cached or timeout > 0
        if isinstance(answer, KafkaException):
            raise answer
        return answer


def looks(client: Client, *moments: tuple[Answer, Answer], is_fetched: bool = True) -> int | None:
    """Look once per moment, each with its own answers; return at which one a stall was found."""
    watch = StallWatch()
    for number, (fetched, there) in enumerate(moments):
        client.fetched, client.there = fetched, there
        try:
            watch.look(cast("Consumer", client), lambda: {PLACE: is_fetched}, now=number * LOOK_SECONDS)
        except KafkaException:
            return number
    return None


@pytest.mark.parametrize(
    ("moments", "found"),
    [
        pytest.param([((0, 40), (0, 40))] * 3, None, id="nothing to do"),
        pytest.param([((0, 40), (0, 80))] * 2, 1, id="more than was fetched, twice"),
        pytest.param([((0, 40), (0, 80)), ((0, 80), (0, 120)), ((0, 120), (0, 160))], None, id="behind, and moving"),
        pytest.param([((0, 40), (0, 80)), ((0, 80), (0, 80)), ((0, 80), (0, 90))], None, id="caught up in between"),
        pytest.param([((0, 40), UNKNOWN)] * 2, 1, id="no leader is known, twice"),
        pytest.param([((0, 40), UNKNOWN), ((0, 40), (0, 40))], None, id="no leader for a moment"),
        pytest.param([((0, 40), AWAY)] * 4, None, id="the broker is away"),
        pytest.param([((0, 40), (0, 80)), ((0, 40), AWAY), ((0, 40), (0, 80))], None, id="away in between"),
        pytest.param([((0, 40), None)] * 3, None, id="no answer in time"),
        pytest.param([(None, (0, 5))] * 2, 1, id="never fetched"),
    ],
)
def test_two_looks_in_a_row_decide(moments: list[tuple[Answer, Answer]], found: int | None) -> None:
    assert looks(Client(), *moments) == found


@pytest.mark.parametrize(
    ("moments", "found"),
    [
        pytest.param([((0, 40), (0, 80))] * 3, None, id="nothing is fetched of it yet"),
        pytest.param([(None, (0, 80))] * 3, None, id="never fetched"),
        pytest.param([((0, 40), UNKNOWN)] * 2, 1, id="no leader is known, twice"),
        pytest.param([(None, UNKNOWN), (None, (0, 40)), (None, UNKNOWN)], None, id="a leader in between"),
    ],
)
def test_of_a_partition_that_waits_for_a_look_only_a_leader_is_asked(
    moments: list[tuple[Answer, Answer]], found: int | None
) -> None:
    assert looks(Client(), *moments, is_fetched=False) == found


def test_it_looks_now_and_then_and_forgets_what_was_paused() -> None:
    client, watch = Client(), StallWatch()
    client.there = (0, 80)
    for now in (0.0, 1.0, LOOK_SECONDS - 0.1):
        watch.look(cast("Consumer", client), lambda: {PLACE: True}, now=now)
    assert client.asked == 1
    watch.forget()
    watch.look(cast("Consumer", client), lambda: {PLACE: True}, now=LOOK_SECONDS)
    with pytest.raises(KafkaException, match="events/3 has records"):
        watch.look(cast("Consumer", client), lambda: {PLACE: True}, now=2 * LOOK_SECONDS)
