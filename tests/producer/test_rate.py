"""The rate of invalid requests."""

from __future__ import annotations

from onceflow_producer.rate import InvalidRequestRate, RatePolicy


def test_a_burst_then_the_steady_rate() -> None:
    rate = InvalidRequestRate(RatePolicy(per_second=2.0, burst=3))
    assert [rate.take("a", now=0.0) for _ in range(4)] == [True, True, True, False]
    assert rate.take("a", now=0.4) is False
    assert rate.take("a", now=0.5) is True
    assert rate.take("a", now=0.5) is False


def test_silence_fills_the_bucket_only_to_its_burst() -> None:
    rate = InvalidRequestRate(RatePolicy(per_second=1.0, burst=2))
    rate.take("a", now=0.0)
    assert [rate.take("a", now=1_000.0) for _ in range(3)] == [True, True, False]


def test_clients_do_not_share_a_bucket() -> None:
    rate = InvalidRequestRate(RatePolicy(per_second=1.0, burst=1))
    assert rate.take("a", now=0.0)
    assert rate.take("b", now=0.0)
    assert not rate.take("a", now=0.0)


def test_a_clock_that_stands_or_goes_back_gives_nothing() -> None:
    rate = InvalidRequestRate(RatePolicy(per_second=1.0, burst=1))
    assert rate.take("a", now=10.0)
    assert not rate.take("a", now=5.0)
    assert not rate.take("a", now=5.5)


def test_memory_is_bounded_and_the_longest_silent_client_is_forgotten() -> None:
    rate = InvalidRequestRate(RatePolicy(per_second=0.001, burst=1), clients_max=2)
    rate.take("a", now=0.0)
    rate.take("b", now=1.0)
    rate.take("a", now=2.0)
    rate.take("c", now=3.0)
    assert len(rate) == 2
    assert not rate.take("a", now=3.0)
    assert rate.take("b", now=3.0)
