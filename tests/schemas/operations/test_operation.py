"""The table against the types, evidence in storage, where to look, and the limits' promise."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any
from uuid import UUID

import orjson
import pytest

from onceflow_schemas.operations.evidence import Evidence, Proof, evidence_from, evidence_json
from onceflow_schemas.operations.limits import LIMITS, pause
from onceflow_schemas.operations.lookup import how_to_look
from onceflow_schemas.operations.operation import SETTLED, Operation, Policy, State
from onceflow_schemas.sql import migrations
from tests.schemas.operations.samples import CHARGE, MAIL, REFUND, http, operation

TABLE = next(each for each in migrations() if each.name == "operations").up


def quoted(text: str) -> list[str]:
    return re.findall(r"'([a-z_]+)'", text)


def test_the_check_of_the_column_is_the_list_of_states() -> None:
    [check] = re.findall(r"state text NOT NULL DEFAULT 'requested' CHECK \(state IN\s*\((.*?)\)\)", TABLE, re.DOTALL)
    assert sorted(quoted(check)) == sorted(State)


def test_the_settled_states_of_the_table_are_ours() -> None:
    checks = re.findall(r"state (?:NOT )?IN \('succeeded'[^)]*\)", TABLE)
    assert len(checks) >= 3
    assert all(set(quoted(check)) == SETTLED for check in checks)


def test_every_field_of_an_operation_has_its_column_or_is_told_by_attempts_and_reviews() -> None:
    body = TABLE.split("CREATE TABLE onceflow.operation (")[1].split("\n);")[0]
    columns = set(re.findall(r"^    ([a-z_0-9]+) [a-z]", body, re.MULTILINE))
    derived = {"sent", "last_sent_at", "last_proof", "restored", "review_code"}
    assert set(Operation.__dataclass_fields__) - columns == derived


@pytest.mark.parametrize(
    "evidence",
    [
        Evidence(proof=Proof.UNKNOWN),
        Evidence(
            proof=Proof.DONE,
            from_lookup=True,
            replayed=True,
            external_id="re_1",
            status="succeeded",
            object={"id": "re_1", "amount": 0},
            code="c",
            detail="d",
            http_status=200,
            request_id="req_1",
            retry_after_seconds=1.5,
            surplus=("pi_2",),
        ),
    ],
)
def test_evidence_is_stored_and_read_as_it_was(evidence: Evidence) -> None:
    assert evidence_from(orjson.loads(orjson.dumps(evidence_json(evidence)))) == evidence


@pytest.mark.parametrize(
    ("made", "external_id", "how"),
    [
        (operation(REFUND), None, {"list": "/v1/refunds", "params": {"charge": "ch_1"}}),
        (operation(REFUND), "re_9", {"retrieve": "/v1/refunds/re_9"}),
        (operation(CHARGE, step="confirm"), None, None),
        (operation(CHARGE, step="confirm"), "pi_9", {"retrieve": "/v1/payment_intents/pi_9"}),
        (operation(MAIL), None, None),
    ],
)
def test_where_to_look(made: Operation, external_id: str | None, how: Any) -> None:
    assert how_to_look(made.present, external_id) == how


def test_another_kind_is_asked_at_its_own_address() -> None:
    made = operation(http(Policy.RECONCILE_FIRST, lookup=True))
    how = how_to_look(made.present, None)
    assert how is not None
    assert how["url"] == f"https://stock.example.com/taken/{made.id}"


def test_the_window_ends_long_before_a_key_is_forgotten() -> None:
    assert LIMITS.safe_window + timedelta(hours=3) < timedelta(hours=24)


def test_pauses_are_spread_by_operation_and_try() -> None:
    second, hour = timedelta(seconds=1), timedelta(hours=1)
    spread = {pause(second, hour, tries=1, operation_id=UUID(int=n * 7919 << 8)) for n in range(50)}
    assert len(spread) > 20
    assert pause(second, hour, tries=5, operation_id=UUID(int=7)) == pause(
        second, hour, tries=5, operation_id=UUID(int=7)
    )
    assert pause(second, hour, tries=0, operation_id=UUID(int=0)) == timedelta(seconds=0.75)
    assert pause(second, hour, tries=10_000, operation_id=UUID(int=2**128 - 1)) <= 1.25 * hour
