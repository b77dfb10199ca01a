"""Every (state, proof, role and policy): the expectation below is written by hand, none is computed by the product.

Columns: REQ requested, 1ST sending for the first time, AGN sending when an earlier try may have acted, UNK unknown, PEN
pending, REV in review for want of evidence, WRG in review because of wrong evidence, SUC, FAI, CAN settled.
Cells: the state after it; ``=`` unchanged; ``req+`` the next step; ``pen>`` the cancel step; ``bug`` an assertion.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from onceflow_schemas.operations.advance import advance
from onceflow_schemas.operations.calls import Call
from onceflow_schemas.operations.evidence import UNSENT, Evidence, Proof
from onceflow_schemas.operations.operation import SETTLED, Operation, Policy, State
from tests.schemas.operations.samples import (
    CAPTURE,
    CHARGE,
    MAIL,
    NOW,
    REFUND,
    http,
    operation,
)

CALL = """
                 REQ  1ST  AGN  UNK  PEN  REV  WRG  SUC  FAI  CAN
done             suc  suc  suc  suc  suc  suc  =    =    rev  rev
processing       pen  pen  pen  pen  pen  pen  =    =    rev  rev
needs_action     pen  pen  pen  pen  pen  pen  =    =    =    =
open             =    rev  rev  =    rev  =    =    =    =    =
declined         fai  fai  fai  fai  fai  fai  =    =    =    =
refused          fai  fai  unk  fai  fai  fai  =    =    =    =
ended            fai  fai  fai  fai  fai  fai  =    fai  =    =
not_sent         =    req  unk  =    =    =    =    =    =    =
limited          =    req  unk  =    =    =    =    =    =    =
unauthorised     =    req  unk  =    =    =    =    =    =    =
busy             =    unk  unk  =    =    =    =    =    =    =
key_mismatch     bug  unk  unk  bug  bug  =    =    =    =    =
unknown          =    unk  unk  =    =    =    =    =    =    =
stored_failure   =    unk  unk  =    =    =    =    =    =    =
strange          rev  rev  rev  rev  rev  =    =    =    =    =
absent           =    bug  bug  =    rev  =    =    =    =    =
several          rev  bug  bug  rev  rev  =    =    rev  rev  rev
lookup_failed    =    bug  bug  =    =    =    =    =    =    =
lease_expired    =    unk  unk  =    =    =    =    =    =    =
abandoned        can  bug  bug  bug  bug  bug  bug  =    =    =
ruled_succeeded  bug  bug  bug  suc  bug  suc  suc  bug  bug  bug
ruled_failed     bug  bug  bug  fai  bug  fai  fai  bug  bug  bug
"""

# What its own object keeps from happening twice is refused also because it has happened: it is always looked at.
FENCED = CALL.replace(
    "refused          fai  fai  unk",
    "refused          fai  unk  unk",
)

CREATE = """
                 REQ  1ST  AGN  UNK  PEN  REV  WRG  SUC  FAI  CAN
done             req+ req+ req+ req+ req+ =    =    =    =    =
processing       rev  rev  rev  rev  rev  =    =    =    =    =
needs_action     rev  rev  rev  rev  rev  =    =    =    =    =
open             rev  rev  rev  rev  rev  =    =    =    =    =
declined         rev  rev  rev  rev  rev  =    =    =    =    =
refused          fai  fai  unk  fai  fai  fai  =    =    =    =
ended            fai  fai  fai  fai  fai  fai  =    =    =    =
not_sent         =    req  unk  =    =    =    =    =    =    =
limited          =    req  unk  =    =    =    =    =    =    =
unauthorised     =    req  unk  =    =    =    =    =    =    =
busy             =    unk  unk  =    =    =    =    =    =    =
key_mismatch     bug  unk  unk  bug  bug  =    =    =    =    =
unknown          =    unk  unk  =    =    =    =    =    =    =
stored_failure   =    unk  unk  =    =    =    =    =    =    =
strange          rev  rev  rev  rev  rev  =    =    =    =    =
absent           =    bug  bug  =    =    =    =    =    =    =
several          rev  bug  bug  rev  rev  =    =    rev  rev  rev
lookup_failed    =    bug  bug  =    =    =    =    =    =    =
lease_expired    =    unk  unk  =    =    =    =    =    =    =
abandoned        can  bug  bug  bug  bug  bug  bug  =    =    =
ruled_succeeded  bug  bug  bug  suc  bug  suc  suc  bug  bug  bug
ruled_failed     bug  bug  bug  fai  bug  fai  fai  bug  bug  bug
"""

CONFIRM = """
                 REQ  1ST  AGN  UNK  PEN  REV  WRG  SUC  FAI  CAN
done             suc  suc  suc  suc  suc  suc  =    =    rev  rev
processing       pen  pen  pen  pen  pen  pen  =    =    rev  rev
needs_action     pen  pen  pen  pen  pen  pen  =    =    =    =
open             =    rev  rev  =    pen> =    =    =    =    =
declined         pen> pen> pen> pen> pen> pen> =    =    =    =
refused          pen> unk  unk  pen> pen> pen> =    =    =    =
ended            fai  fai  fai  fai  fai  fai  =    =    =    =
not_sent         =    req  unk  =    =    =    =    =    =    =
limited          =    req  unk  =    =    =    =    =    =    =
unauthorised     =    req  unk  =    =    =    =    =    =    =
busy             =    unk  unk  =    =    =    =    =    =    =
key_mismatch     bug  rev  rev  bug  bug  =    =    =    =    =
unknown          =    unk  unk  =    =    =    =    =    =    =
stored_failure   =    unk  unk  =    =    =    =    =    =    =
strange          rev  rev  rev  rev  rev  =    =    =    =    =
absent           rev  bug  bug  rev  rev  =    =    =    =    =
several          rev  bug  bug  rev  rev  =    =    rev  rev  rev
lookup_failed    =    bug  bug  =    =    =    =    =    =    =
lease_expired    =    unk  unk  =    =    =    =    =    =    =
abandoned        pen> bug  bug  pen> pen> pen> pen> =    =    =
ruled_succeeded  bug  bug  bug  suc  bug  suc  suc  bug  bug  bug
ruled_failed     bug  bug  bug  fai  bug  fai  fai  bug  bug  bug
"""

# It rests in pending: a charge is neither failed nor unknown while its intent is being closed.
CANCEL = """
                 REQ  1ST  AGN  UNK  PEN  REV  WRG  SUC  FAI  CAN
done             suc  suc  suc  suc  suc  suc  =    =    rev  rev
processing       pen  pen  pen  pen  pen  pen  =    =    rev  rev
needs_action     =    rev  rev  =    =    =    =    =    =    =
open             =    rev  rev  =    =    =    =    =    =    =
declined         =    rev  rev  =    =    =    =    =    =    =
refused          rev  pen  pen  rev  rev  =    =    =    =    =
ended            fai  fai  fai  fai  fai  fai  =    =    =    =
not_sent         =    pen  pen  =    =    =    =    =    =    =
limited          =    pen  pen  =    =    =    =    =    =    =
unauthorised     =    pen  pen  =    =    =    =    =    =    =
busy             =    pen  pen  =    =    =    =    =    =    =
key_mismatch     bug  rev  rev  bug  bug  =    =    =    =    =
unknown          =    pen  pen  =    =    =    =    =    =    =
stored_failure   =    pen  pen  =    =    =    =    =    =    =
strange          rev  rev  rev  rev  rev  =    =    =    =    =
absent           rev  bug  bug  rev  rev  =    =    =    =    =
several          rev  bug  bug  rev  rev  =    =    rev  rev  rev
lookup_failed    =    bug  bug  =    =    =    =    =    =    =
lease_expired    =    pen  pen  =    =    =    =    =    =    =
abandoned        =    bug  bug  =    =    pen> pen> =    =    =
ruled_succeeded  bug  bug  bug  suc  bug  suc  suc  bug  bug  bug
ruled_failed     bug  bug  bug  fai  bug  fai  fai  bug  bug  bug
"""

TABLES: dict[str, tuple[str, Call, str]] = {
    "stripe": (CALL, REFUND, "call"),
    "idempotent": (CALL, http(Policy.IDEMPOTENT), "call"),
    "at_least_once": (CALL, MAIL, "call"),
    "at_most_once": (CALL, http(Policy.AT_MOST_ONCE), "call"),
    "reconcile_first": (CALL, http(Policy.RECONCILE_FIRST, lookup=True), "call"),
    "fenced": (FENCED, CAPTURE, "call"),
    "create": (CREATE, CHARGE, "create"),
    "confirm": (CONFIRM, CHARGE, "confirm"),
    "cancel": (CANCEL, CHARGE, "cancel"),
}

COLUMNS: dict[str, dict[str, Any]] = {
    "REQ": {"state": State.REQUESTED},
    "1ST": {"state": State.SENDING},
    "AGN": {"state": State.SENDING, "sent": True, "last_sent_at": NOW},
    "UNK": {"state": State.UNKNOWN, "sent": True, "last_sent_at": NOW},
    "PEN": {"state": State.PENDING, "sent": True, "last_sent_at": NOW},
    "REV": {"state": State.REVIEW, "sent": True, "last_sent_at": NOW, "review_code": "operation_not_found"},
    "WRG": {"state": State.REVIEW, "sent": True, "last_sent_at": NOW, "review_code": "several_objects"},
    "SUC": {"state": State.SUCCEEDED, "sent": True, "last_sent_at": NOW, "told": ("succeeded",)},
    "FAI": {"state": State.FAILED, "sent": True, "last_sent_at": NOW, "told": ("failed",)},
    "CAN": {"state": State.CANCELED, "sent": True, "last_sent_at": NOW, "told": ("canceled",)},
}

CLOSING = {Proof.ABANDONED}
"""What starts the cancel step anew where it is the present one already."""

WORDS = {
    "req": State.REQUESTED,
    "unk": State.UNKNOWN,
    "pen": State.PENDING,
    "rev": State.REVIEW,
    "suc": State.SUCCEEDED,
    "fai": State.FAILED,
    "can": State.CANCELED,
}


def expected(name: str, column: str) -> dict[str, str]:
    """Proof -> cell of a column, in the order of the table."""
    head, *rows = TABLES[name][0].strip("\n").splitlines()
    place = head.split().index(column) + 1
    own = {"PEN": "pen"}.get(column)
    found = {cells[0]: cells[place] for cells in (row.split() for row in rows)}
    return {proof: "=" if cell == own else cell for proof, cell in found.items()}


def evidence_of(proof: Proof, column: str, **fields: Any) -> Evidence:
    about = proof in {Proof.DONE, Proof.PROCESSING, Proof.NEEDS_ACTION, Proof.OPEN, Proof.DECLINED, Proof.ENDED}
    given = {"external_id": "pi_1" if about else None, "from_lookup": column not in {"1ST", "AGN"}}
    return Evidence(**({"proof": proof, "detail": "so it was"} | given | fields))


def sample(name: str, column: str) -> Operation:
    _, call, step = TABLES[name]
    stored = {} if step == "create" else {"external_id": "pi_1"}
    return operation(call, step=step, **stored, **COLUMNS[column])


def cell_of(before: Operation, evidence: Evidence) -> str:
    """What happened, in the words of the tables; what must hold for every pair is asserted here."""
    try:
        change = advance(before, evidence, now=NOW)
    except AssertionError:
        return "bug"
    assert change.state is not State.SENDING or before.state is State.SENDING, "only a committed attempt is sending"
    assert (change.next_attempt_at is None) == (change.state in SETTLED or change.state is State.REVIEW)
    if (change.state, change.step) == (before.state, before.step) and not change.tells:
        assert change.review is None
        return "="
    assert (change.review is not None) == (change.state is State.REVIEW)
    assert change.tells == (change.state in SETTLED)
    [word] = [word for word, state in WORDS.items() if state is change.state]
    if change.step == before.step and evidence.proof not in CLOSING:
        return word
    return word + {1: "+", 2: ">"}.get(change.step, "")


def test_every_proof_state_and_policy_has_an_expectation() -> None:
    assert {column["state"] for column in COLUMNS.values()} == set(State)
    assert {sample(name, "REQ").present.policy for name in TABLES} == set(Policy)
    for name, (table, _, _) in TABLES.items():
        head, *rows = table.strip("\n").splitlines()
        assert head.split() == list(COLUMNS)
        assert [row.split()[0] for row in rows] == [proof.value for proof in Proof], name
        assert {len(row.split()) for row in rows} == {len(COLUMNS) + 1}


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("name", TABLES)
def test_every_pair(name: str, column: str) -> None:
    before = sample(name, column)
    found = {proof.value: cell_of(before, evidence_of(proof, column)) for proof in Proof}
    assert found == expected(name, column)


def test_a_stored_refusal_is_final_for_what_its_object_does_not_fence() -> None:
    again = sample("stripe", "AGN")
    assert advance(again, evidence_of(Proof.REFUSED, "AGN", replayed=True), now=NOW).state is State.FAILED
    fenced = sample("fenced", "AGN")
    assert advance(fenced, evidence_of(Proof.REFUSED, "AGN", replayed=True), now=NOW).state is State.UNKNOWN


@pytest.mark.parametrize(
    ("column", "proof", "restored", "expected"),
    [
        ("1ST", Proof.REFUSED, False, State.FAILED),
        ("1ST", Proof.REFUSED, True, State.UNKNOWN),
        ("AGN", Proof.REFUSED, False, State.UNKNOWN),
        ("REQ", Proof.STRANGE, False, State.FAILED),
        ("REQ", Proof.STRANGE, True, State.REVIEW),
        ("UNK", Proof.STRANGE, False, State.REVIEW),
    ],
)
def test_a_call_about_an_object_that_is_not_there_has_done_nothing_when_it_is_the_first(
    column: str,
    proof: Proof,
    restored: bool,  # noqa: FBT001
    expected: State,
) -> None:
    fenced = replace(sample("fenced", column), restored=restored)
    missing = evidence_of(proof, column, code="resource_missing", http_status=404)
    assert advance(fenced, missing, now=NOW).state is expected


def test_the_confirm_of_a_charge_is_looked_at_whatever_is_missing() -> None:
    """The intent is ours and exists: it is the payment method that does not, and the intent is to be closed."""
    missing = evidence_of(Proof.REFUSED, "1ST", code="resource_missing", http_status=404)
    assert advance(sample("confirm", "1ST"), missing, now=NOW).state is State.UNKNOWN


@pytest.mark.parametrize("proof", [*UNSENT, Proof.REFUSED])
def test_after_a_restore_no_first_try_is_sure_to_be_the_first(proof: Proof) -> None:
    restored = replace(sample("stripe", "1ST"), restored=True)
    assert advance(restored, evidence_of(proof, "1ST"), now=NOW).state is State.UNKNOWN


WITHOUT_EFFECT: list[tuple[str, str | None]] = [
    ("setup_intent", "requires_payment_method"),
    ("setup_intent", "requires_action"),
    ("payment_intent", "requires_payment_method"),
    ("payment_intent", "requires_confirmation"),
    ("payment_intent", "canceled"),
    ("invoice", "draft"),
    ("subscription", "incomplete"),
    ("subscription", "incomplete_expired"),
]
WITH_EFFECT: list[tuple[str, str | None]] = [
    ("setup_intent", "succeeded"),
    ("payment_intent", "requires_capture"),
    ("payment_intent", "succeeded"),
    ("invoice", "open"),
    ("subscription", "active"),
    ("refund", "pending"),
    ("customer", None),
]


@pytest.mark.parametrize("column", ["FAI", "CAN"])
@pytest.mark.parametrize(("kind", "status"), WITHOUT_EFFECT + WITH_EFFECT)
def test_only_an_object_that_shows_an_effect_contradicts_a_failure(column: str, kind: str, status: str | None) -> None:
    """A refused request may leave an object behind of which nothing has come."""
    found = evidence_of(Proof.DONE, column, status=status, object={"object": kind, "status": status})
    change = advance(sample("stripe", column), found, now=NOW)
    if (kind, status) in WITHOUT_EFFECT:
        assert (change.state, change.review) == (COLUMNS[column]["state"], None)
    else:
        assert change.review == (
            "settled_otherwise",
            f"it was {COLUMNS[column]['state']} and pi_1 is {status or 'there'}",
        )


@pytest.mark.parametrize(("kind", "status"), WITHOUT_EFFECT + WITH_EFFECT)
def test_only_an_object_that_shows_an_effect_is_a_second_one(kind: str, status: str | None) -> None:
    found = evidence_of(Proof.DONE, "SUC", external_id="x_2", status=status, object={"object": kind, "status": status})
    change = advance(sample("stripe", "SUC"), found, now=NOW)
    assert (change.review is None) == ((kind, status) in WITHOUT_EFFECT)
