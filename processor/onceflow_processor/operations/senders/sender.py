"""What every sender can do.

Rule: whatever the other side does (no answer, half an answer, a wrong one) comes back as evidence; only a bug raises.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from onceflow_schemas.operations.evidence import Evidence
from onceflow_schemas.operations.operation import Operation, Step


class Sender(Protocol):
    """One kind of call (``Step.kind``).  An object belongs to the event loop that it is first used in.

    A cancelled call breaks its connection off and raises ``CancelledError``, as everything in asyncio does; what became of
    it is unknown, and the attempt that the ledger has committed says so.
    """

    @property
    def seconds_max(self) -> float:
        """The longest that one ``send`` or one ``look_up`` takes; a lease must outlast it."""

    async def send(self, step: Step, operation: Operation) -> Evidence:
        """Make the call once."""

    async def look_up(self, step: Step, operation: Operation, *, how: Mapping[str, Any] | None = None) -> Evidence:
        """Find out by reading what became of the call: ``how`` as ``decide.LookUp`` says it, or as the step has it frozen."""

    async def close(self) -> None:
        """Let go of connections.  Nothing is on its way any more when this is called."""
