"""Differences as findings: kept, accepted, healed, and looked for by the reconciler."""

from __future__ import annotations

import psycopg
import pytest
import stripe

from onceflow_reconciler.verify.hours import extended
from onceflow_schemas.identity import operation_id
from onceflow_simulator import Simulator
from tests.processor.conftest import make_road as make_road  # noqa: PLC0414 - a fixture of this folder too
from tests.processor.processor_process import MakeRoad
from tests.reconciler.verify.proving_road import ProvingRoad
from tests.reconciler.verify.test_proving import ONE_MARKER
from tests.reconciler.verify.test_proving import simulator as simulator  # noqa: PLC0414 - a fixture of this folder too

DAY = 24 * 3600
ACCOUNT = "acct_test"
OPERATION = operation_id(account=ACCOUNT, mode="test", effect="charge", subject="order_1", occurrence=1)
INSERT_OPERATION = (
    "INSERT INTO onceflow.operation (id, account, mode, effect, subject, occurrence, kind, args, args_sha256, cause, steps,"
    " api_version, window_from, requested_at, state, external_id, next_attempt_at, settled_at)"
    " SELECT '{id}', account, 'test', 'charge', 'order_1', 1, 'stripe', '{{\"amount\": 700}}', sha256('{{\"amount\": 700}}'), 'test',"
    " '[{{\"request\": {{\"path\": \"/v1/payment_intents\"}}}}]', 'x', t, t, 'succeeded', '{intent}', 'infinity', t"
    " FROM (SELECT account, clock_timestamp() - interval '1 hour' AS t FROM onceflow.inbox LIMIT 1) AS one"
)


@pytest.fixture
def proving(make_road: MakeRoad, simulator: Simulator) -> ProvingRoad:
    return ProvingRoad(make_road(), simulator).settled()


def states(proving: ProvingRoad) -> dict[str, str]:
    rows = proving.road.rows(
        "SELECT kind, state FROM onceflow.finding WHERE kind NOT LIKE 'endpoint%%' AND kind NOT IN ('clock_skew', 'missed_event')"
    )
    return {row["kind"]: row["state"] for row in rows}


def numbers(proving: ProvingRoad) -> list[str]:
    rows = proving.road.rows(
        "SELECT id FROM onceflow.finding WHERE state IN ('open', 'recurring') AND kind NOT LIKE 'endpoint%%' AND kind <> 'clock_skew'"
    )
    return [str(row["id"]) for row in rows]


def accept(proving: ProvingRoad) -> None:
    done = proving.run("findings", "accept", *numbers(proving), "--reason", "known", "--execute")
    assert done.returncode == 0, done.stderr


def test_a_difference_is_kept_accepted_and_explained_until_it_says_something_else(proving: ProvingRoad) -> None:
    with proving.altered(f"DELETE FROM onceflow.inbox WHERE event_id = {ONE_MARKER}"):
        told = proving.verify("--findings")
        assert told["unexplained"] > 0
        assert told["accepted"] == 0
        kinds = {one["kind"] for one in told["differences"]}
        assert "record_without_state" in kinds
        assert states(proving)["record_without_state"] == "open"
        page = proving.run("findings", "show", numbers(proving)[0]).stdout
        assert "first: onceflow " in page
        accept(proving)
        told = proving.verify("--findings")
        assert (told["unexplained"], told["accepted"]) == (0, len(kinds))
        assert {one["kind"] for one in told["accepted_differences"]} == kinds
        assert {one["reason"] for one in told["accepted_differences"]} == {"known"}
        done = proving.run("verify")
        assert done.stdout.splitlines()[-1].endswith(", 0 unexplained")
        said = done.stderr.splitlines()
        assert any(line.startswith("accepted: record_without_state ") and "known" in line for line in said), said
    # What is gone stays accepted; what is not accepted is healed, and comes again as recurring.
    wrong = "UPDATE onceflow.inbox SET body_sha256 = sha256('x') WHERE event_id = " + ONE_MARKER
    for expected in ("open", "recurring"):
        with proving.altered(wrong):
            assert proving.answer(keep_findings=True).unexplained_count == 1
            assert states(proving)["marker_differs"] == expected
        assert proving.answer(keep_findings=True).unexplained_count == 0
        assert states(proving)["marker_differs"] == "healed"


def test_the_reconciler_looks_at_the_ledgers_now_and_then(proving: ProvingRoad) -> None:
    assert states(proving) == {}, "the first look has found nothing"
    record = proving.first_record(proving.road.outcomes)
    proving.append(proving.road.outcomes, record)
    due = "UPDATE onceflow.reconcile_cursor SET done_until = done_until - interval '2 hours' WHERE source = 'ledgers'"
    with proving.altered(f"DELETE FROM onceflow.inbox WHERE event_id = {ONE_MARKER}"):
        assert proving.look()[1] == 0, "it is not time yet"
        proving.change(due)
        assert proving.look()[1] == 3
        found = states(proving)
        assert found == {"record_without_state": "open", "outcome_doubled": "open", "lane_gap": "open"}
    proving.change(due)
    assert proving.look()[1] == 2
    assert states(proving) == {**found, "record_without_state": "healed"}
    accept(proving)
    proving.change(due)
    assert proving.look()[1] == 0
    assert states(proving)["lane_gap"] == "accepted"
    # A ledger that is not there is told, and keeps nobody else waiting.
    proving.change(due)
    proving.environment["ONCEFLOW_TOPICS_OUTCOMES"] = "nobody-s.outcomes"
    assert proving.look()[0] > 0
    assert states(proving)["ledgers_not_readable"] == "open"


def test_objects_and_operations_are_compared_one_by_one(proving: ProvingRoad) -> None:
    client = stripe.StripeClient(proving.simulator.api_key, base_addresses={"api": proving.simulator.url})
    made = client.v1.payment_intents.create(
        {
            "amount": 700,
            "currency": "usd",
            "confirm": True,
            "payment_method": "pm_card_visa",
            "metadata": {"onceflow_operation": str(OPERATION)},
            "automatic_payment_methods": {"enabled": True, "allow_redirects": "never"},
        }
    )
    proving.simulator.advance(10)
    brought = proving.bring()
    # An event that is not yet due may ask for it, as after a restore.
    answer = proving.answer()
    [told] = answer.counts["stripe"].values()
    assert (answer.unexplained, told["objects_on_the_way"], answer.proof["objects"]) == ((), 1, {})
    proving.settle(brought)
    assert proving.kinds() == ["object_without_operation"]
    proving.change(INSERT_OPERATION.format(id=OPERATION, intent=made.id))
    answer = proving.answer()
    [told] = answer.counts["stripe"].values()
    assert (answer.unexplained, told["of_operations"]) == ((), 1)
    alterations = {
        "args = '{\"amount\": 701}'": "operation_disagrees",
        "external_id = 'pi_other'": "operation_doubled",
        "state = 'failed'": "operation_disagrees",
        f"id = '{OPERATION}'::uuid": None,
    }
    for change, kind in alterations.items():
        proving.change(f"UPDATE onceflow.operation SET {change}")
        assert set(proving.kinds()) >= ({kind} if kind else set()), change
        proving.change("DELETE FROM onceflow.operation")
        proving.change(INSERT_OPERATION.format(id=OPERATION, intent=made.id))
    # A row is held against itself, whatever Stripe says.
    for change in ("effect = 'x'", "occurrence = 2", "args = '{}'", "args_sha256 = 'x'", "order_key = 'x'"):
        proving.change(f"UPDATE onceflow.operation SET {change}")
        assert "operation_differs" in proving.kinds(with_stripe=False), change
        proving.change("DELETE FROM onceflow.operation")
        proving.change(INSERT_OPERATION.format(id=OPERATION, intent=made.id))
    judge_beside_a_former_proof(proving, alterations, intent=made.id)
    # Of another operation Stripe shows nothing.
    another = operation_id(account=ACCOUNT, mode="test", effect="charge", subject="order_2", occurrence=1)
    proving.change(INSERT_OPERATION.format(id=another, intent="pi_nobody").replace("order_1", "order_2"))
    assert proving.kinds() == ["object_not_listed"]


def judge_beside_a_former_proof(proving: ProvingRoad, alterations: dict[str, str | None], *, intent: str) -> None:
    """What it has compared is listed again only where an operation is another one now, or none."""
    restored = INSERT_OPERATION.format(id=OPERATION, intent=intent)
    proving.simulator.advance(2 * DAY)
    proving.bring()
    former = proving.answer().proof
    assert former["unexplained"] == 0
    proving.simulator.advance(2 * DAY)
    proving.bring()
    answer = proving.answer(former=former)
    [told] = answer.counts["stripe"].values()
    assert (answer.unexplained, told["objects"]) == ((), 0)
    [(account, said)] = former["objects"].items()
    assert answer.proof["objects"][account]["since"] == said["since"]
    assert answer.proof["objects"][account]["until"] >= said["until"] + 2 * DAY
    changes = {f"UPDATE onceflow.operation SET {change}": kind for change, kind in alterations.items()}
    for change, kind in (changes | {"DELETE FROM onceflow.operation": "object_without_operation"}).items():
        proving.change(change)
        # The last is held against both.
        for proof in (former, extended(former, answer.proof))[0 if change.startswith("DELETE") else 1 :]:
            found = {one for one, _, _ in proving.answer(former=proof).unexplained}
            assert (kind in found) if kind else not found, change
        restore(proving, restored)


def restore(proving: ProvingRoad, statement: str) -> None:
    """The operation as it was, to the moment in which it was requested."""
    with psycopg.connect(proving.road.database_url) as connection:
        connection.execute("DELETE FROM onceflow.operation")
        connection.execute(statement.encode())
