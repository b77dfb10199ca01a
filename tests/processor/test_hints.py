"""Which events speak of an operation, and which only look as if they did."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from onceflow_processor.hints import hints_of
from onceflow_schemas.envelope import read_envelope
from onceflow_schemas.identity import Identity
from tests.processor.conftest import event_body

ID = "6f1a2f0e-5a43-5d0c-9a3e-0d6f6e636566"
OTHER = "7f1a2f0e-5a43-5d0c-9a3e-0d6f6e636566"
RANDOM = "6f1a2f0e-5a43-4d0c-9a3e-0d6f6e636566"
IDENTITY = Identity("acct_1", "test", "evt_1")


def ids(*, key: Any = None, metadata: Any = None, request: Any = "given") -> list[str]:
    subject = {"id": "re_1", "object": "refund", "status": "pending", "metadata": metadata}
    given = {"id": "req_1", "idempotency_key": key} if request == "given" else request
    envelope = read_envelope(event_body("evt_1", "refund.created", subject, request=given))
    return [str(hint.operation_id) for hint in hints_of(envelope, IDENTITY)]


@pytest.mark.parametrize(
    ("key", "metadata", "expected"),
    [
        (None, None, []),
        (None, {}, []),
        (ID, None, [ID]),
        (f"{ID}.create", None, [ID]),
        (f"{ID}.confirm", {"onceflow_operation": ID}, [ID]),
        (None, {"onceflow_operation": ID, "order": "1"}, [ID]),
        (OTHER, {"onceflow_operation": ID}, [ID, OTHER]),
        # The keys that Stripe's libraries make up are random; most are not of version 5.
        (RANDOM, None, []),
        (ID.upper(), None, []),
        (f"{ID}.", None, []),
        (f"{ID}.a.b", None, []),
        (f"x{ID}", None, []),
        (f"{ID}\n", None, []),
        ("", {"onceflow_operation": ""}, []),
        (5, {"onceflow_operation": 5}, []),
        (None, {"onceflow_operation": f"{ID}.create"}, []),
        (None, [ID], []),
        (None, "onceflow_operation", []),
    ],
)
def test_what_names_an_operation(key: Any, metadata: Any, expected: list[str]) -> None:
    assert ids(key=key, metadata=metadata) == expected


def test_a_key_alone_does_not_mark_the_object() -> None:
    subject = {"id": "re_1", "object": "refund", "metadata": {"onceflow_operation": ID}}
    given = {"id": "req_1", "idempotency_key": OTHER}
    envelope = read_envelope(event_body("evt_1", "refund.created", subject, request=given))
    marked = {str(hint.operation_id): hint.marked for hint in hints_of(envelope, IDENTITY)}
    assert marked == {ID: True, OTHER: False}


@pytest.mark.parametrize("request_", [None, "req_1", [], {}], ids=repr)
def test_old_and_automatic_events_name_none(request_: Any) -> None:
    assert ids(request=request_) == []


def test_a_hint_says_how_the_object_stands() -> None:
    subject = {"id": "pi_1", "object": "payment_intent", "status": "succeeded", "metadata": {"onceflow_operation": ID}}
    envelope = read_envelope(event_body("evt_1", "payment_intent.succeeded", subject))
    [hint] = hints_of(envelope, IDENTITY)
    assert hint[:5] == (UUID(ID), "acct_1/test/evt_1", "payment_intent", "pi_1", "succeeded")
    assert hint.created.timestamp() == 1_767_225_600


def test_an_object_without_a_status_or_with_an_odd_one() -> None:
    for subject in ({"id": "cus_1"}, {"id": "cus_1", "object": 5, "status": {"a": 1}}):
        envelope = read_envelope(event_body("evt_1", "a.b", {**subject, "metadata": {"onceflow_operation": ID}}))
        [hint] = hints_of(envelope, IDENTITY)
        assert (hint.object, hint.status) == ("", None)
    long = {"id": "x", "status": "s" * 1_000, "metadata": {"onceflow_operation": ID}}
    [hint] = hints_of(read_envelope(event_body("evt_1", "a.b", long)), IDENTITY)
    assert hint.status == "s" * 100
