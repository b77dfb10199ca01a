"""Identities and the ids that follow from them."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceflow_schemas.identity import (
    ACCOUNT_PATTERN,
    EVENT_ID_PATTERN,
    NAMESPACE,
    Identity,
    body_event_id,
    ce_id,
    event_cause,
    lane_of,
    outcome_id,
)
from tests.schemas import independent
from tests.schemas.stripe_bodies import CASES

TEXT = st.text(max_size=12)


def test_an_identity_reads_as_it_is_written_in_a_cause() -> None:
    identity = Identity("acct_1", "live", "evt_1")
    assert str(identity) == "acct_1/live/evt_1"
    assert event_cause(identity) == "event:acct_1/live/evt_1"


def test_identities_are_ordered_so_that_every_process_locks_in_one_order() -> None:
    first, second, third = Identity("a", "live", "e2"), Identity("a", "test", "e1"), Identity("b", "live", "e1")
    assert sorted([third, second, first]) == [first, second, third]


def test_a_body_without_an_id_is_called_after_its_hash() -> None:
    empty = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert body_event_id(b"") == empty


@CASES
@given(TEXT, TEXT, TEXT, TEXT, st.integers(1, 2**53))
def test_outcome_ids_agree_with_the_standard_library(cause: str, handler: str, type_: str, key: str, n: int) -> None:
    made = outcome_id(cause=cause, handler=handler, type=type_, key=key, n=n)
    name = independent.json_name(["outcome", cause, handler, type_, key, n])
    assert made == uuid.uuid5(NAMESPACE, name)
    assert made.version == 5


def test_each_part_of_an_outcome_id_counts() -> None:
    ids = {
        outcome_id(cause="c", handler="h", type="t", key="k", n=1),
        outcome_id(cause="d", handler="h", type="t", key="k", n=1),
        outcome_id(cause="c", handler="i", type="t", key="k", n=1),
        outcome_id(cause="c", handler="h", type="u", key="k", n=1),
        outcome_id(cause="c", handler="h", type="t", key="l", n=1),
        outcome_id(cause="c", handler="h", type="t", key="k", n=2),
        outcome_id(cause="c", handler='h","t', type="", key="k", n=1),
    }
    assert len(ids) == 7


def test_the_first_revision_is_the_outcome_itself_and_later_ones_are_not() -> None:
    first = outcome_id(cause="c", handler="h", type="t", key="k", n=1)
    assert ce_id(first, 1) == first
    assert len({ce_id(first, revision) for revision in (1, 2, 3)}) == 3
    assert ce_id(first, 2) == uuid.uuid5(NAMESPACE, f'["revision","{first}",2]')


@CASES
@given(st.text(max_size=40), st.integers(1, 400))
def test_lanes_lie_within_their_count(key: str, lane_count: int) -> None:
    assert 0 <= lane_of(key, lane_count) < lane_count


@pytest.mark.parametrize("text", ["evt_1", "evt_1MqqbKLt4dXK03v5qaIbiNCC", "evt_" + "x" * 250, "evt__"])
def test_event_ids(text: str) -> None:
    assert EVENT_ID_PATTERN.fullmatch(text)


@pytest.mark.parametrize(
    "text", ["evt_", "evt_" + "x" * 251, "evt_1\n", "evt_é", "../evt_1", "evt_1 ", "EVT_1", "evt-1"]
)
def test_texts_that_are_no_event_ids(text: str) -> None:
    assert not EVENT_ID_PATTERN.fullmatch(text)


def test_accounts() -> None:
    assert ACCOUNT_PATTERN.fullmatch("acct_1032D82eZvKYlo2C")
    assert not ACCOUNT_PATTERN.fullmatch("acct_1:live")
