"""Statuses, answers and their words."""

from __future__ import annotations

import json

import pytest

from onceflow_producer.refusal import COUNTS_AS_INVALID, REFUSAL_ANSWERS, STATUS_OF, json_answer
from onceflow_schemas.failure import FAILURES


@pytest.mark.parametrize("code", sorted(STATUS_OF))
def test_each_code_has_an_answer_with_a_next_step(code: str) -> None:
    answer = REFUSAL_ANSWERS[code]
    document = json.loads(answer.body["body"])
    assert document == {
        "error": {"code": code, "message": FAILURES[code].meaning, "hint": FAILURES[code].hint},
    }
    headers = dict(answer.start["headers"])
    assert answer.start["status"] == answer.status == STATUS_OF[code]
    assert headers[b"content-type"] == b"application/json"
    assert int(headers[b"content-length"]) == len(answer.body["body"])


def test_only_our_own_unavailability_and_a_bug_are_5xx() -> None:
    assert {code for code, status in STATUS_OF.items() if status >= 500} == {
        "internal_error",
        "broker_unavailable",
        "broker_timeout",
        "broker_refused",
        "topic_missing",
        "queue_full",
        "attestation_key_missing",
    }


def test_what_the_sender_should_know_is_in_headers() -> None:
    assert dict(REFUSAL_ANSWERS["method_not_allowed"].start["headers"])[b"allow"] == b"POST"
    assert dict(REFUSAL_ANSWERS["too_many_invalid"].start["headers"])[b"retry-after"] == b"5"
    assert dict(REFUSAL_ANSWERS["body_timeout"].start["headers"])[b"connection"] == b"close"
    for code, status in STATUS_OF.items():
        assert (b"retry-after" in dict(REFUSAL_ANSWERS[code].start["headers"])) == (status in {429, 503})


def test_nothing_that_happens_after_a_valid_signature_costs_a_token() -> None:
    assert {STATUS_OF[code] for code in COUNTS_AS_INVALID} == {400, 408, 413, 415, 431}
    assert "record_too_large" not in COUNTS_AS_INVALID


def test_an_answer_says_its_length() -> None:
    answer = json_answer(200, b'{"a":1}', headers=[(b"x-y", b"z")])
    assert dict(answer.start["headers"])[b"content-length"] == b"7"
    assert dict(answer.start["headers"])[b"x-y"] == b"z"
