"""Records that name an event that came before: which of them are repeats."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from onceflow_processor.inputs.rendering import digest_of
from onceflow_processor.kafka_client import StartClient
from onceflow_reconciler.verify.repeats import fault_of
from onceflow_reconciler.verify.topic_scan import CLOCKS_MARGIN, EVER, kept_since
from tests.conftest import create_topic
from tests.processor.conftest import RULES, event_body, record

NOW = datetime.now(UTC)
SUBJECT = {"id": "in_1", "object": "invoice"}
VERSION = "2024-06-20"
FIRST = event_body("evt_1", "invoice.paid", SUBJECT)


def fault(body: bytes, *, first: bytes | None = None, version: str = VERSION, **changes: Any) -> str | None:
    made = replace(record(body, 7), **changes)
    known = (first or hashlib.sha256(FIRST).digest(), version)
    return fault_of(made, first=known, rules=RULES, now=NOW)


def test_what_says_the_same_is_a_repeat() -> None:
    assert fault(FIRST) is None
    assert fault(event_body("evt_1", "invoice.paid", SUBJECT, pending_webhooks=0)) is None
    # Of another endpoint, in another version; and where a marker is of what was said, not of bytes.
    assert fault(event_body("evt_1", "invoice.paid", {**SUBJECT, "paid": True}), version="2020-08-27") is None
    assert fault(FIRST.replace(b", ", b","), first=digest_of(FIRST)) is None


def test_what_the_processor_would_keep_in_quarantine_is_none() -> None:
    other = event_body("evt_1", "invoice.paid", {**SUBJECT, "paid": True})
    assert fault(other) == "its event came before with other content"
    assert fault(other, first=digest_of(FIRST)) == "its event came before with other content"
    assert fault(FIRST, headers=[]) == "nobody vouches for it"
    assert fault(FIRST, value=other) == "nobody vouches for it"
    assert fault(FIRST, key=b"acct_test/in_2") == "it is a copy under another key"


@pytest.mark.parametrize(
    ("keeps_ms", "since"),
    [
        (None, None),
        (-1, EVER),
        (7 * 24 * 3600 * 1000, NOW - timedelta(days=7) + CLOCKS_MARGIN),
    ],
)
def test_since_when_a_log_holds_all_records(keeps_ms: int | None, since: datetime | None) -> None:
    assert kept_since(keeps_ms, NOW) == since


@pytest.mark.parametrize(
    ("config", "keeps_ms"),
    [
        ({"retention.ms": "3600000"}, 3_600_000),
        ({"retention.ms": "-1"}, -1),
        ({"retention.ms": "3600000", "retention.bytes": "1000000"}, None),
        ({"cleanup.policy": "compact,delete"}, None),
    ],
)
def test_how_long_a_topic_surely_keeps_records(
    kafka_bootstrap: str, config: dict[str, str], keeps_ms: int | None
) -> None:
    topic = create_topic(kafka_bootstrap, partitions=1, config=config)
    _, found = StartClient({"bootstrap.servers": kafka_bootstrap}).ask([topic])
    assert found[topic].keeps_ms == keeps_ms
