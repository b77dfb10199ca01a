"""Decisions about failed events on a real PostgreSQL: once, in order, and when killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from onceflow_processor.failures import deciding
from onceflow_processor.failures.deciding import carry_out
from onceflow_processor.failures.filter import Filter
from onceflow_producer import failpoint
from onceflow_schemas.failure_decisions import Action, Verdict
from tests.processor.failures.conftest import ACCOUNT, SHOWN_TOPIC_ID, TOPIC, Desk
from tests.processor.failures.orders import blocked, decide, order, waiting


def test_a_retry_puts_the_event_back_in_front_of_its_key(desk: Desk) -> None:
    blocked(desk)
    assert decide(desk, "quarantine", "retry", "evt_25") == {"redrive": 1}
    assert desk.states() == {"evt_25": "parked", "evt_26": "parked", "evt_27": "parked"}
    assert desk.waiting("in_1") == ["evt_25", "evt_26", "evt_27"]
    assert desk.keys() == {"in_1": ("retry", "evt_25", True)}
    [row] = desk.rows("SELECT * FROM onceflow.quarantine")
    assert (row["decision"], row["decided_by"], row["reason"]) == ("retried", "ada@desk", "mended")
    [parked] = desk.rows("SELECT * FROM onceflow.parked WHERE event_id = 'evt_25'")
    assert (parked["value"], parked["type"], parked["attempts"]) == (row["value"], "invoice.paid", 0)
    [audit] = desk.rows("SELECT who, action, subject, before, after, reason FROM onceflow.audit")
    assert audit == {
        "who": "ada@desk",
        "action": "quarantine_retry",
        "subject": f"event {ACCOUNT}/test/evt_25",
        "before": {"state": "quarantined", "code": "handler_failed", "order_key": f"{ACCOUNT}/in_1", "decision": None},
        "after": {"becomes": "redrive"},
        "reason": "mended",
    }


def test_retrying_twice_is_retrying_once(desk: Desk) -> None:
    blocked(desk)
    decide(desk, "quarantine", "retry", "evt_25")
    before = desk.rows("SELECT * FROM onceflow.parked_key")
    assert decide(desk, "quarantine", "retry", "evt_25") == {"retried_already": 1}
    assert desk.rows("SELECT * FROM onceflow.parked_key") == before
    assert len(desk.audits()) == 1
    assert decide(desk, "quarantine", "skip", "evt_25") == {"retried_already": 1}


def test_what_failed_again_is_retried_again(desk: Desk) -> None:
    """Whatever its row remembers, the marker says that it is back."""
    blocked(desk)
    decide(desk, "quarantine", "retry", "evt_25")
    desk.run("DELETE FROM onceflow.parked WHERE event_id = 'evt_25'")
    desk.run("UPDATE onceflow.inbox SET state = 'quarantined' WHERE event_id = 'evt_25'")
    desk.run("UPDATE onceflow.parked_key SET reason = 'quarantined', due_at = 'infinity'")
    assert decide(desk, "quarantine", "retry") == {"redrive": 1}
    assert desk.waiting("in_1") == ["evt_25", "evt_26", "evt_27"]


def test_a_skip_lets_the_key_go_on(desk: Desk) -> None:
    blocked(desk)
    assert decide(desk, "quarantine", "skip", "evt_25") == {"skip_and_go_on": 1}
    assert desk.states()["evt_25"] == "quarantined"
    assert desk.decisions() == {25: "skipped"}
    assert desk.keys() == {"in_1": ("retry", "evt_26", True)}
    assert decide(desk, "quarantine", "skip", "evt_25") == {"skipped_already": 1}
    assert decide(desk, "quarantine", "retry", "evt_25") == {"skipped_already": 1}
    assert desk.audits() == [("quarantine_skip", f"event {ACCOUNT}/test/evt_25")]


def test_a_key_behind_which_nothing_waits_is_free_after_a_skip(desk: Desk) -> None:
    desk.quarantined("evt_1", offset=1, key="in_1")
    decide(desk, "quarantine", "skip", "evt_1")
    assert desk.keys() == {}


def test_what_was_skipped_by_mistake_runs_after_all(desk: Desk) -> None:
    desk.quarantined("evt_1", offset=1, key="in_1")
    decide(desk, "quarantine", "skip", "evt_1")
    assert decide(desk, "quarantine", "retry", "evt_1", again=True) == {"redrive": 1}
    assert (desk.keys(), desk.waiting("in_1")) == ({"in_1": ("retry", "evt_1", True)}, ["evt_1"])
    assert [action for action, _ in desk.audits()] == ["quarantine_skip", "quarantine_retry"]


def test_events_that_blocked_nothing_come_back_in_the_order_of_the_log(desk: Desk, monkeypatch: Any) -> None:
    """Also over several pages, and among others that wait already."""
    monkeypatch.setattr(deciding, "PAGE_EVENTS", 2)
    for offset in (1, 3, 5, 7):
        desk.quarantined(f"evt_{offset}", offset=offset, code="bad_amount", handler=None)
    desk.key("in_1", "retry", "evt_4", due="2099-01-01Z")
    desk.parked("evt_4", key="in_1", offset=4, failed=True)
    desk.parked("evt_6", key="in_1", offset=6)
    assert decide(desk, "quarantine", "retry") == {"redrive": 4}
    assert desk.waiting("in_1") == ["evt_1", "evt_3", "evt_4", "evt_5", "evt_6", "evt_7"]
    assert desk.keys() == {"in_1": ("retry", "evt_1", True)}


def test_an_event_that_comes_between_those_in_hand_is_not_overtaken_by_them(desk: Desk) -> None:
    """The head stays, but whoever has it in hand together with a later event must not write that one."""
    desk.key("in_1", "retry", "evt_1", due="2026-01-01Z")
    desk.parked("evt_1", key="in_1", offset=1)
    desk.parked("evt_6", key="in_1", offset=6)
    desk.quarantined("evt_3", offset=3, code="bad_amount", handler=None)
    desk.run("UPDATE onceflow.parked_key SET lease_owner = 'p', lease_until = now() + interval '1 minute', fence = 7")
    assert decide(desk, "quarantine", "retry") == {"redrive": 1}
    assert desk.waiting("in_1") == ["evt_1", "evt_3", "evt_6"]
    assert desk.keys() == {"in_1": ("retry", "evt_1", True)}
    assert desk.rows("SELECT fence, lease_owner FROM onceflow.parked_key") == [{"fence": 8, "lease_owner": None}]


def test_a_key_that_waits_for_another_decision_goes_on_waiting(desk: Desk) -> None:
    blocked(desk)
    desk.quarantined("evt_24", offset=24, code="bad_amount", handler=None)
    assert decide(desk, "quarantine", "retry", "evt_24") == {"redrive": 1}
    assert desk.keys() == {"in_1": ("quarantined", "evt_25", False)}
    decide(desk, "quarantine", "skip", "evt_25")
    assert desk.keys() == {"in_1": ("retry", "evt_24", True)}


def test_another_record_of_an_event_is_never_run_in_its_place(desk: Desk) -> None:
    desk.quarantined("evt_1", offset=1, code="content_conflict", handler=None)
    desk.run('UPDATE onceflow.inbox SET "offset" = 0')
    assert decide(desk, "quarantine", "retry") == {"other_record": 1}
    desk.run("UPDATE onceflow.inbox SET state = 'processed'")
    assert decide(desk, "quarantine", "retry") == {"settled_otherwise": 1}
    assert desk.audits() == []
    assert decide(desk, "quarantine", "skip") == {"skip": 1}
    assert decide(desk, "quarantine", "skip") == {}, "a filter means what is undecided"
    assert desk.states() == {"evt_1": "processed"}


def test_a_record_without_identity_is_judged_again_once(desk: Desk) -> None:
    desk.stranger(7)
    name = f"{SHOWN_TOPIC_ID}/0/7"
    assert decide(desk, "quarantine", "retry", name) == {"admit_again": 1}
    [row] = desk.rows("SELECT retry_asked_at, retry_asked_by, decision, reason FROM onceflow.quarantine")
    assert (row["retry_asked_by"], row["decision"], row["reason"]) == ("ada@desk", None, "mended")
    assert decide(desk, "quarantine", "retry", f"{TOPIC}/0/7") == {"asked_already": 1}
    assert desk.rows("SELECT retry_asked_at FROM onceflow.quarantine")[0]["retry_asked_at"] == row["retry_asked_at"]
    assert decide(desk, "quarantine", "skip", name) == {"skip": 1}
    [row] = desk.rows("SELECT retry_asked_at, decision FROM onceflow.quarantine")
    assert (row["retry_asked_at"], row["decision"]) == (None, "skipped")
    assert decide(desk, "quarantine", "retry", name) == {"skipped_already": 1}
    assert decide(desk, "quarantine", "retry", name, again=True) == {"admit_again": 1}
    assert [action for action, _ in desk.audits()] == ["quarantine_retry", "quarantine_skip", "quarantine_retry"]


def test_an_event_that_the_settings_refuse_is_retried_when_they_do_not_any_more(desk: Desk) -> None:
    """A redrive asks no setting: an event beyond the horizon would have its effect a second time."""
    for offset, code in enumerate(("too_old", "other_mode", "unknown_account")):
        desk.quarantined(f"evt_{offset}", offset=offset, code=code, handler=None)
    assert decide(desk, "quarantine", "retry") == {"refused_by_settings": 3}
    desk.run(
        "INSERT INTO onceflow.deployment (id, accounts, mode, system_id, timeline) VALUES ('d', %s, 'test', 's', 1)",
        [ACCOUNT],
    )
    desk.run("UPDATE onceflow.inbox SET received_at = now() - interval '36 days' WHERE event_id <> 'evt_2'")
    assert decide(desk, "quarantine", "retry") == {"refused_by_settings": 2, "redrive": 1}
    assert desk.states() == {"evt_0": "quarantined", "evt_1": "quarantined", "evt_2": "parked"}
    desk.run("UPDATE onceflow.deployment SET mode = 'live'")
    desk.run("UPDATE onceflow.inbox SET received_at = now()")
    assert decide(desk, "quarantine", "retry") == {"refused_by_settings": 2}


def test_a_retry_makes_a_parked_head_due(desk: Desk) -> None:
    waiting(desk)
    assert decide(desk, "parked", "retry") == {"try_now": 1, "behind_its_head": 2}
    assert desk.keys() == {"in_1": ("retry", "evt_1", True)}
    assert decide(desk, "parked", "retry", "evt_1") == {"due_already": 1}
    assert desk.audits() == [("parked_retry", f"event {ACCOUNT}/test/evt_1")]
    [row] = desk.rows(
        "SELECT next_attempt_at <= clock_timestamp() AS due FROM onceflow.parked WHERE event_id = 'evt_1'"
    )
    assert row["due"]


def test_a_retry_of_what_waits_for_something_else(desk: Desk) -> None:
    blocked(desk)
    desk.key("in_2", "reading", "evt_1")
    desk.parked("evt_1", key="in_2", offset=1)
    keys = desk.keys()
    assert decide(desk, "parked", "retry") == {"head_quarantined": 2, "object_is_read": 1}
    assert (desk.keys(), desk.audits()) == (keys, [])


def test_a_parked_head_is_skipped_and_the_rest_goes_on(desk: Desk) -> None:
    waiting(desk)
    assert decide(desk, "parked", "skip", "evt_1") == {"skip_and_go_on": 1}
    assert desk.states() == {"evt_1": "quarantined", "evt_2": "parked", "evt_3": "parked"}
    assert desk.keys() == {"in_1": ("retry", "evt_2", True)}
    [row] = desk.rows("SELECT * FROM onceflow.quarantine")
    assert (row["code"], row["decision"], row["handler"], row["attempts"]) == ("skipped", "skipped", "bookkeeping", 1)
    assert (row["detail"], row["value"], row["type"]) == ("TimeoutError: slow", b'{"id": "evt"}', "invoice.paid")
    assert decide(desk, "parked", "skip", "evt_3") == {"skip": 1}
    assert desk.keys() == {"in_1": ("retry", "evt_2", True)}
    decide(desk, "parked", "skip")
    assert (desk.keys(), desk.waiting("in_1")) == ({}, [])
    assert desk.decisions() == {1: "skipped", 2: "skipped", 3: "skipped"}
    assert decide(desk, "quarantine", "retry", "evt_2", again=True) == {"redrive": 1}
    assert desk.waiting("in_1") == ["evt_2"]


def test_those_behind_a_quarantined_head_are_skipped_and_the_head_still_holds_its_key(desk: Desk) -> None:
    blocked(desk)
    assert decide(desk, "parked", "skip") == {"skip": 2}
    assert desk.keys() == {"in_1": ("quarantined", "evt_25", False)}


def test_a_record_that_was_quarantined_before_it_was_parked_has_one_row(desk: Desk) -> None:
    blocked(desk)
    decide(desk, "quarantine", "retry", "evt_25")
    assert decide(desk, "parked", "skip", "evt_25") == {"skip_and_go_on": 1}
    [row] = desk.rows("SELECT code, decision FROM onceflow.quarantine")
    assert row == {"code": "skipped", "decision": "skipped"}
    assert desk.keys() == {"in_1": ("retry", "evt_26", True)}


def test_a_number_at_most(desk: Desk, monkeypatch: Any) -> None:
    monkeypatch.setattr(deciding, "PAGE_EVENTS", 2)
    for offset in range(6):
        desk.stranger(offset)
    told: list[int] = []
    done = carry_out(
        desk.connection, order("quarantine", "skip", events_max=5), told=lambda done: told.append(done.events)
    )
    assert (done.events, done.pages, told) == (5, 3, [2, 4, 5])
    assert desk.decisions() == {0: None, **dict.fromkeys(range(1, 6), "skipped")}


def test_only_what_the_filter_means(desk: Desk) -> None:
    for offset in range(4):
        desk.stranger(offset, code="unauthenticated" if offset % 2 else "bad_key")
    assert decide(desk, "quarantine", "skip", wanted=Filter(code="' OR 1=1--")) == {}
    assert decide(desk, "quarantine", "skip", wanted=Filter(code="bad_key")) == {"skip": 2}
    assert desk.decisions() == {0: "skipped", 1: None, 2: "skipped", 3: None}


class Killed(BaseException):
    """What the test ends the command with."""


def killed_at(place: str, *, after: int) -> Callable[[str], None]:
    left = Counter({place: after})

    def hook(name: str) -> None:
        left[name] -= 1
        if name == place and left[name] < 0:
            raise Killed

    return hook


@pytest.mark.parametrize(("place", "decided"), [("decisions.between_pages", 4), ("decisions.before_commit", 2)])
@pytest.mark.parametrize("action", ["retry", "skip"])
def test_killed_between_pages_the_command_is_given_again(
    desk: Desk, monkeypatch: Any, place: str, decided: int, action: Action
) -> None:
    monkeypatch.setattr(deciding, "PAGE_EVENTS", 2)
    for offset in range(1, 8):
        desk.quarantined(f"evt_{offset}", offset=offset, code="bad_amount", handler=None)
    failpoint.install(killed_at(place, after=1))
    try:
        with psycopg.connect(desk.url) as connection, suppress(Killed):
            carry_out(connection, order("quarantine", action))
    finally:
        failpoint.install(None)
    assert len(desk.audits()) == decided == sum(decision is not None for decision in desk.decisions().values())
    decide(desk, "quarantine", action)
    assert len(desk.audits()) == 7
    if action == "retry":
        assert desk.waiting("in_1") == [f"evt_{offset}" for offset in range(1, 8)]
        assert desk.keys() == {"in_1": ("retry", "evt_1", True)}


def test_pages_of_a_thousand_end(desk: Desk) -> None:
    desk.run(
        'INSERT INTO onceflow.quarantine (topic_id, partition, "offset", topic, code, detail, headers)'
        " SELECT 't', n % 3, n, 't', 'bad_key', '', '[]' FROM generate_series(1, 1000) AS n",
    )  # fmt: skip
    done = carry_out(desk.connection, order("quarantine", "retry"))
    assert (done.verdicts, done.pages) == (Counter({Verdict.ADMIT_AGAIN: 1_000}), 5)


KILLED = """
import os, signal, sys
from onceflow.command_line import main
from onceflow_processor.failures import deciding
from onceflow_producer import failpoint

passed, at = [], sys.argv.pop(1)
deciding.PAGE_EVENTS = 2

def kill(place):
    passed.append(place)
    if passed.count(at) == 2:
        os.kill(os.getpid(), signal.SIGKILL)

failpoint.install(kill)
main()
"""


@pytest.mark.parametrize(("place", "decided"), [("decisions.between_pages", 4), ("decisions.before_commit", 2)])
def test_a_command_that_is_killed_with_9_is_given_again(desk: Desk, tmp_path: Path, place: str, decided: int) -> None:
    for offset in range(1, 8):
        desk.quarantined(f"evt_{offset}", offset=offset, code="bad_amount", handler=None)
    arguments = ["quarantine", "retry", "--code", "bad_amount", "--execute", "--reason", "mended"]
    environment = {**os.environ, "DATABASE_URL": desk.url, "ONCEFLOW_CONFIG": "/dev/null"}
    (tmp_path / "killed.py").write_text(KILLED)
    killed = subprocess.run(
        [sys.executable, tmp_path / "killed.py", place, *arguments], env=environment, timeout=60, check=False
    )
    assert killed.returncode == -signal.SIGKILL
    assert len(desk.audits()) == decided == list(desk.states().values()).count("parked")
    again = subprocess.run([sys.executable, "-m", "onceflow", *arguments], env=environment, timeout=60, check=False)
    assert again.returncode == 0
    assert desk.waiting("in_1") == [f"evt_{offset}" for offset in range(1, 8)]
    assert (len(desk.audits()), desk.keys()) == (7, {"in_1": ("retry", "evt_1", True)})
