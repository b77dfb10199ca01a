"""The fast way makes the same record as the schema's own function, whatever the row says."""

from __future__ import annotations

import dataclasses
import uuid
from datetime import UTC, datetime
from typing import Any

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from onceflow_processor.relay.encoding import Encoder, Prepared, StoredOutcome, Unencodable
from onceflow_schemas.outcome_record import OutcomeRow, outcome_headers, outcome_value
from onceflow_schemas.times import format_time
from onceflow_schemas.told_facts import FACTS_HEADER, facts_text

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=30)
ROWS = st.builds(
    OutcomeRow,
    lane=st.integers(0, 3),
    seq=st.integers(1, 2**62),
    outcome_id=st.uuids(),
    revision=st.integers(1, 3),
    ce_id=st.uuids(),
    type=st.sampled_from(["payment.done", "refund.failed"]),
    key=TEXT,
    value=st.binary(max_size=50),
    headers=st.dictionaries(st.sampled_from(["x-team", "traceparent"]), TEXT, max_size=2)
    | st.builds(lambda count: {FACTS_HEADER: facts_text([bytes(16)] * count)}, st.integers(1, 3))
    | st.fixed_dictionaries({FACTS_HEADER: TEXT}),
    cause=TEXT,
    withheld=st.sampled_from([None, None, "lane_unpublishable"]),
    created_at=st.datetimes(min_value=datetime(2001, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001 - strategy adds UTC
)


def stored(row: OutcomeRow, **changes: Any) -> StoredOutcome:
    given: dict[str, Any] = {
        "lane": row.lane,
        "seq": row.seq,
        "outcome_id": str(row.outcome_id).encode(),
        "revision": row.revision,
        "ce_id": str(row.ce_id).encode(),
        "type": row.type,
        "key": row.key.encode(),
        "value": row.value,
        "headers": orjson.dumps(dict(row.headers)).decode(),
        "cause": row.cause.encode(),
        "withheld": row.withheld,
        "created_at": format_time(row.created_at).encode(),
    }
    return StoredOutcome(**(given | changes))


@given(rows=st.lists(ROWS, max_size=6), refill=st.booleans())
@settings(max_examples=200, deadline=None)
def test_equal_to_the_schemas_own_function(rows: list[OutcomeRow], *, refill: bool) -> None:
    encoder = Encoder(deployment="d1", refill=refill)
    for row in rows:
        told = row if row.withheld is None else dataclasses.replace(row, headers={})
        expected = outcome_headers(told, deployment="d1", refill=refill)
        found = encoder.encode(stored(row))
        assert isinstance(found, Prepared)
        assert found == Prepared(row.seq, str(row.ce_id).encode(), row.key.encode(), outcome_value(row), list(expected))


ROW = OutcomeRow(
    lane=2,
    seq=7,
    outcome_id=uuid.UUID(int=1),
    revision=2,
    ce_id=uuid.UUID(int=2),
    type="payment.done",
    key="cus_1",
    value=b'{"amount":5}',
    headers={},
    cause="event:acct_1/test/evt_1",
    withheld=None,
    created_at=datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
)


def test_a_record_in_full() -> None:
    found = Encoder(deployment="d1").encode(stored(ROW))
    assert isinstance(found, Prepared)
    assert (found.key, found.value) == (b"cus_1", b'{"amount":5}')
    assert dict(found.headers) == {
        "ce_specversion": b"1.0",
        "ce_id": b"00000000-0000-0000-0000-000000000002",
        "ce_source": b"urn:onceflow:d1",
        "ce_type": b"payment.done",
        "ce_time": b"2026-01-02T03:04:05.000006Z",
        "content-type": b"application/json",
        "onceflow_lane": b"2",
        "onceflow_sequence": b"7",
        "onceflow_cause": b"event:acct_1/test/evt_1",
        "onceflow_outcome_id": b"00000000-0000-0000-0000-000000000001",
        "onceflow_revision": b"2",
        "ce_subject": b"cus_1",
    }


def test_a_withheld_outcome_leaves_only_its_place() -> None:
    """Its own headers stay behind, since they may be why it could not be published."""
    found = Encoder(deployment="d1").encode(stored(ROW, withheld="refused", headers='{"a": 1}'))
    assert isinstance(found, Prepared)
    assert found.value == b"{}"
    assert ("onceflow_withheld", b"refused") in found.headers
    assert "a" not in dict(found.headers)


def test_a_refill_says_so() -> None:
    found = Encoder(deployment="d1", refill=True).encode(stored(ROW))
    assert isinstance(found, Prepared)
    assert ("onceflow_refill", b"1") in found.headers


def test_headers_that_are_no_texts_are_the_rows_own_fault() -> None:
    encoder = Encoder(deployment="d1")
    for headers in ('{"a": 1}', "[]", '"x"', '{"a": null}', '{"a": "\\ud800"}'):
        assert isinstance(encoder.encode(stored(ROW, headers=headers)), Unencodable), headers
