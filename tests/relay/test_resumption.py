"""How a lane that stands still may go on, for every state and verdict; expectations by hand."""

from __future__ import annotations

import dataclasses
import uuid
from typing import get_args

import pytest

from onceflow_processor.relay.cursor import (
    EMPTY,
    Agrees,
    Code,
    Disagrees,
    Extent,
    Mark,
    OutcomeRecord,
    StrangeRecord,
    Unsettled,
)
from onceflow_processor.relay.resumption import (
    Decision,
    Fine,
    NotResumable,
    Resume,
    Situation,
    decide,
    refusal,
    with_rows,
    without_look,
)

A, B, OTHER = (uuid.UUID(int=number) for number in (10, 8, 99))
LAST = OutcomeRecord(offset=20, seq=10, ce_id=A)
SITUATION = Situation(
    lane=2,
    state="stopped:cursor_moved",
    head=12,
    published=10,
    topic_id="id-1",
    current_topic_id="id-1",
    extent=Extent(0, 22, 22),
    last=LAST,
    latest=LAST,
    known={10: A, 8: B},
    verdict=Disagrees("cursor_moved", "moved"),
)


def found(code: Code, **changes: object) -> Situation:
    state = code if code == "behind" else f"stopped:{code}"
    given: dict[str, object] = {"state": state, "verdict": Disagrees(code, "why"), **changes}
    return dataclasses.replace(SITUATION, **given)  # type: ignore[arg-type]


def resumed(situation: Situation) -> Resume:
    decision = decide(situation)
    assert isinstance(decision, Resume), decision
    return decision


def refused(situation: Situation) -> NotResumable:
    decision = decide(situation)
    assert isinstance(decision, NotResumable), decision
    return decision


@pytest.mark.parametrize("state", ["ok", "stopped:unpublishable", "recovering"])
def test_states_that_need_no_look(state: str) -> None:
    early = without_look(lane=2, state=state, published=10)
    assert decide(dataclasses.replace(SITUATION, state=state)) == early
    assert isinstance(early, Fine if state == "ok" else NotResumable)


@pytest.mark.parametrize("code", [code for code in get_args(Code) if code != "unpublishable"])
def test_every_other_code_needs_a_look(code: Code) -> None:
    assert without_look(lane=2, state=found(code).state, published=10) is None


def test_an_unpublishable_outcome_is_withheld_by_another_command() -> None:
    early = without_look(lane=2, state="stopped:unpublishable", published=10)
    assert isinstance(early, NotResumable)
    assert "onceflow outcomes withhold 2 11" in early.next_step


@pytest.mark.parametrize("code", ["behind", "cursor_moved", "diverged", "tail_lost", "topic_changed"])
def test_a_lane_that_agrees_again_is_opened(code: Code) -> None:
    decision = resumed(found(code, verdict=Agrees(10, None)))
    assert (decision.published, decision.topic_id, decision.cursor, decision.accept) == (10, "id-1", None, None)


def test_an_open_transaction_is_waited_for() -> None:
    assert "Look again" in refused(found("cursor_moved", verdict=Unsettled("open at 20"))).next_step


def test_a_database_that_is_behind_is_the_relays_and_never_resumed() -> None:
    assert "Start a relay" in refused(found("behind")).next_step


def test_what_cannot_be_imported_waits_for_the_database() -> None:
    situation = found("behind", state="stopped:not_importable")
    assert "Restore the database" in refused(situation).next_step


def test_a_topic_that_lost_its_end_but_is_ahead_of_the_database_is_imported_first() -> None:
    latest = OutcomeRecord(offset=30, seq=20, ce_id=OTHER)
    decision = resumed(found("tail_lost", last=latest, latest=latest))
    assert (decision.published, decision.accept, decision.state) == (10, "tail_lost", "behind")
    assert decision.cursor == Mark(31, 20, OTHER)
    strange = found("tail_lost", last=StrangeRecord(40), latest=latest)
    assert "Restore the database" in refused(strange).next_step


def test_a_moved_cursor_is_written_again_behind_the_last_record() -> None:
    decision = resumed(found("cursor_moved"))
    assert (decision.published, decision.cursor, decision.accept) == (10, Mark(21, 10, A), None)
    # Published without the database knowing yet: the relay compares that stretch when it starts.
    ahead = resumed(found("cursor_moved", published=8))
    assert (ahead.published, ahead.cursor, ahead.accept) == (8, Mark(21, 10, A), None)


def test_a_moved_cursor_where_retention_took_the_records() -> None:
    empty = found("cursor_moved", last=None, latest=None, extent=Extent(22, 22, 22))
    assert resumed(empty).cursor == Mark(22, 10, A)
    assert "Restore" in refused(dataclasses.replace(empty, known={})).next_step


@pytest.mark.parametrize("code", ["tail_lost", "cursor_moved", "diverged"])
def test_a_lost_tail_is_published_again_whatever_the_code(code: Code) -> None:
    last = OutcomeRecord(16, 8, B)
    decision = resumed(found(code, last=last, latest=last, extent=Extent(0, 18, 18)))
    assert (decision.published, decision.cursor, decision.accept) == (8, Mark(17, 8, B), "tail_lost")
    assert "outcomes 9 to 12" in decision.consequence
    assert "dedupe by ce_id" in decision.consequence


def test_a_lost_tail_that_the_database_does_not_know_of() -> None:
    decision = resumed(found("tail_lost"))
    assert (decision.published, decision.cursor, decision.accept) == (10, Mark(21, 10, A), "tail_lost")


def test_an_emptied_partition_is_published_from_the_first_outcome() -> None:
    decision = resumed(found("tail_lost", last=None, latest=None, extent=Extent(0, 0, 0)))
    assert (decision.published, decision.cursor, decision.accept) == (0, EMPTY, "tail_lost")


def test_a_partition_whose_remains_tell_nothing_stays_closed() -> None:
    assert "no record" in refused(found("tail_lost", last=None, latest=None, extent=Extent(5, 9, 9))).reason
    assert "no record" in refused(found("diverged", last=StrangeRecord(7), latest=None, extent=Extent(5, 9, 9))).reason


@pytest.mark.parametrize(
    ("code", "last"),
    [
        (code, last)
        for code in ("tail_lost", "diverged", "cursor_moved", "topic_changed")
        for last in (OutcomeRecord(20, 10, OTHER), OutcomeRecord(20, 9, A), OutcomeRecord(20, 13, A))
        if (code, last.seq) != ("tail_lost", 13)  # That one is imported.
    ],
)
def test_where_no_record_agrees_nothing_is_offered(code: Code, last: OutcomeRecord) -> None:
    known = {10: A, 13: A}
    assert "Restore" in refused(found(code, last=last, latest=last, known=known)).next_step


def test_records_of_others_are_passed_over_when_that_is_accepted() -> None:
    decision = resumed(found("diverged", last=StrangeRecord(25)))
    assert (decision.published, decision.accept) == (10, "diverged")
    assert decision.cursor == Mark(26, 10, A, accepted=True)
    ahead = resumed(found("diverged", last=StrangeRecord(25), published=8))
    assert (ahead.published, ahead.cursor) == (10, Mark(26, 10, A, accepted=True))


def test_records_of_others_in_a_partition_without_outcomes() -> None:
    decision = resumed(found("diverged", last=StrangeRecord(25), latest=None, published=0))
    assert (decision.published, decision.accept) == (0, "diverged")
    assert decision.cursor == Mark(26, 0, uuid.UUID(int=0), accepted=True)
    # Something was published, and nothing of it is there: that is a loss, whoever wrote afterwards.
    lost = resumed(found("diverged", last=StrangeRecord(25), latest=None))
    assert (lost.published, lost.accept) == (0, "tail_lost")


def test_a_stretch_that_differs_counts_as_published_when_that_is_accepted() -> None:
    decision = resumed(found("diverged", published=8))
    assert (decision.published, decision.cursor, decision.accept) == (10, Mark(21, 10, A), "diverged")
    assert "outcomes 9 to 10 count as published" in decision.consequence


def test_another_topic_gets_everything_again() -> None:
    empty = {"last": None, "latest": None, "extent": Extent(0, 0, 0), "current_topic_id": "id-2"}
    decision = resumed(found("topic_changed", **empty))
    assert (decision.published, decision.topic_id, decision.cursor) == (0, "id-2", EMPTY)
    assert decision.accept == "topic_changed"
    assert "outcomes 1 to 12" in decision.consequence
    # A copy of the topic, made by a mirror: it goes on from what the copy has.
    copy = resumed(found("topic_changed", current_topic_id="id+2"))
    assert (copy.published, copy.topic_id, copy.cursor) == (10, "id+2", Mark(21, 10, A))
    assert "goes over to topic id id-2, " in copy.consequence


def test_what_is_no_longer_in_the_database_cannot_be_published_again() -> None:
    situation = found("tail_lost", last=None, latest=None, extent=Extent(0, 0, 0))
    decision = resumed(situation)
    assert with_rows(decision, situation, kept=10) is decision
    missing = with_rows(decision, situation, kept=7)
    assert isinstance(missing, NotResumable)
    assert missing.reason.startswith("3 of the outcomes 1 to 10")
    moved = resumed(found("cursor_moved"))
    assert with_rows(moved, found("cursor_moved"), kept=0) is moved


SAFE = Resume(1, "id", None, None, "nobody notices")
NOTICED = Resume(1, "id", None, "tail_lost", "published again")


@pytest.mark.parametrize(
    ("decision", "accept", "step"),
    [
        (Fine(), None, "Nothing needs"),
        (NotResumable("why", "what"), "tail_lost", "what"),
        (SAFE, None, None),
        (SAFE, "tail_lost", "Leave --accept out"),
        (NOTICED, "tail_lost", None),
        (NOTICED, None, "--accept tail_lost"),
        (NOTICED, "diverged", "--accept tail_lost"),
    ],
)
def test_a_consequence_is_accepted_by_its_own_name(decision: Decision, accept: str | None, *, step: str | None) -> None:
    no = refusal(decision, accept=accept)
    assert (no is None) == (step is None)
    assert no is None or (step is not None and step in no.next_step)
