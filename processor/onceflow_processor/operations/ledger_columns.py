"""The parameters of the workers' set-based statements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from onceflow_processor.arrays import Bigints, Integers, Texts, Uuids
from onceflow_processor.operations.budget import Block
from onceflow_processor.operations.job import Finished, Job
from onceflow_processor.operations.plan import step_index
from onceflow_processor.operations.rows import Write, json_text, plain
from onceflow_schemas.operations.evidence import Evidence, evidence_json


def write_columns(writes: Sequence[Write]) -> dict[str, Any]:
    """Return the parameters of the statement ``operations_write``."""
    operations = [write.operation for write in writes]
    return {
        "ids": Uuids(one.id for one in operations),
        "fences": Bigints(one.fence for one in operations),
        "states": Texts(one.state for one in operations),
        "steps": Integers(one.step for one in operations),
        "external_ids": Texts(plain(one.external_id) for one in operations),
        "tries": Integers(one.tries for one in operations),
        "next_attempt_ats": [write.next_attempt_at for write in writes],
        "keep_leases": [write.keep_lease for write in writes],
        "looked_up_ats": [one.looked_up_at for one in operations],
        "action_untils": [one.action_until for one in operations],
        "conclusions": Texts(json_text(one.conclusion) for one in operations),
        "look_askeds": [one.look_asked for one in operations],
        "look_ats": Texts(write.look_at for write in writes),
        "surpluses": Texts(",".join(write.surplus) for write in writes),
        "tolds": Texts(",".join(one.told) for one in operations),
        "last_errors": Texts(plain(one.last_error) for one in operations),
        "results": Texts(json_text(one.result) for one in operations),
        "expected": len(operations),
    }


def made_columns(jobs: Sequence[Job], *, owner: str) -> dict[str, Any]:
    """Return the parameters of the statement ``attempts_add``."""
    return {
        "operation_ids": Uuids(job.operation.id for job in jobs),
        "ns": Integers(job.attempt for job in jobs),
        "steps": Integers(step_index(job) for job in jobs),
        "names": Texts(job.step.name for job in jobs),
        "fences": Bigints(job.operation.fence for job in jobs),
        "owner": owner,
    }


def attempt_columns(finished: Sequence[Finished]) -> dict[str, Any]:
    """Return the parameters of the statement ``attempts_settle``."""
    proved = [(one.job, one.evidence) for one in finished if one.job.attempt and one.evidence is not None]
    return {
        "operation_ids": Uuids(job.operation.id for job, _ in proved),
        "ns": Integers(job.attempt for job, _ in proved),
        "evidences": Texts(evidence.proof for _, evidence in proved),
        "details": Texts(plain(evidence.detail) for _, evidence in proved),
        "http_statuses": [evidence.http_status for _, evidence in proved],
        "request_ids": Texts(plain(evidence.request_id) for _, evidence in proved),
    }


def review_columns(reviews: Sequence[tuple[UUID, tuple[str, str], Evidence | None]]) -> dict[str, Any]:
    """Return the parameters of the statement ``reviews_open``: operation, (code, detail), and what was found."""
    return {
        "operation_ids": Uuids(operation_id for operation_id, _, _ in reviews),
        "codes": Texts(code for _, (code, _), _ in reviews),
        "details": Texts(plain(detail) for _, (_, detail), _ in reviews),
        "evidences": Texts(json_text({} if found is None else evidence_json(found)) for _, _, found in reviews),
    }


def block_columns(blocks: Sequence[Block], *, mode: str) -> dict[str, Any]:
    """Return the parameters of the statement ``budget_block``."""
    return {
        "accounts": Texts(block.account for block in blocks),
        "seconds": [block.seconds for block in blocks],
        "reasons": Texts(plain(block.reason) for block in blocks),
        "refusals": Integers(block.refusals for block in blocks),
        "mode": mode,
    }
