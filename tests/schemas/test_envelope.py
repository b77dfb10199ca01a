"""The envelope: what each odd body is called, and that no body makes the reader raise."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from onceflow_schemas.envelope import Envelope, read_envelope
from onceflow_schemas.failure import CONTENT_FAILURES
from onceflow_schemas.identity import EVENT_ID_PATTERN, body_event_id
from tests.schemas.stripe_bodies import CASES, EVENT, FORMS, compact, escaped, event_with, json_values

ANY_JSON = json_values(st.text(st.characters(exclude_categories=[]), max_size=5))
THIN = {"object": "v2.core.event", "id": "evt_1", "type": "v1.billing.meter.no_meter_found", "livemode": False}


def check(envelope: Envelope, body: bytes) -> None:
    """What holds for every body."""
    assert EVENT_ID_PATTERN.fullmatch(envelope.event_id) or envelope.event_id == body_event_id(body)
    assert envelope.problem is None or envelope.problem in CONTENT_FAILURES
    assert (envelope.problem is None) == (envelope.detail == "")
    envelope.type.encode("ascii")
    (envelope.object_id + envelope.order_id).encode("ascii")
    if envelope.problem is None:
        assert envelope.body is not None
        assert envelope.created is not None
        assert envelope.livemode is not None
        assert isinstance(envelope.body["data"]["object"], dict)


@pytest.mark.parametrize("write", FORMS)
def test_an_event_in_every_spelling(write: Any) -> None:
    assert read_envelope(write(EVENT)) == Envelope(
        event_id="evt_1B",
        type="payment_intent.succeeded",
        created=datetime(2026, 1, 1, tzinfo=UTC),
        livemode=False,
        account="acct_1A",
        api_version="2026-10-28.endive",
        object_id="pi_1",
        order_id="pi_1",
        problem=None,
        detail="",
        replaced=False,
        body=EVENT,
        names_account=True,
    )


def test_a_live_event_of_the_own_account() -> None:
    envelope = read_envelope(event_with(account=..., livemode=True))
    assert (envelope.account, envelope.livemode, envelope.problem) == (None, True, None)


@pytest.mark.parametrize("body", [b"hello", b"null", b"[]", b"5", b'"x"', b"", b"\xff", b"{}"])
def test_bodies_that_are_no_object(body: bytes) -> None:
    envelope = read_envelope(body)
    assert envelope.problem in {"not_an_event", "not_json", "not_utf8"}
    assert (envelope.event_id, envelope.type, envelope.body) == (body_event_id(body), "unknown", None)
    assert (envelope.created, envelope.livemode, envelope.account) == (None, None, None)


@pytest.mark.parametrize(
    "event_id",
    [
        ...,
        None,
        5,
        "",
        "evt_",
        "evt_" + "x" * 300,
        "evt_1\0",
        "evt_1\r\n",
        "../evt_1",
        "evt_\u202e1",
        "evt_x\x1b[2J",
        [],
    ],
)
def test_unusable_ids(event_id: object) -> None:
    body = event_with(id=event_id)
    envelope = read_envelope(body)
    assert (envelope.problem, envelope.event_id) == ("bad_event_id", body_event_id(body))


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("object", ..., "not_an_event"),
        ("object", "charge", "not_an_event"),
        ("object", [], "not_an_event"),
        ("data", ..., "not_an_event"),
        ("data", [], "not_an_event"),
        ("data", {}, "not_an_event"),
        ("data", {"object": None}, "not_an_event"),
        ("data", {"object": {}}, "not_an_event"),
        ("data", {"object": "pi_1"}, "not_an_event"),
        ("type", ..., "bad_type"),
        ("type", 7, "bad_type"),
        ("type", "", "bad_type"),
        ("type", "x" * 10_000, "bad_type"),
        ("type", "a b", "bad_type"),
        ("livemode", ..., "bad_livemode"),
        ("livemode", 0, "bad_livemode"),
        ("livemode", "true", "bad_livemode"),
        ("created", ..., "bad_created"),
        ("created", True, "bad_created"),
        ("created", 1.5, "bad_created"),
        ("created", -1, "bad_created"),
        ("created", 253_402_300_800, "bad_created"),
        ("created", "2026-01-01T00:00:00Z", "bad_created"),
        ("account", "acct_", "bad_account"),
        ("account", 5, "bad_account"),
        ("account", "acct_1:live", "bad_account"),
    ],
)
def test_unusable_fields(name: str, value: Any, problem: str) -> None:
    envelope = read_envelope(event_with(**{name: value}))
    assert (envelope.problem, envelope.event_id) == (problem, "evt_1B")


def test_money_is_read_strictly() -> None:
    assert read_envelope(event_with({"id": "ch_1", "amount": 1.5})).problem == "bad_amount"
    assert read_envelope(event_with({"id": "ch_1", "amount": 2**63})).problem == "bad_amount"
    assert read_envelope(event_with({"id": "ch_1", "currency": "USD"})).problem == "bad_currency"


def test_the_first_fault_is_the_one_that_is_told() -> None:
    envelope = read_envelope(event_with({"id": "ch_1", "amount": "100"}, id=5, type=7))
    assert (envelope.problem, envelope.detail) == (
        "bad_event_id",
        "the id is missing or not evt_ and letters, digits, underscores",
    )
    assert read_envelope(event_with({"id": "ch_1", "amount": 1.5}, created=-1)).problem == "bad_created"


@pytest.mark.parametrize(("seconds", "year"), [(0, 1970), (4_102_444_800, 2100), (253_402_300_799, 9999)])
def test_times_from_the_first_second_to_the_last(seconds: int, year: int) -> None:
    created = read_envelope(event_with(created=seconds)).created
    assert created is not None
    assert created.year == year


@pytest.mark.parametrize("kind", [[], {}, None, 5, ["charge"]])
def test_an_object_of_a_strange_kind_is_an_event_still(kind: object) -> None:
    envelope = read_envelope(event_with({"id": "x_1", "object": kind, "payment_intent": "pi_1"}))
    assert (envelope.problem, envelope.object_id, envelope.order_id) == (None, "x_1", "x_1")


@pytest.mark.parametrize(
    ("subject", "order_id"),
    [
        ({"object": "charge", "id": "ch_1", "payment_intent": "pi_1"}, "pi_1"),
        ({"object": "charge", "id": "ch_1", "payment_intent": None}, "ch_1"),
        ({"object": "charge", "id": "ch_1", "payment_intent": {"id": "pi_1", "object": "payment_intent"}}, "pi_1"),
        ({"object": "charge", "id": "ch_1", "payment_intent": {"object": "payment_intent"}}, "ch_1"),
        ({"object": "charge", "id": "ch_1", "payment_intent": "pi 1"}, "ch_1"),
        ({"object": "refund", "id": "re_1", "charge": "ch_1"}, "ch_1"),
        ({"object": "refund", "id": "re_1", "charge": "ch_1", "payment_intent": "pi_1"}, "pi_1"),
        ({"object": "dispute", "id": "dp_1", "charge": "ch_1"}, "ch_1"),
        ({"object": "checkout.session", "id": "cs_1", "subscription": "sub_1"}, "sub_1"),
        ({"object": "subscription_item", "id": "si_1", "subscription": "sub_1"}, "sub_1"),
        ({"object": "subscription_schedule", "id": "ss_1", "subscription": "sub_1"}, "sub_1"),
        ({"object": "credit_note", "id": "cn_1", "invoice": "in_1"}, "in_1"),
        ({"object": "invoice", "id": "in_1", "subscription": "sub_1"}, "in_1"),
        ({"object": "invoice"}, ""),
        ({"object": "invoice", "id": "in_1\n"}, ""),
    ],
)
def test_the_object_whose_order_matters(subject: dict[str, Any], order_id: str) -> None:
    assert read_envelope(event_with(subject)).order_id == order_id


def test_the_api_version_is_kept_short_and_may_be_missing() -> None:
    assert read_envelope(event_with(api_version=None)).api_version is None
    assert read_envelope(event_with(api_version="x" * 100)).api_version == "x" * 60


@pytest.mark.parametrize("request_field", [None, "req_1", {"id": None}, ...])
def test_old_and_unknown_shapes_beside_the_event_do_not_matter(request_field: object) -> None:
    assert read_envelope(event_with(request=request_field, surprise={"a": [1]})).problem is None


def test_nothing_depends_on_a_key_that_stands_twice() -> None:
    body = compact(EVENT).replace(b'"id":"evt_1B"', b'"id":"evt_1B","id":"evt_2"')
    envelope = read_envelope(body)
    assert (envelope.problem, envelope.event_id) == ("duplicate_key", body_event_id(body))
    assert envelope.body is not None
    assert "id" not in envelope.body


def test_a_key_twice_further_inside_leaves_the_id() -> None:
    body = compact(EVENT).replace(b'"amount":1200', b'"amount":1200,"amount":1')
    assert (read_envelope(body).problem, read_envelope(body).event_id) == ("duplicate_key", "evt_1B")


def test_nul_and_lone_surrogates_do_not_lose_a_paying_event() -> None:
    """Among them the harmless text of six characters that only looks like NUL."""
    metadata = {"nul": "a\0b", "lone": "\ud83d", "emoji": "😀", "text": "\\u0000", "k\0": 1}
    envelope = read_envelope(escaped({**EVENT, "data": {"object": {"id": "pi_1", "metadata": metadata}}}))
    assert (envelope.problem, envelope.replaced) == (None, True)
    assert envelope.body is not None
    assert envelope.body["data"]["object"]["metadata"] == {
        "nul": "a\ufffdb",
        "lone": "\ufffd",
        "emoji": "😀",
        "text": "\\u0000",
        "k\ufffd": 1,
    }


@pytest.mark.parametrize(
    ("created", "moment"),
    [
        ("2026-01-01T00:00:00.123Z", datetime(2026, 1, 1, 0, 0, 0, 123_000, tzinfo=UTC)),
        ("2026-01-01T01:00:00+01:00", datetime(2026, 1, 1, tzinfo=UTC)),
        ("2026-01-01T00:00:00", None),
        ("yesterday", None),
        (1_767_225_600, datetime(2026, 1, 1, tzinfo=UTC)),
        ("0001-01-01T00:00:00+01:00", None),
        ("9999-12-31T23:59:59-01:00", None),
        (None, None),
    ],
)
def test_a_thin_event_is_kept_for_later_with_what_it_says(created: object, moment: datetime | None) -> None:
    related = {"id": "mtr_1", "type": "billing.meter", "url": "/v1/billing/meters/mtr_1"}
    envelope = read_envelope(compact({**THIN, "created": created, "related_object": related}))
    assert (envelope.problem, envelope.event_id, envelope.object_id) == ("unsupported_kind", "evt_1", "mtr_1")
    assert envelope.created == moment


def test_a_thin_event_without_an_object() -> None:
    assert read_envelope(compact(THIN)).problem == "unsupported_kind"


@CASES
@given(st.binary(max_size=300))
def test_no_bytes_make_it_raise(body: bytes) -> None:
    check(read_envelope(body), body)


@CASES
@given(
    st.dictionaries(st.sampled_from([*EVENT, "related_object"]), ANY_JSON, max_size=4),
    st.dictionaries(
        st.sampled_from(["id", "object", "amount", "currency", "payment_intent"]),
        ANY_JSON | st.sampled_from(["charge", "refund"]),
    ),
    st.sampled_from(FORMS[:4]),
)
@example({}, {"object": ["charge"]}, compact)
@example({"object": "v2.core.event", "created": "0001-01-01T00:00:00+01:00"}, {}, compact)
def test_no_field_makes_it_raise(changes: dict[str, Any], inner: dict[str, Any], write: Any) -> None:
    subject = {**EVENT["data"]["object"], **inner}
    event = {**EVENT, "data": {"object": subject}, **changes}
    try:
        body = write(event)
    except UnicodeEncodeError:
        body = escaped(event)
    check(read_envelope(body), body)


@CASES
@given(ANY_JSON)
def test_no_document_makes_it_raise(value: Any) -> None:
    body = json.dumps(value).encode()
    check(read_envelope(body), body)
