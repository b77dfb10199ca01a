"""Every fate of a record, by its marker, its trust, where the processor stands, and what handles its type."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta

import pytest

from onceflow_processor.admission import Item
from onceflow_processor.records import Partition, Record
from onceflow_processor.replay.fates import MEANINGS, Fate, Marker, judge, meanings
from onceflow_processor.replay.survey import left_out
from onceflow_processor.replay.tally import OTHER_TYPES, TYPES_MAX, Tally, tally_of
from onceflow_schemas.identity import Identity
from tests.processor.conftest import ACCOUNT, event_body, items_of, record
from tests.processor.replay import mended_handlers

MARKERS = ("processed", "ignored", "parked", "quarantined", None)


class Types:
    def __init__(self, *, handled: bool, replayed: bool) -> None:
        self._handled, self._replayed = handled, replayed

    def has_handlers(self, event_type: str) -> bool:
        return self._handled and event_type == "invoice.paid"

    def is_replayed(self, event_type: str) -> bool:
        return self._replayed and event_type == "invoice.paid"


def item(*, age_days: int = 0) -> Item:
    body = event_body("evt_1", "invoice.paid", {"id": "in_1", "object": "invoice"})
    return items_of([record(body, 10, received_at=datetime.now(UTC) - timedelta(days=age_days))])[0]


def fate(
    state: str | None,
    *,
    rerun: bool = False,
    ignored: bool = False,
    handled: bool = True,
    replayed: bool = True,
    next_offset: int | None = 11,
    age_days: int = 0,
) -> Fate:
    markers = {} if state is None else {Identity(ACCOUNT, "test", "evt_1"): Marker(state)}
    types = Types(handled=handled, replayed=handled and replayed)
    one = item(age_days=age_days)
    return judge(one, markers, handled=types, rerun=rerun, ignored=ignored, next_offset=next_offset).fate


def test_a_replay_runs_what_has_no_marker_and_nothing_else() -> None:
    assert [fate(state) for state in MARKERS] == [
        Fate.SKIPPED, Fate.IGNORED, Fate.PARKED, Fate.QUARANTINED, Fate.RUN,
    ]  # fmt: skip


def test_with_include_ignored_what_was_ignored_runs_where_something_handles_it_now() -> None:
    assert [fate(state, ignored=True) for state in MARKERS] == [
        Fate.SKIPPED, Fate.RUN, Fate.PARKED, Fate.QUARANTINED, Fate.RUN,
    ]  # fmt: skip
    assert fate("ignored", ignored=True, handled=False) is Fate.IGNORED
    assert fate("ignored", ignored=True, replayed=False) is Fate.LEFT_OUT


def test_a_rerun_runs_what_was_processed_and_nothing_else() -> None:
    assert [fate(state, rerun=True) for state in MARKERS] == [
        Fate.RUN, Fate.IGNORED, Fate.PARKED, Fate.QUARANTINED, Fate.MISSING,
    ]  # fmt: skip
    assert fate("processed", rerun=True, replayed=False) is Fate.LEFT_OUT
    # Nothing handles it any more: its outcomes are gone, which is told.
    assert fate("processed", rerun=True, handled=False) is Fate.RUN


@pytest.mark.parametrize("state", MARKERS[:4])
def test_an_old_record_that_has_a_marker_is_told_by_it(state: str) -> None:
    assert fate(state, age_days=40) is fate(state)


def test_an_old_record_without_a_marker_is_refused_with_the_reason() -> None:
    judged = judge(
        item(age_days=40), {}, handled=Types(handled=True, replayed=True), rerun=False, ignored=False, next_offset=None
    )
    assert (judged.fate, judged.code) == (Fate.REFUSED, "too_old")


def test_what_the_processor_has_not_read_is_left_to_it() -> None:
    assert fate(None, next_offset=10) is Fate.AHEAD
    assert fate(None, next_offset=10, age_days=40) is Fate.AHEAD
    assert fate("processed", next_offset=10) is Fate.SKIPPED
    assert fate(None, next_offset=None) is Fate.RUN


def test_types_without_handlers_and_with_handlers_that_never_run_again() -> None:
    assert fate(None, handled=False) is Fate.UNHANDLED
    assert fate(None, replayed=False) is Fate.LEFT_OUT


def test_a_record_that_nobody_vouches_for_never_runs() -> None:
    [untrusted] = items_of([Record(Partition("stripe.events.v1", 0), 1, 0, None, b"{}", [], 1)])
    judged = judge(
        untrusted, {}, handled=Types(handled=True, replayed=True), rerun=True, ignored=True, next_offset=None
    )
    assert (judged.fate, judged.code) == (Fate.UNTRUSTED, "unauthenticated")
    bare = Item(untrusted.record, None)
    assert (
        judge(bare, {}, handled=Types(handled=True, replayed=True), rerun=False, ignored=False, next_offset=None).code
        is None
    )


def test_every_fate_has_its_meaning() -> None:
    assert set(MEANINGS) == set(Fate)
    for executed, rerun in itertools.product([False, True], repeat=2):
        told = meanings(executed=executed, rerun=rerun)
        assert set(told) == set(Fate)
        assert ("processed before" in told[Fate.RUN]) is rerun


def test_a_tally_counts_by_fate_type_and_code_and_survives_its_row() -> None:
    tally = Tally()
    types = Types(handled=True, replayed=True)
    ages = (0, 0, 40)
    tally.count(
        judge(item(age_days=age), {}, handled=types, rerun=False, ignored=False, next_offset=None) for age in ages
    )
    tally.note({"outcomes": 2, "operations": 0})
    tally.note({"outcomes": 1})
    assert tally.fates == {"run": 2, "refused": 1}
    assert (tally.of(Fate.RUN), tally.of(Fate.AHEAD)) == (2, 0)
    assert tally.codes == {"too_old": 1}
    assert tally.types == {"invoice.paid": {"run": 2, "refused": 1}}
    assert tally.done == {"outcomes": 3}
    assert tally_of(tally.as_json()) == tally


def test_types_that_are_counted_apart_are_bounded() -> None:
    tally = Tally(types={f"type.{number}": {"run": 1} for number in range(TYPES_MAX)})
    tally.count(
        [judge(item(), {}, handled=Types(handled=True, replayed=True), rerun=False, ignored=False, next_offset=None)]
    )
    assert tally.types[OTHER_TYPES] == {"run": 1}


@pytest.mark.parametrize(
    ("types", "names"),
    [
        ({}, ()),
        ({"invoice.paid": {"run": 1}}, ("mails",)),
        ({"invoice.paid": {"skipped": 1}, "product.updated": {"left_out": 2}}, ("mirrors",)),
        ({"customer.updated": {"run": 1}}, ()),
        ({OTHER_TYPES: {"run": 1}}, ("mails", "mirrors")),
    ],
)
def test_only_handlers_of_what_is_taken_up_are_left_out(
    types: dict[str, dict[str, int]], names: tuple[str, ...]
) -> None:
    assert left_out(mended_handlers.handlers, Tally(types=types)) == names
