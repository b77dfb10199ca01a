"""Which records of the topic come back, all cases of the table in ``importing``."""

from __future__ import annotations

import dataclasses
import json
import uuid
from typing import Any

import pytest

from onceflow_processor.relay.cursor import Disagrees
from onceflow_processor.relay.importing import Imported, Lane, TopicRecord, next_row
from onceflow_schemas.identity import ce_id
from onceflow_schemas.told_facts import facts_text

ID, OTHER = uuid.UUID(int=7), uuid.UUID(int=8)
LANE = Lane(number=1, deployment="shop", head=4, head_id=OTHER)
HEADERS = {
    "ce_specversion": b"1.0",
    "ce_id": str(ID).encode(),
    "ce_source": b"urn:onceflow:shop",
    "ce_type": b"order.paid",
    "ce_time": b"2026-01-02T03:04:05.000006Z",
    "content-type": b"application/json",
    "onceflow_lane": b"1",
    "onceflow_sequence": b"5",
    "onceflow_cause": b"event:acct_1/test/evt_1",
    "onceflow_outcome_id": str(ID).encode(),
    "onceflow_revision": b"1",
    "team": "ä".encode(),
    "ce_subject": b"order-1",
}


def decided(
    *, key: bytes | None = b"order-1", value: bytes | None = b'{"a":1}', lane: Lane = LANE, **changed: bytes | None
) -> Imported | Disagrees | None:
    headers = HEADERS | changed
    return next_row(TopicRecord(50, list(headers.items()), key, value), lane=lane)


def refused(found: Imported | Disagrees | None) -> str:
    assert isinstance(found, Disagrees), found
    assert found.state == "stopped:not_importable"
    return found.detail


def test_a_record_of_ours_becomes_the_row_that_it_was() -> None:
    assert decided() == Imported(
        5, ID, 1, ID, "order.paid", "order-1", b'{"a":1}', '{"team":"ä"}', "event:acct_1/test/evt_1", None,
        "2026-01-02T03:04:05.000006Z",
    )  # fmt: skip


@pytest.mark.parametrize("cause", ["operation:x/succeeded", "app:anything at all", "event:a/live/evt_1"])
def test_every_cause_comes_back(cause: str) -> None:
    found = decided(onceflow_cause=cause.encode())
    assert isinstance(found, Imported)
    assert found.cause == cause


def test_a_revision_has_its_own_record_id() -> None:
    found = decided(onceflow_revision=b"3", ce_id=str(ce_id(ID, 3)).encode())
    assert isinstance(found, Imported)
    assert (found.revision, found.outcome_id) == (3, ID)
    assert "ce_id does not follow" in refused(decided(onceflow_revision=b"3"))


def test_facts_that_it_tells_come_back_beside_its_headers() -> None:
    digests = [bytes(16), bytes(range(16))]
    found = decided(onceflow_facts=facts_text(digests).encode())
    assert isinstance(found, Imported)
    assert found.facts == digests
    assert json.loads(found.headers) == {"team": "ä", "onceflow_facts": facts_text(digests)}
    plain = decided()
    assert isinstance(plain, Imported)
    assert plain.facts == ()


def test_a_withheld_one_keeps_its_code() -> None:
    found = decided(onceflow_withheld=b"too_large", value=b"{}")
    assert isinstance(found, Imported)
    assert found.withheld == "too_large"
    assert "value" in refused(decided(onceflow_withheld=b"too_large"))


@pytest.mark.parametrize(
    "changed",
    [
        {"onceflow_sequence": b"3"},
        {"onceflow_sequence": b"3", "onceflow_refill": b"1"},
        {"onceflow_sequence": b"4", "onceflow_refill": b"1"},
        {"onceflow_sequence": b"4", "ce_id": str(OTHER).encode()},
    ],
)
def test_what_is_known_is_passed_over(changed: dict[str, Any]) -> None:
    assert decided(**changed) is None


def test_the_record_at_the_head_must_be_its_row() -> None:
    assert "in the database" in refused(decided(onceflow_sequence=b"4"))
    # A pruned row says nothing.
    assert decided(lane=dataclasses.replace(LANE, head_id=None), onceflow_sequence=b"4") is None


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"onceflow_sequence": b"6"}, id="hole"),
        pytest.param({"onceflow_refill": b"1"}, id="refill of what is not known"),
        pytest.param({"onceflow_lane": b"2"}, id="other lane"),
        pytest.param({"onceflow_sequence": b"05"}, id="no sequence"),
        pytest.param({"ce_id": b"x"}, id="no id"),
        pytest.param({"ce_id": str(OTHER).encode()}, id="other id"),
        pytest.param({"ce_source": b"urn:onceflow:other"}, id="other deployment"),
        pytest.param({"onceflow_outcome_id": b""}, id="no outcome id"),
        pytest.param({"onceflow_revision": b"0"}, id="no revision"),
        pytest.param({"onceflow_revision": b"9999999999"}, id="no such revision"),
        pytest.param({"onceflow_cause": b"somebody"}, id="no cause"),
        pytest.param({"ce_type": b"a b"}, id="no type"),
        pytest.param({"ce_time": b"yesterday"}, id="no time"),
        pytest.param({"ce_subject": b"order-2"}, id="other key"),
        pytest.param({"ce_type": b"\xff"}, id="no text"),
        pytest.param({"onceflow_cause": b"app:\x00"}, id="zero byte"),
        pytest.param({"team": None}, id="no value of a header"),
        pytest.param({"onceflow_withheld": b"A B"}, id="no code"),
        pytest.param({"onceflow_facts": b""}, id="no facts"),
        pytest.param({"onceflow_facts": b"A" * 21}, id="no digest"),
        pytest.param({"onceflow_facts": b"A" * 21 + b"B"}, id="another form of a digest"),
        pytest.param({"key": None}, id="no key"),
        pytest.param({"value": None}, id="no value"),
        pytest.param({"value": b"{"}, id="no JSON"),
        pytest.param({"value": b"[1]"}, id="no object"),
    ],
)
def test_what_is_not_plainly_ours_ends_the_import(changed: dict[str, Any]) -> None:
    assert refused(decided(**changed))
