"""Does what a replay has found: page by page, with the run's row in the transaction of each batch.

Rule: a run that is killed at any moment goes on where its last commit ended, and what was counted stands in the same
commit; it never touches the live group or progress.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import psycopg

from onceflow_processor.admission import Item
from onceflow_processor.kafka_client import StartClient
from onceflow_processor.log_reader import LogReader
from onceflow_processor.records import Partition
from onceflow_processor.replay.fates import Fate
from onceflow_processor.replay.inbox_doer import InboxDoer
from onceflow_processor.replay.looking import PLAN_SECONDS_MAX, Passed, Told, admission, opened
from onceflow_processor.replay.pace import Pace
from onceflow_processor.replay.request import Request, Stretch, request_of
from onceflow_processor.replay.rerun_doer import RerunDoer
from onceflow_processor.replay.rerun_report import RerunReport
from onceflow_processor.replay.runs import LookProgress, Place, Progress, Run, RunProgress, begin, end, take
from onceflow_processor.replay.surroundings import Surroundings
from onceflow_processor.replay.survey import Page, Survey, left_out
from onceflow_processor.replay.tally import Tally
from onceflow_processor.service import ProcessorOptions, ProcessorService
from onceflow_processor.sqlstates import Meaning, meaning_of
from onceflow_producer.lifetime import Lifetime
from onceflow_schemas.failure import LeaseLost, Refused, Unavailable

TO_DO: Final = (Fate.RUN, Fate.UNHANDLED)


class Doer(Protocol):
    """Runs items of one partition."""

    def do(self, items: Sequence[Item], progress: Progress) -> str | None:
        """Run them in their order, and commit with the run's row; why it cannot go on now, None when it can."""


@dataclass(frozen=True, slots=True)
class Executed:
    """How a run ended, or a look at a rerun, which has none; ``held`` says why it cannot go on now, ``stopped`` that it was asked to stop."""

    run: Run | None
    tally: Tally
    left_out: tuple[str, ...]
    report: RerunReport | None = None
    held: str | None = None
    stopped: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Who asks for what.

    Attributes:
        request: None to go on with a run.
        run_id: the run to go on with; None to begin one.
        rate: events in a second.
        who: the person, for the audit.
        group: a name for the client; it is not joined.
        told: is told how far it is.
    """

    request: Request | None
    run_id: int | None
    rate: float
    who: str
    group: str
    told: Told


def execute(options: ProcessorOptions, order: Order) -> Executed:
    """Begin a run, or go on with one, and carry it to its end.

    Args:
        options: as the processor has them.
        order: who asks for what.

    Raises:
        Refused: with every fault of the request; nothing was done.
        LeaseLost: another process goes on with the run.
        Failure: Kafka or PostgreSQL cannot be used; what was begun can be taken up again.
    """
    options.handlers.check()
    with Lifetime(parent_pid=options.parent_pid) as lifetime:
        execution = _Execution(options, order, lifetime)
        return execution.go_on(order.run_id) if order.request is None else execution.start(order.request)


class _Execution:
    def __init__(self, options: ProcessorOptions, order: Order, lifetime: Lifetime) -> None:
        self._options = options
        self._order = order
        self._lifetime = lifetime
        self._service = ProcessorService(options, lifetime)

    def start(self, request: Request) -> Executed:
        with opened(self._options, request, group=self._order.group) as (reader, cluster, topic_id, stretches):
            around = self._surroundings(Place(cluster, topic_id, request.topic))
            if not request.execute:
                return self._carry(reader, around, None, request, stretches)
            run = begin(
                around.connection,
                request,
                place=around.place,
                stretches=stretches,
                who=self._order.who,
                owner=around.settings.owner,
            )
            return self._fenced(reader, around, run, request)

    def go_on(self, run_id: int | None) -> Executed:
        assert run_id is not None, "a run is begun or gone on with"
        around = self._surroundings(Place("", "", ""))
        run = take(around.connection, run_id, who=self._order.who, owner=around.settings.owner)
        around.place = run.place
        request = request_of(run.filters, reason=run.reason, rate=self._order.rate)
        with LogReader(self._options.kafka, group=self._order.group, deadline_seconds=PLAN_SECONDS_MAX) as reader:
            self._check_same(reader, run)
            return self._fenced(reader, around, run, request)

    def _surroundings(self, place: Place) -> Surroundings:
        prepared = self._service.prepare()
        if prepared is None:
            raise Unavailable("database_unavailable", "it was asked to stop before it began")
        connection, settings = prepared
        return Surroundings(
            connection=connection,
            settings=settings,
            place=place,
            handler_deadline_seconds=self._options.handler_deadline_seconds,
            open_database=self._service.open_checked,
            stopping=lambda: self._lifetime.stopping,
            wait=self._lifetime.wait,
        )

    def _check_same(self, reader: LogReader, run: Run) -> None:
        """Refuse to go on in another log than the one in which the run was begun."""
        topic = run.place.topic
        cluster, topics = StartClient(self._options.kafka).ask([topic])
        if (cluster, topics[topic].topic_id) != (run.place.cluster_id, run.place.topic_id):
            raise Refused("replay_run_refused", f"{topic} is not the topic in which replay {run.id} was begun")
        for stretch in run.left:
            low = reader.bounds(Partition(topic, stretch.partition)).low
            if low > stretch.first:
                gone = f"{stretch.first} to {low - 1} of {topic}/{stretch.partition}"
                raise Refused("replay_run_refused", f"retention removed the records {gone}, which are not done")

    def _fenced(self, reader: LogReader, around: Surroundings, run: Run, request: Request) -> Executed:
        try:
            return self._carry(reader, around, run, request, run.left)
        except (LeaseLost, psycopg.Error) as error:
            if not isinstance(error, LeaseLost) and meaning_of(error) is not Meaning.FENCED:
                raise
            raise LeaseLost("fenced", f"another process goes on with replay {run.id}") from error

    def _carry(
        self, reader: LogReader, around: Surroundings, run: Run | None, request: Request, stretches: Sequence[Stretch]
    ) -> Executed:
        survey = Survey(
            around.connection,
            reader,
            request=request,
            admit=admission(around.settings.rules),
            handlers=self._options.handlers,
            cluster_id=around.place.cluster_id,
            topic_id=around.place.topic_id,
        )
        doer = self._doer(around, request)
        report = doer.report if isinstance(doer, RerunDoer) else None
        pace, tally = Pace(self._order.rate), Tally() if run is None else run.tally
        total, passed, held = sum(one.end - one.first for one in stretches), 0, None
        for stretch in stretches:
            progress: Progress = LookProgress(tally) if run is None else RunProgress(run, stretch, tally)
            for page in survey.pages(stretch):
                held = self._do_page(page, progress, doer, around, pace)
                if held is not None or self._lifetime.stopping:
                    return Executed(
                        run, progress.tally, self._left_out(progress.tally), report, held, self._lifetime.stopping
                    )
                survey.use(around.connection)
                self._order.told(Passed(passed + page.next_offset - stretch.first, total, progress.tally))
            progress.end_stretch(around.connection, stretch)
            tally = progress.tally
            passed += stretch.end - stretch.first
        if run is not None:
            end(around.connection, run, tally=tally, who=self._order.who)
        around.connection.close()
        return Executed(run, tally, self._left_out(tally), report)

    def _do_page(self, page: Page, progress: Progress, doer: Doer, around: Surroundings, pace: Pace) -> str | None:
        progress.begin_page(page)
        items = [one.item for one in page.judged if one.fate in TO_DO]
        for start in range(0, len(items), pace.chunk_max):
            chunk = items[start : start + pace.chunk_max]
            if self._lifetime.wait(pace.wait_seconds(time.monotonic())):
                return None
            pace.ran(len(chunk), now=time.monotonic())
            held = doer.do(chunk, progress)
            if held is not None or self._lifetime.stopping:
                return held
        progress.end_page(around.connection)
        return None

    @staticmethod
    def _doer(around: Surroundings, request: Request) -> Doer:
        if request.rerun:
            return RerunDoer(around, execute=request.execute, allow_operations=request.allow_operations)
        return InboxDoer(around, ignored=request.ignored)

    def _left_out(self, tally: Tally) -> tuple[str, ...]:
        return left_out(self._options.handlers, tally)
