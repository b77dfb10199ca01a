"""The columns of the workers' statements."""

from __future__ import annotations

from onceflow_processor.operations.job import Finished, Job, Purpose
from onceflow_processor.operations.ledger_columns import attempt_columns, made_columns, write_columns
from onceflow_processor.operations.rows import Write
from onceflow_schemas.operations.evidence import Evidence, Proof
from onceflow_schemas.operations.operation import State
from tests.processor.operations.values import ID, NOW, claimed


def test_a_row_that_is_let_go_and_one_that_is_kept() -> None:
    kept = Write.of(claimed(state=State.SENDING, told=("succeeded",), surplus=("pi_2", "pi_3")), keep_lease=True)
    free = Write.of(claimed(look_at="re_2"), next_attempt_at=NOW)
    columns = write_columns([kept, free])
    assert columns["states"] == ["sending", "requested"]
    assert columns["keep_leases"] == [True, False]
    assert columns["next_attempt_ats"] == [None, NOW]
    assert columns["tolds"] == ["succeeded", ""]
    assert columns["surpluses"] == ["pi_2,pi_3", ""]
    assert columns["look_ats"] == [None, "re_2"]
    assert columns["fences"] == [3, 3]
    assert columns["expected"] == 2


def test_attempts_of_sends_only() -> None:
    lease = claimed()
    send = Job(purpose=Purpose.SEND, claimed=lease, step=lease.operation.present, attempt=2)
    close = Job(purpose=Purpose.CLOSE, claimed=lease, step=lease.operation.present, attempt=3, object_id="pi_2")
    look = Job(purpose=Purpose.LOOK_UP, claimed=lease, step=lease.operation.present)
    made = made_columns([send, close], owner="me")
    assert (made["ns"], made["steps"], made["operation_ids"]) == ([2, 3], [0, -1], [ID, ID])
    proved = Evidence(proof=Proof.UNKNOWN, detail="a\x00", http_status=500)
    settled = attempt_columns([Finished(send, proved), Finished(look, proved), Finished(close, None)])
    assert (settled["ns"], settled["evidences"], settled["http_statuses"]) == ([2], ["unknown"], [500])
    assert settled["details"] == ["a\N{REPLACEMENT CHARACTER}"]
