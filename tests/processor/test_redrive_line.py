"""Events that come along with the head of their key: one transaction, and what a failure or a death in it leaves."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from onceflow import Event, Handlers, RetryIn, Tx
from onceflow_processor.redrive import DEATHS_MAX, HEADS_MAX
from tests.processor.conftest import Bench
from tests.processor.poison import Poison, ask_retry, key_rows, ledger, of_key, parked

MakeBench = Callable[[Handlers], Bench]


@pytest.fixture(name="poison")
def handlers_with_poison() -> Poison:
    return Poison()


def park_behind(one: Bench, poison: Poison, count: int) -> None:
    """Let events of one key stand behind the first, which is mended then."""
    poison.raises["evt_0"] = RetryIn(0)
    one.run([of_key(f"evt_{n}", "in_1", n) for n in range(count)])
    del poison.raises["evt_0"]
    poison.calls.clear()


def tries(one: Bench) -> dict[str, tuple[int, int]]:
    """The tries of the parked events: from parking, and without an end."""
    rows = one.rows("SELECT event_id, attempts, open_tries FROM onceflow.parked")
    return {row["event_id"]: (row["attempts"], row["open_tries"]) for row in rows}


def test_one_transaction_is_bounded(bench: MakeBench, poison: Poison) -> None:
    one = bench(poison.handlers)
    park_behind(one, poison, 4 * HEADS_MAX)
    ends = one.redrive(20)
    assert max(end.counts[0].processed for end in ends) <= HEADS_MAX
    assert ledger(one) == [f"evt_{n}" for n in range(4 * HEADS_MAX)]
    assert (parked(one), key_rows(one)) == ([], [])


@pytest.mark.parametrize("error", [RetryIn(60), LookupError("bad")])
def test_those_before_one_that_fails_are_done_and_no_try_of_those_behind_counts(
    bench: MakeBench, poison: Poison, error: Exception
) -> None:
    """It is in the middle of those that came along."""
    one = bench(poison.handlers)
    park_behind(one, poison, 12)
    poison.raises["evt_5"] = error
    one.redrive(20)
    waits = isinstance(error, RetryIn)
    assert ledger(one) == [f"evt_{n}" for n in range(5)]
    assert one.states()["evt_5"] == ("parked" if waits else "quarantined")
    assert key_rows(one) == [("acct_test/in_1", "retry" if waits else "quarantined", "evt_5")]
    assert tries(one) == {f"evt_{n}": (0, 0) for n in range(6, 12)} | ({"evt_5": (1, 0)} if waits else {})
    assert "evt_6" not in poison.calls
    poison.raises.clear()
    if waits:
        one.make_due()
    else:
        [row] = one.rows("SELECT attempts FROM onceflow.quarantine")
        assert row["attempts"] == 1
        ask_retry(one, "evt_5")
    one.redrive(20)
    assert ledger(one) == [f"evt_{n}" for n in range(12)]
    assert len(one.outcomes()) == 12


def test_one_whose_effect_is_refused_stops_the_key_although_those_behind_are_in_hand(bench: MakeBench) -> None:
    """It is found by halving: those behind it are a part of their own, which the raised fence ends."""
    poison = Poison()
    one = bench(poison.handlers)

    @poison.handlers.on("invoice.paid", name="late")
    def fails_at_the_commit(event: Event, tx: Tx) -> None:
        tx.execute("INSERT INTO public.late (event_id) VALUES (%s)", [event.id])

    one.change("CREATE TABLE public.late (event_id text PRIMARY KEY)")
    park_behind(one, poison, 12)
    one.change(
        "ALTER TABLE public.late ADD CONSTRAINT refuses FOREIGN KEY (event_id) REFERENCES public.ledger (event_id)"
        " DEFERRABLE INITIALLY DEFERRED"
    )
    one.change(
        "CREATE FUNCTION public.forget() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN NEW.event_id := 'nobody'; RETURN NEW; END $$"
    )
    one.change(
        "CREATE TRIGGER forget BEFORE INSERT ON public.late FOR EACH ROW WHEN (NEW.event_id = 'evt_4')"
        " EXECUTE FUNCTION public.forget()"
    )
    one.redrive(20)
    assert ledger(one) == [f"evt_{n}" for n in range(4)]
    assert one.states()["evt_4"] == "quarantined"
    assert parked(one) == [f"evt_{n}" for n in range(5, 12)]
    one.change("DROP TRIGGER forget ON public.late")
    ask_retry(one, "evt_4")
    one.redrive(20)
    assert ledger(one) == [f"evt_{n}" for n in range(12)]


def test_those_in_whose_company_a_process_died_are_tried_alone(bench: MakeBench, poison: Poison) -> None:
    one = bench(poison.handlers)
    park_behind(one, poison, 6)
    one.change("UPDATE onceflow.parked SET attempts = 1, open_tries = 1 WHERE event_id IN ('evt_0', 'evt_1', 'evt_2')")
    one.change(f"UPDATE onceflow.parked SET open_tries = {DEATHS_MAX} WHERE event_id = 'evt_3'")
    ends = one.redrive(20)
    assert [end.counts[0].processed for end in ends] == [1, 1, 1, 0]
    assert one.quarantine() == {3: "process_killed"}
    assert parked(one) == ["evt_4", "evt_5"]


def test_a_lane_that_closes_keeps_the_rest_without_counting_a_try(bench: MakeBench, poison: Poison) -> None:
    one = bench(poison.handlers)
    park_behind(one, poison, 6)
    one.change("UPDATE onceflow.lane SET state = 'behind'")
    one.redrive(5)
    assert set(tries(one).values()) == {(0, 0)}
    one.change("UPDATE onceflow.lane SET state = 'ok'")
    one.make_due()
    one.redrive(20)
    assert ledger(one) == [f"evt_{n}" for n in range(6)]


def test_the_lease_stays_while_a_part_of_the_heads_is_still_in_hand(bench: MakeBench, poison: Poison) -> None:
    """Slow handlers cut the transaction; another process would only wait for the markers of the rest."""
    one, owners = bench(poison.handlers), list[str | None]()
    park_behind(one, poison, 6)

    @poison.handlers.on("invoice.paid", name="look")
    def look(_event: Event, _tx: Tx) -> None:
        owners.extend(row["lease_owner"] for row in one.rows("SELECT lease_owner FROM onceflow.parked_key"))

    one.batch_seconds_max = 0.0
    one.redrive(20)
    assert ledger(one) == [f"evt_{n}" for n in range(6)]
    assert len(owners) >= 6
    assert None not in owners
    assert key_rows(one) == []


def test_events_of_other_partitions_do_not_come_along(bench: MakeBench, poison: Poison) -> None:
    """Nor does one whose offset is smaller: what is done is told by position."""
    one = bench(poison.handlers)
    poison.raises["evt_0"] = RetryIn(0)
    one.run([of_key("evt_0", "in_1", 5), of_key("evt_1", "in_1", 6)])
    one.run([of_key("evt_2", "in_1", 3, partition=1), of_key("evt_3", "in_1", 7, partition=1)])
    one.run([of_key("evt_4", "in_1", 7)])
    poison.raises.clear()
    one.change("UPDATE onceflow.parked SET seq = -1 WHERE event_id = 'evt_4'")
    one.redrive(20)
    assert ledger(one) == ["evt_4", "evt_0", "evt_1", "evt_2", "evt_3"]
    assert (parked(one), key_rows(one)) == ([], [])
