"""The reader: a thread of the workers of operations that reads at Stripe what events wait for.

Rule: no transaction is open while a request is on its way.  A round leases, asks, settles; whatever ends it in between ends
with the lease, and reading twice harms nothing.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import psycopg
import structlog
from psycopg import Connection

from onceflow_processor.database import first_line
from onceflow_processor.operations.budget import Answer
from onceflow_processor.reads.metrics import ReadMetrics
from onceflow_processor.reads.read_store import LeasedRead, ReadStore, ReadStoreSettings, Ruled
from onceflow_processor.reads.stripe_reads import Got, StripeReads
from onceflow_producer.failpoint import hit
from onceflow_schemas.failure import Failure
from onceflow_schemas.object_reads import (
    NOT_PERMITTED,
    TRIES_MAX,
    Answered,
    Failed,
    Later,
    Partly,
    Verdict,
    Whole,
    backoff_seconds,
    code_of,
    judge,
)
from onceflow_schemas.operations.evidence import Evidence, Proof

READS_AT_ONCE_MAX = 8
POLL_SECONDS = 0.2
WATCH_SECONDS = 5.0
RECONNECT_SECONDS = 2.0
JITTER_SHARE_MIN = 0.5
"""Of a pause that is no backoff: whoever waits for the same thing does not come back at the same moment."""

CLOSE_SECONDS_MAX = 10.0

log = structlog.get_logger("onceflow.reads")


class Reader:
    """Runs until it is closed.  ``open_connection`` connects and checks the database behind it."""

    def __init__(
        self,
        reads: StripeReads,
        *,
        settings: ReadStoreSettings,
        open_connection: Callable[[], Connection[Any]],
        metrics: ReadMetrics,
    ) -> None:
        self._reads = reads
        self._settings = settings
        self._open = open_connection
        self._metrics = metrics
        self._stopping = threading.Event()
        self._watch_at = 0.0
        self._thread = threading.Thread(target=self._run, name="object-reader", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """End after the round in hand; one that takes longer ends with its lease."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(CLOSE_SECONDS_MAX)

    def _run(self) -> None:
        with asyncio.Runner() as loop:
            while not self._stopping.is_set():
                try:
                    with self._open() as connection:
                        self._work(connection, loop)
                except (Failure, psycopg.Error) as error:
                    log.warning("database_away", reason=first_line(error))
                except Exception:
                    # A bug must not end the thread: what was leased is tried again.
                    log.exception("reader_failed")
                else:
                    continue
                self._metrics.trouble.inc()
                self._stopping.wait(RECONNECT_SECONDS)
            loop.run(self._reads.close())

    def _work(self, connection: Connection[Any], loop: asyncio.Runner) -> None:
        store = ReadStore(connection, settings=self._settings)
        store.open()
        while not self._stopping.is_set():
            if not self.turn(store, loop):
                self._stopping.wait(POLL_SECONDS)
            if time.monotonic() >= self._watch_at:
                self._watch_at = time.monotonic() + WATCH_SECONDS
                count, oldest_seconds, not_permitted = store.waiting()
                self._metrics.show_waiting(count, oldest_seconds=oldest_seconds, not_permitted=not_permitted)

    def turn(self, store: ReadStore, loop: asyncio.Runner) -> int:
        """Lease, ask, settle; return how many reads were in hand."""
        leased = store.claim(READS_AT_ONCE_MAX)
        if not leased:
            return 0
        spent = [read for read in leased if read.tries > TRIES_MAX]
        asked = [read for read in leased if read.tries <= TRIES_MAX]
        hit("reader.before_request")
        got = loop.run(self._ask(asked))
        hit("reader.after_answer")
        for read in spent:
            self._settle(store, Ruled(read, _gave_up(read)))
        for read, one in zip(asked, got, strict=True):
            self._rule(store, read, one)
        answers = [(read, one) for read, one in zip(asked, got, strict=True) if not isinstance(one, Exception)]
        store.note_answers([_answer(read, one.answered) for read, one in answers])
        return len(leased)

    async def _ask(self, reads: Sequence[LeasedRead]) -> list[Got | Exception]:
        return await asyncio.gather(*(self._get(read) for read in reads))

    async def _get(self, read: LeasedRead) -> Got | Exception:
        """What cannot even be asked is told of that read: the others of the round have their answers."""
        try:
            return await self._reads.get(read.need, read.path)
        except Exception as error:  # noqa: BLE001 - a bug about one read is the end of that read only.
            return error

    def _rule(self, store: ReadStore, read: LeasedRead, got: Got | Exception) -> None:
        """Write down what an answer means; a bug about it is that read's end, and not that of all that were leased with it."""
        try:
            self._settle(store, _ruled(read, got))
        except (Failure, psycopg.OperationalError, psycopg.InterfaceError):
            raise
        except Exception as error:
            log.exception(
                "read_faulty", account=read.need.account, kind=read.need.kind.value, object=read.need.object_id
            )
            self._settle(store, Ruled(read, Failed("faulty", f"reading it raised {type(error).__name__}: a bug")))

    def _settle(self, store: ReadStore, ruled: Ruled) -> None:
        kept, need = store.settle(ruled), ruled.read.need
        result = _result(ruled.verdict) if kept else "fenced"
        self._metrics.requests.labels(result).inc()
        if result == "fenced":
            log.warning("late_read_refused", account=need.account, kind=need.kind.value)
        elif isinstance(ruled.verdict, (Later, Failed)):
            say = log.error if result in {"failed", "not_permitted"} else log.info
            say(
                "read_failed" if result == "failed" else "read_put_off",
                account=need.account,
                kind=need.kind.value,
                object=need.object_id,
                code=ruled.verdict.code,
                reason=ruled.verdict.detail,
                tries=ruled.read.tries,
            )


def _ruled(read: LeasedRead, got: Got | Exception) -> Ruled:
    """What is written about an answer, with the pause until the next try; raises what the request has raised."""
    if isinstance(got, Exception):
        raise got
    verdict = judge(read.need, got.answered, path=read.path, parts=read.parts, part_bytes=read.part_bytes)
    if isinstance(verdict, Later) and verdict.counted and read.tries >= TRIES_MAX:
        verdict = Failed(verdict.code, verdict.detail)
    seconds = 0.0
    if isinstance(verdict, Later):
        share = random.random()  # noqa: S311 - jitter needs no secrecy.
        fixed = None if verdict.seconds is None else verdict.seconds * (1 + JITTER_SHARE_MIN * share)
        seconds = backoff_seconds(read.tries, share=share) if fixed is None else fixed
    keeps = isinstance(verdict, (Partly, Whole)) and got.answered.status == _OK
    body = got.answered.body if keeps else b""
    return Ruled(read, verdict, got.answered.status, seconds, body, got.stripe_at if keeps else None)


_OK = 200


def _gave_up(read: LeasedRead) -> Failed:
    """Its workers went away again and again."""
    return Failed(read.code or "abandoned", read.detail or "each worker that read it went away")


def _answer(read: LeasedRead, answered: Answered) -> Answer:
    """What an answer says about the account as a whole; a permission that is missing for one kind of object says nothing."""
    proofs = {200: Proof.DONE, 401: Proof.UNAUTHORISED, 404: Proof.REFUSED, 429: Proof.LIMITED}
    evidence = Evidence(
        proof=proofs.get(answered.status or 0, Proof.UNKNOWN),
        code=code_of(answered),
        detail="the key is refused" if answered.status == 401 else "",  # noqa: PLR2004 - unauthorised
        retry_after_seconds=answered.retry_after_seconds,
    )
    return Answer(read.need.account, evidence, read.probe)


def _result(verdict: Verdict) -> str:
    match verdict:
        case Partly():
            return "part"
        case Whole(gone, code):
            return "gone" if gone else ("read" if code is None else "incomplete")
        case Failed():
            return "failed"
        case Later(code):
            return {NOT_PERMITTED: "not_permitted", "limited": "limited"}.get(code, "later")
