"""What a rerun tells: bounded lines without values, and counts that say only what is, or would be, written."""

from __future__ import annotations

from uuid import UUID

from onceflow_processor.admission import Fault
from onceflow_processor.effects import Outcome
from onceflow_processor.replay.rerun_report import DETAILS_MAX, EventRerun, RerunReport
from onceflow_processor.replay.revisions import Change, Compared, Known
from onceflow_schemas.identity import Identity

IDENTITY = Identity("acct_1", "test", "evt_1")
OUTCOME = Outcome(0, UUID(int=1), "paid", "in_1", b'{"email":"a@b.example"}', "event:acct_1/test/evt_1", 2)
GONE = Known(UUID(int=2), "thanks", "in_1", OUTCOME.cause)


def rerun(**given: object) -> EventRerun:
    wanted = {
        "compared": [Compared(Change.CHANGED, OUTCOME), Compared(Change.UNCHANGED, OUTCOME)],
        "gone": [GONE],
        **given,
    }
    return EventRerun(IDENTITY, "invoice.paid", **wanted)  # type: ignore[arg-type]


def positive(one: EventRerun) -> dict[str, int]:
    return {name: count for name, count in one.counts().items() if count}


def test_what_changed_is_told_without_its_value() -> None:
    report = RerunReport()
    report.add(rerun())
    assert [line["found"] for line in report.lines] == ["changed", "gone"]
    assert report.lines[0]["revision"] == 2
    assert "example" not in str(report.lines)
    assert positive(rerun()) == {"rerun": 1, "changed": 1, "unchanged": 1, "gone": 1}


def test_of_a_held_event_nothing_counts_as_changed() -> None:
    report = RerunReport()
    report.add(rerun(held=True))
    assert [line["found"] for line in report.lines] == ["held"]
    assert positive(rerun(held=True)) == {"rerun": 1, "held": 1}


def test_a_failure_tells_its_kind_and_not_its_message() -> None:
    report = RerunReport()
    failed = EventRerun(IDENTITY, "invoice.paid", fault=Fault("handler_failed", "ValueError: a@b.example", "books"))
    report.add(failed)
    [line] = report.lines
    assert (line["found"], line["code"], line["handler"], line["detail"]) == (
        "failed", "handler_failed", "books", "ValueError",
    )  # fmt: skip
    assert positive(failed) == {"rerun": 1, "failed": 1}
    assert positive(EventRerun(IDENTITY, "invoice.paid", passed_over="repeat")) == {"repeat": 1}


def test_lines_are_bounded_and_the_rest_is_counted() -> None:
    report = RerunReport()
    for _ in range(DETAILS_MAX):
        report.add(rerun())
    assert (len(report.lines), report.left) == (DETAILS_MAX, DETAILS_MAX)
