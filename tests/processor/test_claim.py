"""The pure parts of claiming: which records are offered, with which state, and which repeats contradict the first."""

from __future__ import annotations

import hashlib

import pytest

from onceflow_processor.admission import Fault, Item, admit
from onceflow_processor.claim import _differs, _offer, claim_parameters, event_of
from onceflow_processor.event import Event
from onceflow_processor.handlers import Handlers
from onceflow_processor.tx import Tx
from tests.processor.conftest import RULES, event_body, items_of, record

NO_DATE = {"created": "yesterday"}


def bodies(*event_ids: str, event_type: str = "invoice.paid") -> list[bytes]:
    return [event_body(event_id, event_type, {"id": "in_1", "object": "invoice"}) for event_id in event_ids]


def items(*event_ids: str) -> list[Item]:
    return items_of([record(body, offset) for offset, body in enumerate(bodies(*event_ids))])


def handlers() -> Handlers:
    registry = Handlers()

    @registry.on("invoice.paid")
    def paid(event: Event, tx: Tx) -> None:
        """Do nothing."""

    return registry


def test_each_identity_is_offered_once_and_later_copies_are_repeats() -> None:
    first, second, again, third, once_more = batch = items("evt_2", "evt_1", "evt_2", "evt_3", "evt_2")
    offer = _offer(batch)
    assert list(offer.offered.values()) == [first, second, third]
    assert offer.repeats == [again, once_more]
    assert event_of(first).body_sha256 == hashlib.sha256(first.body).digest()
    # A rerun of the batch offers the same.
    assert _offer(batch) == offer


def test_records_without_an_event_are_not_offered() -> None:
    stranger = record(bodies("evt_1")[0], 0)
    stranger.headers = []
    item = admit(stranger, rules=RULES, now=event_of(items("evt_1")[0]).received_at)
    offer = _offer([item])
    assert (offer.offered, offer.repeats) == ({}, [])
    with pytest.raises(AssertionError):
        event_of(item)


def test_markers_are_claimed_with_the_state_that_they_get_if_nothing_fails() -> None:
    handled, late = items("evt_1", "evt_2")
    late.fault = Fault("too_old", "received before the horizon")
    [ignored] = items_of([record(bodies("evt_3", event_type="charge.refunded")[0], 9, partition=2)])
    offer = _offer([handled, late, ignored])
    registry = handlers()
    found = claim_parameters(
        list(offer.offered.values()), handlers=registry, topic_id_of=lambda item: f"id-{item.record.offset}"
    )
    assert found["handler_set"] == registry.fingerprint()
    assert found["event_ids"] == ["evt_1", "evt_2", "evt_3"]
    assert found["accounts"] == ["acct_test"] * 3
    assert found["modes"] == ["test"] * 3
    assert found["states"] == ["processed", "quarantined", "ignored"]
    assert found["types"] == ["invoice.paid", "invoice.paid", "charge.refunded"]
    assert found["object_ids"] == ["in_1"] * 3
    assert found["api_versions"] == ["2024-06-20"] * 3
    assert found["topic_ids"] == ["id-0", "id-1", "id-9"]
    assert found["partitions"] == [0, 0, 2]
    assert found["offsets"] == [0, 1, 9]
    assert found["createds"] == ["2026-01-01T00:00:00.000000Z"] * 3
    assert found["received_ats"] == [event_of(item).received_at_text for item in (handled, late, ignored)]
    assert found["body_sha256s"] == [hashlib.sha256(item.body).digest() for item in (handled, late, ignored)]


def test_an_event_without_a_usable_time_has_none() -> None:
    [item] = items_of([record(event_body("evt_1", "invoice.paid", {"id": "in_1"}, **NO_DATE), 0)])
    [made] = _offer([item]).offered.values()
    assert claim_parameters([made], handlers=handlers(), topic_id_of=lambda _item: "t")["createds"] == [None]


@pytest.mark.parametrize(
    ("body", "version", "differs"),
    [
        (event_body("evt_1", "a", {"amount": 1}), "2024-06-20", False),
        (event_body("evt_1", "a", {"amount": 1}, pending_webhooks=0), "2024-06-20", False),
        (event_body("evt_1", "a", {"amount": 2}), "2024-06-20", True),
        (event_body("evt_1", "a", {"amount": 2}), "2025-01-01", False),
        (event_body("evt_1", "a", {"amount": 2}), None, False),
    ],
)
def test_a_repeat_is_compared_with_the_first(body: bytes, version: str | None, differs: bool) -> None:  # noqa: FBT001
    first = event_body("evt_1", "a", {"amount": 1})
    [item] = items_of([record(body, 0)])
    _offer([item])
    assert _differs(item, (hashlib.sha256(first).digest(), version)) is differs
