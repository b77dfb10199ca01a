"""Every combination of facts about a failed event ends in the verdict that the rules say."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest

from onceflow_schemas.failure_decisions import (
    ParkedFacts,
    QuarantinedFacts,
    Verdict,
    decide_parked,
    decide_quarantined,
)

STATES = (None, "processed", "ignored", "parked", "quarantined")


def quarantined(**more: Any) -> QuarantinedFacts:
    given = {
        "code": "handler_failed",
        "state": "quarantined",
        "is_its_record": True,
        "decision": None,
        "asked": False,
        "blocks": True,
        "settings_refuse": True,
    }
    return QuarantinedFacts(**{**given, **more})


def parked(**more: Any) -> ParkedFacts:
    given = {"state": "parked", "reason": "retry", "is_head": True, "in_hand": False, "is_due": False}
    return ParkedFacts(**{**given, **more})


@pytest.mark.parametrize(
    ("facts", "retry", "skip"),
    [
        (quarantined(), Verdict.REDRIVE, Verdict.SKIP_AND_GO_ON),
        (quarantined(blocks=False), Verdict.REDRIVE, Verdict.SKIP),
        (quarantined(decision="retried"), Verdict.REDRIVE, Verdict.SKIP_AND_GO_ON),
        (quarantined(is_its_record=False, blocks=False), Verdict.OTHER_RECORD, Verdict.SKIP),
        (quarantined(state="processed", blocks=False), Verdict.SETTLED_OTHERWISE, Verdict.SKIP),
        (
            quarantined(state="parked", decision="retried", blocks=False),
            Verdict.RETRIED_ALREADY,
            Verdict.RETRIED_ALREADY,
        ),
        (quarantined(state=None, decision="retried", blocks=False), Verdict.RETRIED_ALREADY, Verdict.RETRIED_ALREADY),
        (quarantined(decision="skipped", blocks=False), Verdict.SKIPPED_ALREADY, Verdict.SKIPPED_ALREADY),
        (quarantined(state=None, blocks=False), Verdict.ADMIT_AGAIN, Verdict.SKIP),
        (quarantined(state=None, asked=True, blocks=False), Verdict.ASKED_ALREADY, Verdict.SKIP),
        (quarantined(code="too_old", blocks=False), Verdict.REFUSED_BY_SETTINGS, Verdict.SKIP),
        (quarantined(code="other_mode", blocks=False, settings_refuse=False), Verdict.REDRIVE, Verdict.SKIP),
        (quarantined(code="unknown_account", is_its_record=False, blocks=False), Verdict.OTHER_RECORD, Verdict.SKIP),
        (quarantined(code="too_old", state="processed", blocks=False), Verdict.SETTLED_OTHERWISE, Verdict.SKIP),
    ],
)
def test_rows_of_quarantine(facts: QuarantinedFacts, retry: Verdict, skip: Verdict) -> None:
    assert decide_quarantined("retry", facts) is retry
    assert decide_quarantined("skip", facts) is skip


def test_what_was_skipped_is_retried_when_it_is_asked_for_by_name() -> None:
    skipped = quarantined(decision="skipped", blocks=False)
    assert decide_quarantined("retry", skipped, skipped_too=True) is Verdict.REDRIVE
    assert decide_quarantined("skip", skipped, skipped_too=True) is Verdict.SKIPPED_ALREADY


@pytest.mark.parametrize(
    ("facts", "retry", "skip"),
    [
        (parked(), Verdict.TRY_NOW, Verdict.SKIP_AND_GO_ON),
        (parked(is_due=True), Verdict.DUE_ALREADY, Verdict.SKIP_AND_GO_ON),
        (parked(in_hand=True), Verdict.IN_HAND, Verdict.SKIP_AND_GO_ON),
        (parked(in_hand=True, is_due=True), Verdict.IN_HAND, Verdict.SKIP_AND_GO_ON),
        (parked(is_head=False), Verdict.BEHIND_ITS_HEAD, Verdict.SKIP),
        (parked(is_head=False, reason="quarantined"), Verdict.HEAD_QUARANTINED, Verdict.SKIP),
        (parked(reason="reading"), Verdict.OBJECT_IS_READ, Verdict.SKIP_AND_GO_ON),
        (parked(state="processed"), Verdict.MOVED_ON, Verdict.MOVED_ON),
        (parked(state=None), Verdict.MOVED_ON, Verdict.MOVED_ON),
    ],
)
def test_parked_events(facts: ParkedFacts, retry: Verdict, skip: Verdict) -> None:
    assert decide_parked("retry", facts) is retry
    assert decide_parked("skip", facts) is skip


def test_nothing_runs_again_whose_marker_is_not_where_it_must_be() -> None:
    """Whatever else is known: only a quarantined event is redriven, and only a parked one tried or left out."""
    flags = (True, False)
    for state, its, asked, blocks in itertools.product(STATES, flags, flags, flags):
        for decision, again in itertools.product((None, "retried", "skipped"), flags):
            facts = quarantined(state=state, is_its_record=its, decision=decision, asked=asked, blocks=blocks)
            verdict = decide_quarantined("retry", facts, skipped_too=again)
            assert verdict is not Verdict.REDRIVE or (state == "quarantined" and its)
            assert verdict is not Verdict.ADMIT_AGAIN or state is None
            too_old = decide_quarantined("retry", replace(facts, code="too_old"), skipped_too=again)
            assert too_old is not Verdict.REDRIVE
    for state, reason, head, hand, due in itertools.product(
        STATES, ("retry", "quarantined", "reading"), flags, flags, flags
    ):
        parked_facts = ParkedFacts(state=state, reason=reason, is_head=head, in_hand=hand, is_due=due)
        for action in ("retry", "skip"):
            verdict = decide_parked(action, parked_facts)
            assert not verdict.acts or state == "parked"
            assert verdict is not Verdict.TRY_NOW or (reason == "retry" and head and not hand)


def test_every_verdict_says_in_words_whether_it_changes_anything() -> None:
    for verdict in Verdict:
        assert verdict.becomes.startswith("nothing") is not verdict.acts, verdict
