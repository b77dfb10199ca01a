"""The three limits and the smallest."""

from __future__ import annotations

import pytest

from onceflow_producer.sizes import BODY_BYTES_MAX_DEFAULT, SizeLimits, producer_bytes


@pytest.mark.parametrize(
    ("body", "topic", "producer", "smallest", "fits"),
    [
        (BODY_BYTES_MAX_DEFAULT, 1_048_588, 1_048_588, "body", True),
        (BODY_BYTES_MAX_DEFAULT, None, 1_048_588, "body", True),
        (BODY_BYTES_MAX_DEFAULT, 1_000_000, 1_000_000, "producer", False),
        (BODY_BYTES_MAX_DEFAULT, 5_000_000, 1_048_588, "body", True),
        (2_000_000, 5_000_000, 2_008_192, "body", True),
        (2_000_000, 1_048_588, 1_048_588, "producer", False),
    ],
)
def test_limits(*, body: int, topic: int | None, producer: int, smallest: str, fits: bool) -> None:
    assert producer_bytes(body, topic) == producer
    limits = SizeLimits(body=body, producer=producer, topic=topic)
    assert limits.smallest == smallest
    assert limits.body_fits is fits


def test_the_topic_is_named_when_it_alone_is_too_small() -> None:
    assert SizeLimits(body=100, producer=10_000, topic=50).smallest == "topic"
