"""Settling: state, callback and outcomes together or not at all, whatever a callback does."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from onceflow_processor.handlers import Handlers
from onceflow_processor.operations.effect import Effect, Settled
from onceflow_processor.tx import Tx
from onceflow_schemas.operations.calls import StripeCall
from onceflow_schemas.told_facts import fact_digest, told_digests
from tests.processor.operations.conftest import Desk, Scripted
from tests.processor.processor_process import wait_until

Told = Callable[[Settled, Tx], None]


def registry(told: Told) -> tuple[Handlers, Effect]:
    handlers = Handlers()

    @handlers.effect("refund")
    def give_back(charge: str, amount: int) -> StripeCall:
        return StripeCall.post("/v1/refunds", charge=charge, amount=amount)

    give_back.settled(told)
    handlers.check()
    return handlers, give_back


def ask_with(desk: Desk, told: Told, *subjects: str) -> Handlers:
    """Ask for operations whose end is told like this."""
    handlers, effect = registry(told)
    desk.handlers, desk.refunds = handlers, effect
    desk.ask(*subjects)
    return handlers


def note(settled: Settled, tx: Tx) -> None:
    tx.execute("INSERT INTO public.told VALUES (%s, %s)", [settled.subject, settled.state])
    tx.outcome(f"refund.{settled.state}", key=settled.subject, data={"id": settled.id})


def test_a_callback_that_fails_keeps_what_was_proved_and_nothing_is_called_again(desk: Desk) -> None:
    broken = {"in_2"}

    def told(settled: Settled, tx: Tx) -> None:
        note(settled, tx)
        if settled.subject in broken:
            raise ValueError("not today")

    ask_with(desk, told, *[f"in_{n}" for n in range(5)])
    sender = Scripted()
    with desk.working(sender) as operator:
        desk.wait_for(in_0="succeeded", in_1="succeeded", in_2="unknown", in_3="succeeded", in_4="succeeded")
        wait_until(lambda: operator.value("onceflow_operations_callback_failures_total", effect="refund") >= 2, "again")
        row = desk.operations()["in_2"]
        assert row["conclusion"]["proof"] == "done"
        assert row["last_error"] == "handler_failed: ValueError: not today"
        assert ("refund.succeeded", "in_2") not in desk.outcomes()
        broken.clear()
        desk.change("UPDATE onceflow.operation SET next_attempt_at = clock_timestamp() WHERE state = 'unknown'")
        desk.wait_for(in_2="succeeded")
    assert sorted(sender.subjects()) == [f"in_{n}" for n in range(5)]
    assert sender.looked == []
    row = desk.operations()["in_2"]
    assert (row["conclusion"], row["last_error"], row["told"]) == (None, None, ["succeeded"])
    assert row["external_id"] is not None
    assert sorted(desk.outcomes()) == [("refund.succeeded", f"in_{n}") for n in range(5)]
    assert len(desk.rows("SELECT * FROM public.told")) == 5
    evidence = desk.rows("SELECT evidence FROM onceflow.attempt")
    assert [one["evidence"] for one in evidence] == ["done"] * 5


def _commits(_settled: Settled, tx: Tx) -> None:
    tx.connection.commit()


def _rolls_back(_settled: Settled, tx: Tx) -> None:
    tx.execute("SELECT 1")
    tx.connection.rollback()


def _commits_and_goes_on(_settled: Settled, tx: Tx) -> None:
    tx.connection.commit()
    tx.execute("INSERT INTO public.told VALUES ('x', 'x')")


def _swallows(_settled: Settled, tx: Tx) -> None:
    with pytest.raises(Exception, match="no_such_table"):
        tx.execute("SELECT * FROM no_such_table")


def _asks_for_what_cannot_be(_settled: Settled, tx: Tx) -> None:
    tx.outcome("refund.done", key="", data={})


def _violates_at_commit(_settled: Settled, tx: Tx) -> None:
    tx.execute("INSERT INTO public.child VALUES (1)")


def _commits_by_a_statement(_settled: Settled, tx: Tx) -> None:
    tx.execute("COMMIT")


def _closes(_settled: Settled, tx: Tx) -> None:
    tx.connection.close()


def _fails_in_many_lines(_settled: Settled, tx: Tx) -> None:
    tx.execute("SELECT 1 FROM no_such_table\nWHERE true")


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        (_commits, "handler_broke_transaction: the settled callback committed or rolled back the transaction"),
        (_rolls_back, "handler_broke_transaction: the settled callback committed or rolled back the transaction"),
        (_commits_by_a_statement, "handler_broke_transaction: the settled callback committed or rolled back the"),
        (_commits_and_goes_on, "handler_broke_transaction: the settled callback committed or rolled back the"),
        (_closes, "handler_broke_transaction: "),
        (_swallows, "handler_failed: the settled callback swallowed an SQL error, so its transaction is lost"),
        (_fails_in_many_lines, 'handler_failed: UndefinedTable: relation "no_such_table" does not exist'),
        (_asks_for_what_cannot_be, "outcome_refused: "),
        (_violates_at_commit, 'insert or update on table "child" violates foreign key constraint'),
    ],
    ids=lambda told: told.__name__.strip("_") if callable(told) else "",
)
def test_a_callback_that_misbehaves_costs_only_its_own_operation(desk: Desk, told: Told, reason: str) -> None:
    desk.change("CREATE TABLE public.parent (id int PRIMARY KEY)")
    desk.change("CREATE TABLE public.child (id int REFERENCES public.parent DEFERRABLE INITIALLY DEFERRED)")

    def either(settled: Settled, tx: Tx) -> None:
        if settled.subject == "bad":
            told(settled, tx)
        else:
            note(settled, tx)

    ask_with(desk, either, "in_1", "bad", "in_2")
    sender = Scripted()
    with desk.working(sender):
        desk.wait_for(in_1="succeeded", in_2="succeeded", bad="unknown")
        wait_until(lambda: desk.operations()["bad"]["conclusion"], "its proof is kept")
    error = desk.operations()["bad"]["last_error"]
    assert error.startswith(reason)
    assert len(error.splitlines()) == 1
    assert sorted(sender.subjects()) == ["bad", "in_1", "in_2"]
    assert sorted(desk.outcomes()) == [("refund.succeeded", "in_1"), ("refund.succeeded", "in_2")]
    assert sorted(row["operation"] for row in desk.rows("SELECT * FROM public.told")) == ["in_1", "in_2"]
    assert desk.rows("SELECT * FROM onceflow.batch_guard") == []


def test_what_a_callback_sets_does_not_reach_the_next_one(desk: Desk) -> None:
    seen: list[str] = []

    def told(settled: Settled, tx: Tx) -> None:
        row = tx.fetch_one("SELECT current_setting('search_path') AS path")
        assert row is not None
        seen.append(row["path"])
        tx.execute("SET search_path TO pg_catalog")
        del settled

    ask_with(desk, told, "in_1", "in_2", "in_3")
    with desk.working(Scripted()):
        desk.wait_for(in_1="succeeded", in_2="succeeded", in_3="succeeded")
    assert set(seen) == {'"$user", public'}


def test_a_callback_asks_for_facts_and_operations(desk: Desk) -> None:
    handlers = Handlers()
    firsts: list[str] = []

    @handlers.effect("refund")
    def give_back(charge: str, amount: int) -> StripeCall:
        return StripeCall.post("/v1/refunds", charge=charge, amount=amount)

    @handlers.effect("fee")
    def fee(charge: str) -> StripeCall:
        return StripeCall.post("/v1/refunds", charge=charge, amount=1)

    @give_back.settled
    def told(settled: Settled, tx: Tx) -> None:
        if tx.once("fee", settled.args["charge"]):
            firsts.append(settled.subject)
            tx.request(fee, subject=settled.subject, charge=settled.args["charge"])

    desk.handlers, desk.refunds = handlers, give_back
    desk.ask("in_1", "in_2")
    sender = Scripted()
    with desk.working(sender):
        wait_until(lambda: len(desk.rows("SELECT FROM onceflow.operation WHERE state = 'succeeded'")) == 3, "three")
    [first] = set(firsts)
    fees = desk.rows("SELECT subject, account, cause FROM onceflow.operation WHERE effect = 'fee'")
    assert [(row["subject"], row["account"], row["cause"]) for row in fees] == [
        (first, "acct_test", f"operation:{desk.rows(_ID, first)[0]['id']}/succeeded")
    ]
    [fact] = desk.rows("SELECT namespace, key FROM onceflow.fact")
    assert fact == {"namespace": "fee", "key": "ch_1"}


_ID = "SELECT id FROM onceflow.operation WHERE effect = 'refund' AND subject = %s"


def test_a_fact_that_was_taken_meanwhile_is_looked_up(desk: Desk) -> None:
    answers: list[bool] = []

    def told(settled: Settled, tx: Tx) -> None:
        answers.append(tx.once("fee", "ch_1"))
        note(settled, tx)

    desk.change("INSERT INTO onceflow.fact (namespace, key, cause) VALUES ('fee', 'ch_1', 'app:test')")
    ask_with(desk, told, "in_1")
    with desk.working(Scripted()):
        desk.wait_for(in_1="succeeded")
    assert answers == [True, False]
    assert desk.outcomes() == [("refund.succeeded", "in_1")]


def test_the_outcomes_of_a_callback_tell_what_it_claimed(desk: Desk) -> None:
    def told(settled: Settled, tx: Tx) -> None:
        assert tx.once("fee", settled.subject)
        note(settled, tx)

    ask_with(desk, told, "in_1", "in_2")
    with desk.working(Scripted()):
        desk.wait_for(in_1="succeeded", in_2="succeeded")
    rows = desk.rows("SELECT key, headers FROM onceflow.outcome ORDER BY key")
    assert [told_digests(row["headers"]["onceflow_facts"]) for row in rows] == [
        [fact_digest("fee", "in_1")],
        [fact_digest("fee", "in_2")],
    ]


def test_a_fact_of_the_topic_is_its_own_operations_alone(desk: Desk) -> None:
    """The outcome came back after a restore, and its operation is settled again; so is another one that tells the same fact."""
    answers: dict[str, list[bool]] = {}

    def told(settled: Settled, tx: Tx) -> None:
        answers.setdefault(settled.subject, []).append(tx.once("fee", "ch_1"))

    ask_with(desk, told, "in_1", "in_2")
    [row] = desk.rows(_ID, "in_2")
    cause = f"operation:{row['id']}/succeeded"
    desk.change("INSERT INTO onceflow.imported_fact VALUES (%s, %s)", fact_digest("fee", "ch_1"), cause)
    with desk.working(Scripted()):
        desk.wait_for(in_1="succeeded", in_2="succeeded")
    assert (answers["in_1"][-1], answers["in_2"][-1]) == (False, True)
    assert desk.rows("SELECT cause FROM onceflow.fact") == [{"cause": cause}]


def test_an_operation_that_conflicts_is_the_callbacks_error(desk: Desk) -> None:
    handlers = Handlers()
    seen: list[str] = []

    @handlers.effect("refund")
    def give_back(charge: str, amount: int) -> StripeCall:
        return StripeCall.post("/v1/refunds", charge=charge, amount=amount)

    @give_back.settled
    def told(settled: Settled, tx: Tx) -> None:
        if settled.subject == "in_1":
            try:
                tx.request(give_back, subject="known", charge="ch_1", amount=7)
            except Exception as error:
                seen.append(type(error).__name__)
                raise

    desk.handlers, desk.refunds = handlers, give_back
    desk.ask("known", "in_1")
    with desk.working(Scripted()):
        desk.wait_for(known="succeeded", in_1="unknown")
    assert set(seen) == {"OperationConflict"}
    assert "operation_conflict" in desk.operations()["in_1"]["last_error"]


@pytest.mark.parametrize("swallows", [False, True])
def test_callbacks_of_one_round_that_ask_for_the_same_are_a_conflict_of_the_later_one(
    desk: Desk,
    swallows: bool,  # noqa: FBT001
) -> None:
    handlers = Handlers()

    @handlers.effect("refund")
    def give_back(charge: str, amount: int) -> StripeCall:
        return StripeCall.post("/v1/refunds", charge=charge, amount=amount)

    @give_back.settled
    def told(settled: Settled, tx: Tx) -> None:
        if settled.subject == "fee":
            return
        try:
            tx.request(give_back, subject="fee", charge="ch_9", amount=int(settled.subject[-1]))
        except BaseException:
            if not swallows:
                raise

    desk.handlers, desk.refunds = handlers, give_back
    desk.ask("in_1", "in_2")
    sender = Scripted()
    sender.gate.clear()
    with desk.working(sender):
        wait_until(lambda: sender.on_its_way == 2, "both are on their way")
        sender.gate.set()
        wait_until(lambda: desk.states().get("fee") == "succeeded", "one of them has got what it asked for")
        if swallows:
            desk.wait_for(in_1="succeeded", in_2="succeeded", fee="succeeded")
        else:
            wait_until(lambda: sorted(desk.states().values()) == ["succeeded", "succeeded", "unknown"], "one is left")
            wait_until(lambda: any(row["conclusion"] for row in desk.operations().values()), "its proof is kept")
            [error] = [row["last_error"] for row in desk.operations().values() if row["conclusion"]]
            assert error.startswith("operation_conflict: ")


def test_what_a_callback_asks_for_goes_back_to_the_same_moment(desk: Desk) -> None:
    handlers = Handlers()

    @handlers.effect("refund")
    def give_back(charge: str, amount: int) -> StripeCall:
        return StripeCall.post("/v1/refunds", charge=charge, amount=amount)

    @give_back.settled
    def told(settled: Settled, tx: Tx) -> None:
        if settled.subject == "in_1":
            tx.request(give_back, subject="fee", charge="ch_9", amount=1)

    desk.handlers, desk.refunds = handlers, give_back
    desk.ask("in_1")
    desk.change("UPDATE onceflow.operation SET window_from = window_from - interval '2 hours'")
    with desk.working(Scripted()):
        wait_until(lambda: desk.states().get("fee") == "succeeded", "both are settled")
    [moments] = desk.rows("SELECT array_agg(DISTINCT window_from) AS all FROM onceflow.operation")
    assert len(moments["all"]) == 1


def test_outcomes_of_many_get_dense_sequences(desk: Desk) -> None:
    desk.ask(*[f"in_{n}" for n in range(60)])
    with desk.working(Scripted(latency_seconds=0.002)), desk.working(Scripted(latency_seconds=0.002)):
        wait_until(lambda: set(desk.states().values()) == {"succeeded"}, "all have succeeded")
    lanes = desk.rows("SELECT lane, array_agg(seq ORDER BY seq) AS seqs FROM onceflow.outcome GROUP BY lane")
    assert sum(len(row["seqs"]) for row in lanes) == 60
    assert all(row["seqs"] == list(range(1, len(row["seqs"]) + 1)) for row in lanes)
    heads = {row["lane"]: row["head_seq"] for row in desk.rows("SELECT lane, head_seq FROM onceflow.lane")}
    assert {row["lane"]: len(row["seqs"]) for row in lanes} == {lane: head for lane, head in heads.items() if head}


def test_a_closed_lane_keeps_the_proof_and_the_lanes_are_compared_again(desk: Desk) -> None:
    desk.change("UPDATE onceflow.lane SET state = 'behind'")
    desk.ask("in_1")
    sender = Scripted()
    with desk.working(sender) as operator:
        wait_until(lambda: desk.operations()["in_1"]["conclusion"], "its proof is kept")
        wait_until(lambda: operator.lane_checks, "the lanes were compared again")
        assert operator.value("onceflow_operations_trouble_total", kind="lane_closed") >= 1
        assert desk.outcomes() == []
        desk.change("UPDATE onceflow.lane SET state = 'ok'")
        desk.change("UPDATE onceflow.operation SET next_attempt_at = clock_timestamp()")
        desk.wait_for(in_1="succeeded")
    assert len(sender.sent) == 1
    assert desk.outcomes() == [("refund.succeeded", "in_1")]


def test_a_callback_that_costs_the_connection_again_and_again_is_its_own_doing(desk: Desk) -> None:
    def told(settled: Settled, tx: Tx) -> None:
        if settled.subject == "bad":
            tx.execute("SELECT pg_terminate_backend(pg_backend_pid())")
        note(settled, tx)

    ask_with(desk, told, "in_1", "bad")
    sender = Scripted()
    with desk.working(sender):
        desk.wait_for(in_1="succeeded")
        wait_until(lambda: desk.operations()["bad"]["conclusion"], "its proof is kept")
    assert sorted(sender.subjects()) == ["bad", "in_1"]


def test_callbacks_that_take_long_together_are_cut(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onceflow_processor.operations.settlement.ROUND_SECONDS_MAX", 0.05)

    def slow(settled: Settled, tx: Tx) -> None:
        tx.execute("SELECT pg_sleep(0.1)")
        note(settled, tx)

    ask_with(desk, slow, *[f"in_{n}" for n in range(5)])
    sender = Scripted()
    sender.gate.clear()
    with desk.working(sender):
        wait_until(lambda: sender.on_its_way == 5, "all are on their way")
        sender.gate.set()
        wait_until(lambda: set(desk.states().values()) == {"succeeded"}, "all have succeeded")
    transactions = desk.rows("SELECT DISTINCT xmin::text FROM public.told")
    assert len(transactions) >= 3
    assert len(desk.outcomes()) == 5
