"""The body of one request, read under a size limit, a deadline and a budget for all bodies together.

Rule: nothing is kept beyond the limit, however the body is announced, and nobody can hold a request open past the
deadline.  A sender that hangs up is no fault of ours and no alarm.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

from onceflow_producer.refusal import Refusal

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

BODY_IS_HERE = "onceflow_body_is_here"
"""In the ASGI scope's ``state``: the connection has the whole body already, so that nothing will be waited for."""

_NOTHING_TO_WAIT_FOR = contextlib.nullcontext()


@dataclass(frozen=True, slots=True)
class HungUp:
    """The sender closed the connection before its body was complete."""

    received_bytes: int


class BodyBudget:
    """How many bytes of bodies may be in memory at once, from their arrival to their answer.

    Without it a thousand senders of a megabyte each would cost a gigabyte.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self.held_bytes = 0

    def take(self, size: int) -> bool:
        """Reserve ``size`` bytes; False when they do not fit now."""
        if self.held_bytes + size > self._bytes_max:
            return False
        self.held_bytes += size
        return True

    def give_back(self, size: int) -> None:
        """Release what was taken."""
        self.held_bytes -= size


async def read_body(
    receive: Receive,
    *,
    declared_bytes: int | None,
    bytes_max: int,
    deadline: float,
    budget: BodyBudget,
    is_here: bool = False,
) -> bytes | Refusal | HungUp:
    """Read the whole body.

    Args:
        receive: the ASGI channel of this request.
        declared_bytes: Content-Length, None when there is none.
        bytes_max: a longer body is refused as soon as it is.
        deadline: time of the running loop by which the body must be complete.
        budget: holds the length of the returned body; the caller gives it back.  Nothing is held after a fault.
        is_here: the connection has all of it; then no timer is set, which cost a twentieth of a request.
    """
    chunks: list[bytes] = []
    size = 0
    fault: Refusal | HungUp | None = None
    try:
        async with _NOTHING_TO_WAIT_FOR if is_here else asyncio.timeout_at(deadline):
            more = True
            while more and fault is None:
                message = await receive()
                if message["type"] == "http.disconnect":
                    fault = HungUp(size)
                    break
                chunk = message.get("body", b"")
                more = message.get("more_body", False)
                if size + len(chunk) > bytes_max:
                    fault = Refusal("body_too_large", f"more than {bytes_max} bytes came")
                elif not budget.take(len(chunk)):
                    fault = Refusal("queue_full", "too many bodies are in memory")
                else:
                    size += len(chunk)
                    chunks.append(chunk)
    except TimeoutError:
        fault = Refusal("body_timeout", f"{size} bytes came within the deadline")
    if fault is None:
        fault = _fault_of_length(size, declared_bytes)
    if fault is not None:
        budget.give_back(size)
        return fault
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def _fault_of_length(size: int, declared_bytes: int | None) -> Refusal | None:
    if size == 0:
        return Refusal("empty_body", "there is no body")
    if declared_bytes is not None and size != declared_bytes:
        return Refusal("body_incomplete", f"{declared_bytes} bytes were announced, {size} came")
    return None
