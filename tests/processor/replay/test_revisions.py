"""What a rerun changes: equal bytes are unchanged, other bytes the next revision; what is not asked for any more is gone."""

from __future__ import annotations

from uuid import UUID

from onceflow_processor.effects import Outcome
from onceflow_processor.replay.revisions import Change, Known, Stored, compare, gone
from onceflow_schemas.identity import outcome_id

CAUSE = "event:acct_1/test/evt_1"


def made(handler: str, kind: str, value: bytes, *, n: int = 1) -> Outcome:
    return Outcome(0, ident(handler, kind, n), kind, "key", value, CAUSE)


def ident(handler: str, kind: str, n: int = 1) -> UUID:
    return outcome_id(cause=CAUSE, handler=handler, type=kind, key="key", n=n)


def known(handler: str, kind: str, n: int = 1) -> Known:
    return Known(ident(handler, kind, n), kind, "key", CAUSE)


def test_outcomes_are_compared_with_their_highest_revision() -> None:
    asked = [made("books", "same", b"{}"), made("books", "other", b'{"a":1}'), made("books", "fresh", b"{}")]
    stored = {ident("books", "same"): Stored(3, b"{}"), ident("books", "other"): Stored(3, b"{}")}
    assert [(one.change, one.outcome.revision) for one in compare(asked, stored)] == [
        (Change.UNCHANGED, 3),
        (Change.CHANGED, 4),
        (Change.NEW, 1),
    ]
    assert compare([], stored) == []


def test_what_a_handler_gave_that_stays_out_is_not_gone() -> None:
    given = [known("books", "paid"), known("books", "paid", 2), known("mails", "paid"), known("mails", "mailed")]
    asked = [made("books", "paid", b"{}")]
    assert gone(given, asked, left_out=["mails"]) == [known("books", "paid", 2)]
    assert gone(given, asked, left_out=[]) == given[1:]
    assert gone([], asked, left_out=["mails"]) == []
