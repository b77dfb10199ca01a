"""When an account's calls wait, and for how long."""

from __future__ import annotations

import pytest

from onceflow_processor.operations.budget import Answer, Block, blocks, opened, pause_seconds
from onceflow_schemas.operations.evidence import Evidence, Proof


def answer(proof: Proof, *, account: str = "acct_1", probe: bool = False, **more: object) -> Answer:
    return Answer(account, Evidence(proof=proof, **more), probe)  # type: ignore[arg-type]


def test_pauses_grow_and_have_an_end() -> None:
    assert [pause_seconds(times) for times in (0, 1, 2, 6, 100)] == [5, 10, 20, 300, 300]


def test_many_refusals_of_one_key_are_one() -> None:
    refused = answer(Proof.UNAUTHORISED, detail="the key lacks the permission rak_charge_write")
    first = blocks([refused, refused], refusals={})
    assert first == [Block("acct_1", 5.0, "the key lacks the permission rak_charge_write", 1)]
    assert blocks([refused], refusals={"acct_1": 1}) == []


def test_a_probe_that_is_refused_waits_longer() -> None:
    refused = answer(Proof.UNAUTHORISED, probe=True)
    assert blocks([refused], refusals={"acct_1": 2}) == [Block("acct_1", 20.0, "the key is refused", 3)]


@pytest.mark.parametrize(("asked", "seconds"), [(None, 1.0), (0.0, 1.0), (7.5, 7.5), (100_000.0, 300.0)])
def test_a_limit_is_obeyed_within_bounds(asked: float | None, seconds: float) -> None:
    limited = answer(Proof.LIMITED, code="global-rate", retry_after_seconds=asked)
    assert blocks([limited], refusals={}) == [Block("acct_1", seconds, None, 0)]


def test_a_lock_of_one_object_is_not_the_accounts_limit() -> None:
    assert blocks([answer(Proof.LIMITED, code="lock_timeout")], refusals={}) == []


def test_a_refused_key_weighs_more_than_a_limit_and_accounts_are_sorted() -> None:
    found = blocks(
        [
            answer(Proof.LIMITED, account="acct_2"),
            answer(Proof.UNAUTHORISED, account="acct_2"),
            answer(Proof.LIMITED, account="acct_2"),
            answer(Proof.LIMITED, account="acct_1"),
        ],
        refusals={},
    )
    assert [(block.account, block.reason is None) for block in found] == [("acct_1", True), ("acct_2", False)]


def test_only_a_probe_that_was_answered_opens_an_account() -> None:
    for proof in (Proof.DONE, Proof.DECLINED, Proof.REFUSED, Proof.PROCESSING, Proof.ABSENT):
        assert opened([answer(proof, probe=True)], blocked=[]) == ["acct_1"]
    for proof in (Proof.UNAUTHORISED, Proof.UNKNOWN, Proof.NOT_SENT, Proof.LIMITED, Proof.LOOKUP_FAILED):
        assert opened([answer(proof, probe=True)], blocked=[]) == []
    assert opened([answer(Proof.DONE)], blocked=[]) == []
    assert opened([answer(Proof.DONE, probe=True)], blocked=[Block("acct_1", 5, "refused", 1)]) == []
    assert opened([answer(Proof.DONE, probe=True)], blocked=[Block("acct_1", 5, None, 0)]) == ["acct_1"]
