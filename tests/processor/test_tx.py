"""The transaction as a handler sees it, without its SQL: facts and outcomes are collected."""

from __future__ import annotations

from typing import Any, cast

import pytest
from psycopg import Connection
from psycopg.sql import SQL, Identifier

from onceflow_processor import tx as tx_module
from onceflow_processor.effects import FACTS_PER_EVENT_MAX, Effects
from onceflow_processor.facts import Facts
from onceflow_processor.handlers import Handlers
from onceflow_processor.operations.asked import AskedOperations, OperationConflict
from onceflow_processor.operations.request import Origin, RequestRules
from onceflow_processor.tx import _SETTING, Requests, Tx, _plain
from onceflow_schemas.failure import Refused
from onceflow_schemas.identity import operation_id, outcome_id
from onceflow_schemas.operations.calls import StripeCall

CAUSE = "event:acct_1/test/evt_1"


def transaction(effects: Effects, facts: Facts | None = None, *, handler: str = "h") -> Tx:
    return Tx(
        cast("Connection[Any]", None),
        cause=CAUSE,
        handler=handler,
        effects=effects,
        facts=facts or Facts(),
        lane_count=6,
        value_bytes_max=1_000,
    )


def test_a_fact_is_true_once_and_noted_once() -> None:
    effects, facts = Effects(), Facts()
    tx = transaction(effects, facts)
    assert tx.once("paid", "in_1", "2")
    assert not tx.once("paid", "in_1", "2")
    assert tx.once("paid", "in_1", "3")
    assert effects.facts == [("paid", "in_1/2"), ("paid", "in_1/3")]
    assert facts.claimed() == {("paid", "in_1/2"): CAUSE, ("paid", "in_1/3"): CAUSE}


def test_a_fact_of_another_event_is_false_and_not_noted() -> None:
    effects, facts = Effects(), Facts()
    facts.remember([("paid", "in_1")])
    assert not transaction(effects, facts).once("paid", "in_1")
    assert effects.facts == []


def test_a_fact_that_cannot_be_kept_is_refused_at_the_call() -> None:
    with pytest.raises(Refused):
        transaction(Effects()).once("paid")
    with pytest.raises(Refused):
        transaction(Effects()).once("paid", "")


def test_facts_of_one_event_are_bounded() -> None:
    tx = transaction(Effects())
    assert all(tx.once("n", str(number)) for number in range(FACTS_PER_EVENT_MAX))
    with pytest.raises(Refused, match="at most 1000 facts"):
        tx.once("n", "one more")


def test_an_outcome_gives_its_id() -> None:
    effects = Effects()
    made = transaction(effects).outcome("invoice.paid", key="in_1", data={"a": 1})
    assert made == outcome_id(cause=CAUSE, handler="h", type="invoice.paid", key="in_1", n=1)
    assert [one.outcome_id for one in effects.outcomes] == [made]


def test_two_handlers_of_one_event_have_ids_of_their_own() -> None:
    effects = Effects()
    ids = {transaction(effects, handler=name).outcome("t", key="k", data={}) for name in ("h", "i")}
    assert len(ids) == 2


def test_an_outcome_that_cannot_be_written_is_refused_at_the_call() -> None:
    with pytest.raises(Refused, match="the topic takes 1000"):
        transaction(Effects()).outcome("t", key="k", data={"a": "x" * 1_000})


def test_queries_may_be_built_as_the_handler_likes() -> None:
    composed = SQL("SELECT {}").format(Identifier("a"))
    assert _plain("SELECT 1") == b"SELECT 1"
    assert _plain(b"SELECT 1") == b"SELECT 1"
    assert _plain(composed) is composed


@pytest.mark.parametrize(
    ("query", "watched"),
    [
        ("INSERT INTO t VALUES (%s)", False),
        ("INSERT INTO t VALUES (%s);\n", False),
        ("-- why this is written\n-- in two lines\nINSERT INTO t VALUES (%s)", False),
        ("(SELECT 1)", False),
        ("UPDATE t SET a = 1", False),
        ("SET search_path = x", True),
        ("-- why\n  set search_path = x", True),
        ("-- why\rset search_path = x", True),
        ("((RESET ALL", True),
        ("SELECT 1; SET search_path = x", True),
        ("SELECT set_config('a.b', 'c', false)", True),
        ("/* /* */ */ SET search_path = x", True),
        ("/* harmless */ SELECT 1", True),
        ("-- a line without an end SET x = y", False),
        ("DO $$ BEGIN END $$", True),
        ("DISCARD ALL", True),
    ],
)
def test_which_statements_may_have_changed_settings(query: str, *, watched: bool) -> None:
    assert (_SETTING.search(query.encode()) is not None) is watched


class From:
    account, mode, created = "acct_1", "test", None


def asking(effects: Effects, handlers: Handlers, known: AskedOperations) -> Tx:
    return Tx(
        cast("Connection[Any]", None),
        cause=CAUSE,
        handler="h",
        effects=effects,
        facts=Facts(),
        lane_count=6,
        value_bytes_max=1_000,
        requests=Requests(known, RequestRules(frozenset({"acct_1"}), handlers.effects)),
        origin=cast("Origin", From()),
    )


def test_an_operation_gives_its_id_and_is_noted_once() -> None:
    handlers, effects, known = Handlers(), Effects(), AskedOperations()
    refund = handlers.use(StripeCall.refund, name="refund")
    tx = asking(effects, handlers, known)
    made = tx.request(refund, subject="in_1", charge="ch_1", amount=5)
    assert made == str(operation_id(account="acct_1", mode="test", effect="refund", subject="in_1", occurrence=1))
    assert tx.request(refund, subject="in_1", charge="ch_1", amount=5) == made
    assert [(str(one.id), one.cause) for one in effects.operations] == [(made, CAUSE)]
    assert [one.id for one in known.asked()] == [one.id for one in effects.operations]
    with pytest.raises(OperationConflict):
        tx.request(refund, subject="in_1", charge="ch_1", amount=6)


def test_operations_of_one_event_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tx_module, "OPERATIONS_PER_EVENT_MAX", 2)
    handlers = Handlers()
    refund = handlers.use(StripeCall.refund, name="refund")
    tx = asking(Effects(), handlers, AskedOperations())
    for number in range(2):
        tx.request(refund, subject=str(number), charge="ch_1")
    with pytest.raises(Refused, match="at most 2 operations"):
        tx.request(refund, subject="2", charge="ch_1")


def test_where_operations_cannot_be_asked_for_it_says_so() -> None:
    refund = Handlers().use(StripeCall.refund, name="refund")
    with pytest.raises(Refused, match="cannot be asked for here"):
        transaction(Effects()).request(refund, subject="s", charge="ch_1")


def test_nothing_is_asked_for_after_the_handler_has_ended() -> None:
    handlers = Handlers()
    refund = handlers.use(StripeCall.refund, name="refund")
    tx = asking(Effects(), handlers, AskedOperations())
    tx.end()
    with pytest.raises(Refused, match="has ended"):
        tx.request(refund, subject="s", charge="ch_1")
