"""Records that nobody vouched for, judged again by the rules of today because a person asks."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

import psycopg
import pytest

from onceflow import Handlers
from onceflow_processor.admission import Rules
from onceflow_processor.readmission import Readmission
from onceflow_schemas.attestation import AttestationKey
from tests.processor.conftest import RULES, TOPIC, Bench, event_body, record
from tests.processor.poison import Poison, key_rows, ledger, of_key, parked

MakeBench = Callable[[Handlers], Bench]
ANOTHER = replace(RULES, keys={"k1": AttestationKey("k1", b"another secret of thirty-two b..")})


@pytest.fixture(name="poison")
def handlers_with_poison() -> Poison:
    return Poison()


def keep(bench: Bench, *offsets: int, rules: Rules = ANOTHER) -> None:
    """Read records by rules that know another secret, so that they are kept without an identity."""
    bench.rules = rules
    bench.run([of_key(f"evt_{offset}", f"in_{offset}", offset) for offset in offsets])
    bench.rules = RULES


def ask(bench: Bench) -> None:
    with psycopg.connect(bench.url, autocommit=True) as other:
        other.execute(
            "UPDATE onceflow.quarantine SET retry_asked_at = clock_timestamp(), retry_asked_by = 'maria', reason = 'key added'"
        )


def judge_again(bench: Bench, rules: Rules = RULES, *, topics: tuple[str, ...] = (TOPIC,)) -> None:
    readmission = Readmission(rules=rules, topics=topics, handlers=bench.handlers, connection=lambda: bench.connection)
    readmission.turn()


def test_a_processor_that_does_not_read_the_topic_leaves_the_record_alone(bench: MakeBench, poison: Poison) -> None:
    """It would judge it by the rules of other records, and write its own verdict over the true one."""
    one = bench(poison.handlers)
    keep(one, 0)
    ask(one)
    before = one.rows("SELECT * FROM onceflow.quarantine")
    judge_again(one, topics=("another.topic",))
    assert one.rows("SELECT * FROM onceflow.quarantine") == before
    judge_again(one, topics=("another.topic", TOPIC))
    assert one.states() == {"evt_0": "parked"}


def test_what_is_vouched_for_now_is_parked_and_runs_once(bench: MakeBench, poison: Poison) -> None:
    one = bench(poison.handlers)
    keep(one, 0, 1)
    assert set(one.quarantine().values()) == {"unauthenticated"}
    assert one.states() == {}
    judge_again(one)
    assert one.states() == {}, "nobody asked"
    ask(one)
    judge_again(one)
    assert one.states() == {"evt_0": "parked", "evt_1": "parked"}
    rows = one.rows("SELECT event_id, type, decision, decided_by, retry_asked_at FROM onceflow.quarantine ORDER BY 1")
    assert [tuple(row.values()) for row in rows] == [
        (f"evt_{n}", "invoice.paid", "retried", "maria", None) for n in (0, 1)
    ]
    one.redrive(10)
    assert sorted(ledger(one)) == ["evt_0", "evt_1"]
    assert (parked(one), key_rows(one)) == ([], [])
    assert set(one.states().values()) == {"processed"}


def test_what_is_still_nobodys_stays_with_the_reason_of_today(bench: MakeBench, poison: Poison) -> None:
    one = bench(poison.handlers)
    keep(one, 0)
    ask(one)
    judge_again(one, replace(RULES, keys={}))
    assert one.quarantine() == {0: "unknown_key_id"}
    assert one.states() == {}
    [row] = one.rows("SELECT decision, retry_asked_at FROM onceflow.quarantine")
    assert row == {"decision": None, "retry_asked_at": None}


def test_an_event_that_came_by_another_record_meanwhile_is_a_duplicate(bench: MakeBench, poison: Poison) -> None:
    one = bench(poison.handlers)
    keep(one, 0)
    one.run([of_key("evt_0", "in_0", 1)])
    ask(one)
    judge_again(one)
    assert one.states() == {"evt_0": "processed"}
    assert parked(one) == []
    assert one.rows("SELECT decision FROM onceflow.quarantine") == [{"decision": "retried"}]


def test_an_event_that_is_in_quarantine_by_another_record_stays_with_a_person(bench: MakeBench, poison: Poison) -> None:
    one = bench(poison.handlers)
    keep(one, 0)
    poison.raises["evt_0"] = LookupError("no such customer")
    one.run([of_key("evt_0", "in_0", 1)])
    one.change(
        "UPDATE onceflow.quarantine SET retry_asked_at = clock_timestamp(), retry_asked_by = 'maria' WHERE \"offset\" = 0"
    )
    judge_again(one)
    rows = one.rows(
        'SELECT "offset", event_id, code, decision, retry_asked_at FROM onceflow.quarantine ORDER BY "offset"'
    )
    assert [tuple(row.values()) for row in rows] == [
        (0, "evt_0", "event_quarantined", None, None),
        (1, "evt_0", "handler_failed", None, None),
    ]
    assert one.states() == {"evt_0": "quarantined"}


def test_a_record_that_contradicts_the_one_that_counted_is_told_and_not_dropped(
    bench: MakeBench, poison: Poison
) -> None:
    one = bench(poison.handlers)
    keep(one, 0)
    body = event_body("evt_0", "invoice.paid", {"id": "in_0", "object": "invoice", "amount_paid": 2})
    one.run([record(body, 1)])
    ask(one)
    judge_again(one)
    [row] = one.rows("SELECT event_id, code, decision, retry_asked_at FROM onceflow.quarantine")
    assert row == {"event_id": "evt_0", "code": "content_conflict", "decision": None, "retry_asked_at": None}
    assert ledger(one) == ["evt_0"]


def test_a_copy_under_another_key_never_takes_the_marker_of_the_real_event(bench: MakeBench, poison: Poison) -> None:
    one = bench(poison.handlers)
    copy = of_key("evt_0", "in_0", 0)
    copy.key = b"acct_test/in_other"
    one.run([copy])
    ask(one)
    judge_again(one)
    assert one.quarantine() == {0: "bad_key"}
    assert one.states() == {}


def test_two_processors_judge_a_record_once(bench: MakeBench, poison: Poison) -> None:
    one, two = bench(poison.handlers), bench(poison.handlers)
    keep(one, *range(10))
    ask(one)
    threads = [threading.Thread(target=judge_again, args=(each,)) for each in (one, two)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    one.redrive(10)
    assert sorted(ledger(one)) == sorted(f"evt_{n}" for n in range(10))
    assert len(one.outcomes()) == 10


def test_what_was_admitted_again_and_fails_has_its_place_among_those_with_identity(
    bench: MakeBench, poison: Poison
) -> None:
    one = bench(poison.handlers)
    keep(one, 0)
    ask(one)
    judge_again(one)
    poison.raises["evt_0"] = LookupError("no such customer")
    # What became of its first dead letter says nothing of the next one.
    one.change(
        "UPDATE onceflow.quarantine SET dead_lettered_at = clock_timestamp(), dead_letter_code = 'dead_letter_refused'"
    )
    one.redrive(10)
    [row] = one.rows("SELECT event_id, code, decision, order_key FROM onceflow.quarantine")
    assert row == {"event_id": "evt_0", "code": "handler_failed", "decision": None, "order_key": "acct_test/in_0"}
    assert one.rows("SELECT dead_lettered_at, dead_letter_code FROM onceflow.quarantine") == [
        {"dead_lettered_at": None, "dead_letter_code": None}
    ]
    assert one.states() == {"evt_0": "quarantined"}
