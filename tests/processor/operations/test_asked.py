"""What a process believes about operations: not knowing is cheap, a wrong conflict never happens."""

from __future__ import annotations

from uuid import UUID

import pytest

from onceflow_processor.operations import asked as asked_module
from onceflow_processor.operations.asked import AskedByNeighbour, AskedOperations, OperationConflict
from onceflow_processor.operations.request import Asked
from onceflow_schemas.failure import FAILURES
from onceflow_schemas.operations.calls import StripeCall


def wish(number: int = 1, *, args: bytes = b"{}", cause: str = "event:a/test/evt_1") -> Asked:
    return Asked(
        id=UUID(int=number), account="acct_1", mode="test", effect="refund", subject="s", occurrence=1, order_key=None,
        kind="stripe", args=args, args_sha256=args, cause=cause, steps=b"[]", api_version="v", happened_at=None,
        call=StripeCall.refund(charge="ch_1"),
    )  # fmt: skip


def test_the_same_is_written_once() -> None:
    known = AskedOperations()
    assert known.ask(wish())
    assert not known.ask(wish(cause="event:a/test/evt_2"))
    assert known.ask(wish(2))
    assert [one.id.int for one in known.asked()] == [1, 2]


def test_what_is_committed_is_known() -> None:
    known = AskedOperations()
    known.ask(wish())
    known.commit()
    assert known.asked() == []
    assert not known.ask(wish())
    with pytest.raises(OperationConflict) as conflict:
        known.ask(wish(args=b"other"))
    assert conflict.value.code == "operation_conflict"
    assert conflict.value.hint == FAILURES["operation_conflict"].hint
    assert "effect 'refund', subject 's', occurrence 1" in conflict.value.message


def test_one_event_contradicts_itself() -> None:
    known = AskedOperations()
    known.ask(wish())
    with pytest.raises(OperationConflict):
        known.ask(wish(args=b"other"))
    assert not known.met_neighbour


def test_a_neighbour_is_no_conflict_yet() -> None:
    known = AskedOperations()
    known.ask(wish())
    with pytest.raises(AskedByNeighbour):
        known.ask(wish(args=b"other", cause="event:a/test/evt_2"))
    met = known.met_neighbour
    known.roll_back()
    assert (met, known.met_neighbour) == (True, False)
    assert known.ask(wish(args=b"other"))


def test_what_is_given_back_is_free_again() -> None:
    known = AskedOperations()
    known.ask(wish())
    known.give_back([wish()])
    assert known.ask(wish(args=b"other"))


def test_a_new_connection_knows_nothing() -> None:
    known = AskedOperations()
    known.remember({UUID(int=1): b"{}"})
    known.forget_all()
    assert known.ask(wish(args=b"other"))


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asked_module, "REMEMBERED_MAX", 2)
    known = AskedOperations()
    known.remember({UUID(int=number): b"{}" for number in (1, 2, 3)})
    assert known.ask(wish(1))
    assert not known.ask(wish(3))
