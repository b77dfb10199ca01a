"""What is read for an event, under which path, and what an answer means: by hand."""

from __future__ import annotations

import json
from typing import Any

import pytest

from onceflow_schemas.object_reads import (
    BACKOFF_SECONDS_MAX,
    BYTES_MAX,
    LIMITED_SECONDS,
    NOT_PERMITTED,
    NOT_PERMITTED_SECONDS,
    PAGES_MAX,
    TOO_MANY_LINES,
    Answered,
    Failed,
    Later,
    Partly,
    ReadKind,
    ReadNeed,
    Verdict,
    Whole,
    assembled,
    backoff_seconds,
    code_of,
    judge,
    lines_path,
    object_path,
    thin_event_path,
)

LINES = "/v1/invoices/in_37/lines?limit=100"


def need(kind: ReadKind, id: str = "cus_1", path: str = "/v1/customers/cus_1") -> ReadNeed:
    return ReadNeed("acct_1", "test", kind, id, path, "2026-10-28.endive")


OBJECT = need(ReadKind.OBJECT)
THIN = need(ReadKind.THIN_EVENT, "evt_T7", "/v2/core/events/evt_T7")
PAGES = need(ReadKind.LINES, "in_37", LINES)


def verdict(need: ReadNeed, status: int | None = 200, body: object = None, **given: Any) -> Verdict:
    known = {name: given.pop(name) for name in ("path", "parts", "part_bytes") if name in given}
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return judge(need, Answered(status, data, **given), **{"path": need.path, "parts": 0, "part_bytes": 0, **known})


def error(code: str | None = None, **more: str) -> dict[str, Any]:
    return {"error": {"type": "invalid_request_error", **({"code": code} if code else {}), **more}}


def test_paths_come_from_a_table() -> None:
    assert object_path("customer", "cus_1") == "/v1/customers/cus_1"
    assert object_path("checkout.session", "cs_test_1") == "/v1/checkout/sessions/cs_test_1"
    assert thin_event_path("evt_test_1") == "/v2/core/events/evt_test_1"
    assert lines_path({"object": "invoice", "id": "in_37"}) == LINES


@pytest.mark.parametrize("id", ["", "../accounts", "cus_1?x=1", "cus_1/sources", "@evil.example", None, 7, "x" * 256])
def test_nothing_in_an_event_leads_elsewhere(id: object) -> None:
    assert object_path("customer", id) is None
    assert lines_path({"object": "invoice", "id": id}) is None
    if isinstance(id, str):
        assert thin_event_path(id) is None


@pytest.mark.parametrize("kind", ["unheard_of", None, 7, ["customer"]])
def test_what_has_no_path_is_not_read(kind: object) -> None:
    assert object_path(kind, "cus_1") is None


def test_a_customer_has_no_lines() -> None:
    assert lines_path({"object": "customer", "id": "cus_1"}) is None


def test_an_object_that_is_there_and_one_that_is_gone() -> None:
    assert verdict(OBJECT, body={"id": "cus_1", "object": "customer"}) == Whole()
    assert verdict(OBJECT, body={"id": "cus_1", "object": "customer", "deleted": True}) == Whole(gone=True)
    assert verdict(OBJECT, 404, error("resource_missing")) == Whole(gone=True)
    assert verdict(PAGES, 404, error("resource_missing")) == Whole(gone=True)
    assert verdict(THIN, 404, error("not_found"), parts=1) == Whole(gone=True)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b'{"id": "cus_1", "id": "cus_1", "object": "customer"}',
        [],
        {"id": "cus_2", "object": "customer"},
        {"id": "cus_1"},
        {"id": "cus_1", "object": "customer", "error": {}},
    ],
)
def test_an_answer_that_is_something_else_is_not_used(body: object) -> None:
    found = verdict(OBJECT, body=body)
    assert isinstance(found, Later)
    assert (found.code, found.counted, found.seconds) == ("unreadable", True, None)


def test_an_object_that_is_too_large() -> None:
    body = json.dumps({"id": "cus_1", "object": "customer", "more": "x" * BYTES_MAX}).encode()
    found = verdict(OBJECT, body=body)
    assert isinstance(found, Failed)
    assert found.code == "too_large"


@pytest.mark.parametrize("status", [500, 503, 424, 409, 599])
def test_a_failure_of_the_other_side_is_tried_again(status: int) -> None:
    found = verdict(OBJECT, status, b"<html>502 Bad Gateway")
    assert isinstance(found, Later)
    assert (found.code, found.counted, found.seconds) == ("failing", True, None)
    assert found.detail == f"Stripe answered {status}"


def test_a_redirect_is_not_followed() -> None:
    found = verdict(OBJECT, 302, b"")
    assert isinstance(found, Later)
    assert found.code == "redirected"


def test_silence_is_tried_again() -> None:
    assert verdict(OBJECT, None, b"", silence="deadline") == Later("deadline", "no whole answer came")


def test_a_limit_is_not_counted() -> None:
    asked = Later("limited", "Stripe answered 429 (endpoint-rate)", 7.0, counted=False)
    assert verdict(OBJECT, 429, b"", limit="endpoint-rate", retry_after_seconds=7.0) == asked
    said_nothing = verdict(OBJECT, 429, error("lock_timeout"))
    assert said_nothing == Later("limited", "Stripe answered 429 (lock_timeout)", LIMITED_SECONDS, counted=False)


def test_a_missing_permission_is_named() -> None:
    body = error(message="The key 'rk_test_*1' lacks 'rak_customer_read' for a@example.com")
    detail = "the key lacks the permission rak_customer_read"
    assert verdict(OBJECT, 403, body) == Later(NOT_PERMITTED, detail, NOT_PERMITTED_SECONDS, counted=False)
    refused = Later(NOT_PERMITTED, "Stripe answered 401 (invalid_request_error)", NOT_PERMITTED_SECONDS, counted=False)
    assert verdict(OBJECT, 401, error(message="Expired key sk_test_123")) == refused


def test_what_stripe_refuses_for_what_it_says_has_failed() -> None:
    assert verdict(OBJECT, 400, error("parameter_unknown")) == Failed(
        "refused", "Stripe answered 400 (parameter_unknown)"
    )
    # A 404 about the path, not about the object, is no proof that the object is gone.
    assert verdict(OBJECT, 404, error()) == Failed("refused", "Stripe answered 404 (invalid_request_error)")
    assert verdict(OBJECT, 404, b"[]") == Failed("refused", "Stripe answered 404")


def test_a_thin_event_names_its_object() -> None:
    event = {"id": "evt_T7", "object": "v2.core.event"}
    assert verdict(THIN, body=event) == Whole()
    related = {"id": "acct_T7", "type": "v2.core.account", "url": "/v2/core/accounts/acct_T7"}
    assert verdict(THIN, body={**event, "related_object": related}) == Partly("/v2/core/accounts/acct_T7")
    # A singleton of version 2 has no id.
    assert verdict(THIN, body={"object": "v2.core.account"}, parts=1) == Whole()
    assert isinstance(verdict(THIN, body={"id": "acct_T7"}, parts=1), Later)


@pytest.mark.parametrize(
    "url", ["https://evil.example/v1/x", "@evil.example", "//evil.example/", "/v1/../x", "/v3/x", "/v1/x?a=b", 7, None]
)
def test_a_thin_event_leads_nowhere_else(url: object) -> None:
    found = verdict(THIN, body={"id": "evt_T7", "object": "v2.core.event", "related_object": {"url": url}})
    assert isinstance(found, Failed)
    assert found.code == "no_such_path"
    assert isinstance(verdict(THIN, body={"id": "evt_T7", "object": "v2.core.event", "related_object": 7}), Failed)


def test_a_thin_event_that_is_another_or_not_there_yet() -> None:
    assert isinstance(verdict(THIN, body={"id": "evt_T8", "object": "v2.core.event"}), Later)
    assert isinstance(verdict(THIN, body={"id": "evt_T7", "object": "event"}), Later)
    found = verdict(THIN, 404, error("not_found"))
    assert isinstance(found, Later)
    assert (found.code, found.counted) == ("no_such_event", True)


def page(*ids: object, more: object = False) -> dict[str, Any]:
    return {"object": "list", "data": [{"id": one} for one in ids], "has_more": more}


def test_pages_follow_each_other() -> None:
    following = f"{LINES}&starting_after=il_2"
    assert verdict(PAGES, body=page("il_1", "il_2", more=True)) == Partly(following)
    assert verdict(PAGES, body=page("il_3"), path=following, parts=1) == Whole()
    assert verdict(PAGES, body=page()) == Whole()


@pytest.mark.parametrize(
    "body",
    [
        page(more=True),
        page(None, more=True),
        page("il 1"),
        {"data": [7], "has_more": False},
        {"data": [], "has_more": None},
        {"data": {}, "has_more": False},
    ],
)
def test_a_page_that_cannot_be(body: object) -> None:
    assert isinstance(verdict(PAGES, body=body), Later)


def test_a_list_that_repeats_itself() -> None:
    found = verdict(PAGES, body=page("il_1", "il_2", more=True), path=f"{LINES}&starting_after=il_2", parts=1)
    assert found == Later("unreadable", "the list repeats itself")


def test_a_list_without_end_is_left_incomplete() -> None:
    assert verdict(PAGES, body=page("il_1", more=True), parts=PAGES_MAX - 1) == Whole(code=TOO_MANY_LINES)
    assert verdict(PAGES, body=page("il_1"), parts=PAGES_MAX - 1) == Whole()
    assert verdict(PAGES, body=page("il_1"), parts=1, part_bytes=BYTES_MAX) == Whole(code=TOO_MANY_LINES)


def test_what_was_read_becomes_one_document() -> None:
    assert assembled(ReadKind.OBJECT, [b'{"id": 1}']) == b'{"id": 1}'
    assert json.loads(assembled(ReadKind.THIN_EVENT, [b'{"id": 1}', b'{"id": 2}'])) == {
        "event": {"id": 1},
        "object": {"id": 2},
    }
    assert json.loads(assembled(ReadKind.THIN_EVENT, [b'{"id": 1}'])) == {"event": {"id": 1}}
    pages = [json.dumps(page("il_1", "il_2")).encode(), json.dumps(page("il_2", "il_3")).encode()]
    assert [line["id"] for line in json.loads(assembled(ReadKind.LINES, pages))] == ["il_1", "il_2", "il_3"]


def test_pauses_grow_to_a_limit() -> None:
    assert [backoff_seconds(tries, share=1.0) for tries in (0, 1, 2, 3)] == [1, 2, 4, 8]
    assert backoff_seconds(12, share=1.0) == BACKOFF_SECONDS_MAX
    assert backoff_seconds(1_000_000, share=1.0) == BACKOFF_SECONDS_MAX
    assert backoff_seconds(3, share=0.25) == 2


def test_a_code_is_never_a_text() -> None:
    assert code_of(Answered(400, json.dumps(error("Mrs. Smith's card")).encode())) == "invalid_request_error"
    assert code_of(Answered(400, b'{"error": "x"}')) is None
