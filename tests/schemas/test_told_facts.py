"""What a record tells of facts: digests that anybody can make again, in one form, and nothing of their keys."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceflow_schemas.told_facts import (
    FACTS_HEADER,
    FACTS_TOLD_MAX,
    fact_digest,
    facts_text,
    headers_by_cause,
    told_digests,
    told_text,
)

VECTORS = {
    ("payment", "pi_1"): "4c4091c4c25d9b7c10b0c0dacec67f69",
    ("fee-back", "in_1/ä%2F"): "3a9e5d19929273a5c6f0682af7c3ceeb",
}
DIGESTS = st.lists(st.binary(min_size=16, max_size=16), min_size=1, max_size=FACTS_TOLD_MAX)
ONE = "A" * 22


def test_digests_never_change() -> None:
    assert {fact: fact_digest(*fact).hex() for fact in VECTORS} == VECTORS


def test_a_namespace_ends_where_its_key_begins() -> None:
    assert fact_digest("a", "bc") != fact_digest("ab", "c")


@given(DIGESTS)
def test_what_is_written_is_read(digests: list[bytes]) -> None:
    assert told_digests(facts_text(digests)) == digests


@pytest.mark.parametrize(
    "text",
    [
        "", ",", ONE[1:], f"{ONE}A", f"{ONE}==", f"{ONE},", f",{ONE}", f"{ONE},,{ONE}", f"{ONE} ", f"{ONE}, {ONE}", f"{ONE[:-1]}B",
        f"{ONE[:-1]}+", f"{ONE[:-1]}ä", f"{ONE[:-1]}\n", ",".join([ONE] * (FACTS_TOLD_MAX + 1)),
    ],
)  # fmt: skip
def test_every_other_form_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        told_digests(text)


def test_each_cause_tells_its_own_facts_and_at_most_so_many() -> None:
    facts = {("n", str(number)): "app:many" for number in range(FACTS_TOLD_MAX + 5)} | {
        ("paid", "pi_1"): "event:a/test/evt_1"
    }
    headers = headers_by_cause(facts)
    assert json.loads(headers["event:a/test/evt_1"]) == {FACTS_HEADER: facts_text([fact_digest("paid", "pi_1")])}
    text = json.loads(headers["app:many"])[FACTS_HEADER]
    assert told_digests(text) == [fact_digest("n", str(number)) for number in range(FACTS_TOLD_MAX)]
    assert len(text) == 2_299
    assert told_text(headers["app:many"]) == text


@pytest.mark.parametrize(
    "headers",
    [
        "{}", '{"team":"a"}', '{"onceflow_facts": "a"}', '{"onceflow_facts":"a","b":"c"}', '{"onceflow_facts":"a\\n"}',
        '{"onceflow_facts":null}',
    ],
)  # fmt: skip
def test_other_headers_are_no_facts(headers: str) -> None:
    assert told_text(headers) is None
