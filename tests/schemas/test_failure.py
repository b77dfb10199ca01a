"""Failures: each code has an actor, a meaning and a next step, once."""

from __future__ import annotations

import re

import pytest

from onceflow_schemas import failure
from onceflow_schemas.failure import FAILURES, Failure, Misconfigured, Refused, hint_for
from onceflow_schemas.failure_kind import FailureKind

GROUPS = {name: group for name, group in vars(failure).items() if name.endswith("_FAILURES")}


@pytest.mark.parametrize("kind", FAILURES.values(), ids=lambda kind: kind.code)
def test_each_code_says_who_must_act_what_it_means_and_what_to_do(kind: FailureKind) -> None:
    assert re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", kind.code)
    assert kind.actor in {"sender", "operator", "nobody", "developer"}
    assert kind.meaning.endswith(".")
    assert kind.meaning[0].isupper() or kind.meaning.startswith("livemode")
    assert kind.hint
    assert "\n" not in kind.meaning + kind.hint


def test_no_code_stands_in_two_groups() -> None:
    codes = [code for group in GROUPS.values() for code in group]
    assert sorted(codes) == sorted(FAILURES)


def test_a_code_is_found_under_its_own_name() -> None:
    assert all(kind.code == code for code, kind in FAILURES.items())


def test_a_failure_carries_the_hint_of_its_code() -> None:
    error = Refused("outcome_refused", "too large")
    assert (error.code, error.message, error.hint) == ("outcome_refused", "too large", hint_for("outcome_refused"))
    assert str(error) == "outcome_refused: too large"
    assert isinstance(error, Failure)


def test_a_hint_of_its_own_wins() -> None:
    assert Refused("outcome_refused", "too large", "write less").hint == "write less"


def test_a_misconfiguration_names_every_fault() -> None:
    faults = ("a is missing", "b is negative")
    assert Misconfigured("settings_invalid", "2 faults", faults=faults).faults == faults
    assert Misconfigured("settings_invalid", "a is missing").faults == ("a is missing",)


def test_an_unknown_code_is_a_bug() -> None:
    with pytest.raises(KeyError):
        Refused("no_such_code", "x")
