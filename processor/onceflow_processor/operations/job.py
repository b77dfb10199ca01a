"""A call that is to be made, and what came of it: what the ledger thread and the callers hand each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any

from onceflow_processor.operations.rows import Claimed
from onceflow_schemas.operations.evidence import Evidence
from onceflow_schemas.operations.operation import Operation, Step

SURPLUS_STEP = -1
"""Stands in ``attempt.step`` for the cancel of a surplus intent, which is no step of its operation."""


class Purpose(Enum):
    """What a job is for."""

    SEND = "send"
    LOOK_UP = "look_up"
    CLOSE = "close"
    """The cancel of one surplus intent."""
    SETTLE = "settle"
    """No call: the evidence is there already."""


@dataclass(slots=True, kw_only=True, eq=False)
class Job:
    """What is done next about one leased operation.  The ledger's thread may change the last three.

    Attributes:
        claimed: the operation as its row stands while the job is in hand.
        step: what is to be sent or looked up.
        attempt: number of the attempt, committed before a send; 0 for what is none.
        send_before: the safe window's end where the send relies on it; None where it does not.
        how: how to look, of a look-up.
        object_id: the object to look at or to cancel, where it is another than the stored one.
        checked_at: when, on this host's clock, the database was asked last whether the call may be made.
        lost: somebody else has the operation now.
        probe: the one call that finds out whether the account's refused key works again.
    """

    purpose: Purpose
    claimed: Claimed
    step: Step
    attempt: int = 0
    send_before: datetime | None = None
    how: Mapping[str, Any] | None = None
    object_id: str | None = None
    checked_at: float = float("-inf")
    lost: bool = False
    probe: bool = False

    @property
    def operation(self) -> Operation:
        """The operation as its row stands."""
        return self.claimed.operation


@dataclass(frozen=True, slots=True)
class Finished:
    """A job and what it proved; without evidence the call was not made, because its check was too old.

    ``seconds`` is how long its call took; None without a call.
    """

    job: Job
    evidence: Evidence | None
    seconds: float | None = None
