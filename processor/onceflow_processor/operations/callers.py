"""The callers: an event loop in a thread of its own, that makes the calls and nothing else.

Rule: nobody here touches the database.  A call is made only right after the ledger has asked the database for it: a job
whose check is too old goes back unmade, so that a process that was stopped in between does not send what another has by now.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence

import structlog

from onceflow_processor.operations.job import Finished, Job, Purpose
from onceflow_processor.operations.senders.sender import Sender
from onceflow_producer.failpoint import hit
from onceflow_schemas.operations.evidence import Evidence, Proof

CHECK_SECONDS_MAX = 1.0
"""Between the database's word that a call may be made and the call."""

CLOSE_SECONDS_MAX = 5.0

log = structlog.get_logger("onceflow.operations")

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def host_clock() -> float:
    """Seconds that also pass while the machine sleeps, where it has such a clock."""
    return time.clock_gettime(_CLOCK)


class Callers:
    """Makes at most so many calls at a time.

    Args:
        senders: by kind of step.
        concurrency: calls on their way at a time.
        ring: called, from the callers' thread, when something has finished.
    """

    def __init__(self, senders: Mapping[str, Sender], *, concurrency: int, ring: Callable[[], None]) -> None:
        self._senders = senders
        self._concurrency = concurrency
        self._ring = ring
        self._loop: asyncio.AbstractEventLoop | None = None
        self._jobs: asyncio.Queue[Job] = asyncio.Queue()
        self._finished: deque[Finished] = deque()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="operation-callers", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._loop = asyncio.new_event_loop()
        self._thread.start()

    def submit(self, jobs: Sequence[Job]) -> None:
        """Make these calls, in their order as far as there is room."""
        assert self._loop is not None, "start comes first"
        self._loop.call_soon_threadsafe(self._put, jobs)

    def take(self) -> list[Finished]:
        """Return what has finished since the last time."""
        return [self._finished.popleft() for _ in range(len(self._finished))]

    def refuse_new(self) -> None:
        """From now on jobs that have not begun come back unmade."""
        self._stopping.set()

    def close(self) -> None:
        """End the thread; nothing is on its way any more."""
        if self._loop is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(CLOSE_SECONDS_MAX)

    def _put(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            self._jobs.put_nowait(job)

    def _run(self) -> None:
        loop = self._loop
        assert loop is not None
        asyncio.set_event_loop(loop)
        callers = [loop.create_task(self._call_for_ever()) for _ in range(self._concurrency)]
        try:
            loop.run_forever()
            for caller in callers:
                caller.cancel()
            loop.run_until_complete(asyncio.gather(*callers, return_exceptions=True))
            for sender in self._senders.values():
                loop.run_until_complete(sender.close())
        finally:
            loop.close()

    async def _call_for_ever(self) -> None:
        while True:
            job = await self._jobs.get()
            begun = time.monotonic()
            try:
                evidence = await self._call(job)
            except Exception as error:
                # A sender never raises: it is a bug, and one operation's bug must not stop the others, again after every lease.
                log.exception("sender_failed", operation=str(job.operation.id), kind=job.step.kind)
                evidence = _unplaced(job, error)
            self._finished.append(Finished(job, evidence, None if evidence is None else time.monotonic() - begun))
            self._ring()

    async def _call(self, job: Job) -> Evidence | None:
        if job.lost or self._stopping.is_set() or host_clock() - job.checked_at > CHECK_SECONDS_MAX:
            return None
        hit("operator.before_send")
        sender = self._senders[job.step.kind]
        if job.purpose is Purpose.LOOK_UP:
            evidence = await sender.look_up(job.step, job.operation, how=job.how)
        else:
            evidence = await sender.send(job.step, job.operation)
        hit("operator.after_answer")
        return evidence


def _unplaced(job: Job, error: Exception) -> Evidence:
    """A call may have been made before its sender failed; of a look-up nothing is learnt."""
    looking = job.purpose is Purpose.LOOK_UP
    return Evidence(
        proof=Proof.LOOKUP_FAILED if looking else Proof.UNKNOWN,
        from_lookup=looking,
        code="sender_failed",
        detail=f"the sender met a bug: {type(error).__name__}; the log of the workers has it (sender_failed)",
    )
