"""A topic's id as Kafka's own tools print it."""

from __future__ import annotations

import base64

import pytest
from confluent_kafka import Uuid

from onceflow_schemas.topic_ids import shown_topic_id


@pytest.mark.parametrize(("most", "least"), [(-1, -17), (0x0102030405060708, 0x090A0B0C0D0E0F10), (-0x40000000, -5)])
def test_it_is_the_form_of_kafka_for_what_the_client_library_gives(most: int, least: int) -> None:
    """Java's ``Uuid.toString``: the 16 bytes in base64url, without padding."""
    octets = most.to_bytes(8, "big", signed=True) + least.to_bytes(8, "big", signed=True)
    assert shown_topic_id(str(Uuid(most, least))) == base64.urlsafe_b64encode(octets).decode().rstrip("=")


def test_it_may_be_shown_twice_and_padding_goes() -> None:
    assert shown_topic_id("a+b/c-_==") == shown_topic_id("a-b_c-_") == "a-b_c-_"
