"""Ready or not, and why."""

from __future__ import annotations

import pytest

from onceflow_producer.broker_state import BrokerState, closing_reason, reasons


@pytest.mark.parametrize(
    ("state", "codes", "closed"),
    [
        (BrokerState(), ["broker_unavailable"], True),
        (BrokerState(seen_at=97.0), [], False),
        (BrokerState(seen_at=96.9), ["broker_unavailable"], True),
        (BrokerState(seen_at=100.0, topic_missing=True), ["topic_missing"], True),
        (BrokerState(seen_at=100.0, credentials_refused="_SSL"), ["broker_refused"], False),
        (BrokerState(seen_at=100.0, write_refused="TOPIC_AUTHORIZATION_FAILED"), ["broker_refused"], False),
        (BrokerState(seen_at=100.0, producer_failed="_FATAL"), ["broker_unavailable"], True),
        (BrokerState(credentials_refused="_AUTHENTICATION"), ["broker_refused", "broker_unavailable"], True),
    ],
)
def test_reasons(*, state: BrokerState, codes: list[str], closed: bool) -> None:
    found = reasons(state, now=100.0)
    assert [reason.code for reason in found] == codes
    assert (closing_reason(found) is not None) is closed


def test_a_refusal_of_records_stays_visible_but_is_tried_again() -> None:
    found = reasons(BrokerState(seen_at=1.0, write_refused="X"), now=1.0)
    assert found[0].detail == "the broker refuses records: X"
    assert closing_reason(found) is None


def test_what_the_client_said_last_is_for_the_log_only() -> None:
    said = "Connect to ipv4#192.0.2.1:9092 failed: Connection refused"
    (reason,) = reasons(BrokerState(seen_at=1.0, last_error=said), now=9.0)
    assert (reason.detail, reason.said) == ("the broker does not answer", said)
    assert reasons(BrokerState(seen_at=1.0, last_error=said), now=1.0) == ()
