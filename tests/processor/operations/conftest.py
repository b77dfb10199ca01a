"""Workers of operations on a real PostgreSQL, with senders whose answers the test writes."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest
from prometheus_client import CollectorRegistry
from psycopg.rows import dict_row

from onceflow_processor.attempt import limits_setter
from onceflow_processor.deadline import Deadline
from onceflow_processor.handlers import Handlers
from onceflow_processor.operations.attached import attach
from onceflow_processor.operations.callback import CallbackSettings
from onceflow_processor.operations.callers import CHECK_SECONDS_MAX, Callers
from onceflow_processor.operations.effect import Effect
from onceflow_processor.operations.ledger import LedgerSettings
from onceflow_processor.operations.metrics import OperatorMetrics
from onceflow_processor.operations.request import RequestRules
from onceflow_processor.operations.waiting import Waiting
from onceflow_processor.operations.worker import Connections, Worker, WorkerSettings
from onceflow_schemas.operations.evidence import Evidence, Proof
from onceflow_schemas.operations.limits import LIMITS, Limits
from onceflow_schemas.operations.operation import Operation, Step
from tests.processor.processor_process import WAIT_SECONDS_MAX, wait_until

ACCOUNT = "acct_test"
LANES = 3
SECONDS_MAX = 2.0

Answer = Callable[[Step, Operation], Evidence]


def refund(operation: Operation, *, status: str = "succeeded", number: int = 1) -> dict[str, Any]:
    """A refund as Stripe has it."""
    return {"id": f"re_{operation.id.hex[:12]}_{number}", "object": "refund", "status": status, "amount": 500}


def done(_step: Step, operation: Operation) -> Evidence:
    """The answer of a call that went well."""
    made = refund(operation)
    return Evidence(
        proof=Proof.DONE, external_id=made["id"], status="succeeded", object=made, http_status=200, request_id="req_1"
    )


def says(proof: Proof, **more: Any) -> Answer:
    """Always the same evidence."""
    return lambda _step, _operation: Evidence(proof=proof, **more)


def in_turn(*answers: Answer) -> Answer:
    """One answer after the other."""
    left = iter(answers)

    def answer(step: Step, operation: Operation) -> Evidence:
        return next(left)(step, operation)

    return answer


@dataclass
class Scripted:
    """A sender whose answers come from the test; counts what is on its way."""

    answer: Answer = done
    found: Answer = field(default_factory=lambda: says(Proof.ABSENT, from_lookup=True))
    latency_seconds: float = 0.0
    seconds_max: float = SECONDS_MAX
    sent: list[tuple[str, str]] = field(default_factory=list)
    looked: list[str] = field(default_factory=list)
    how: list[Mapping[str, Any] | None] = field(default_factory=list)
    on_its_way: int = 0
    most_on_its_way: int = 0
    gate: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.gate.set()

    async def send(self, step: Step, operation: Operation) -> Evidence:
        self.sent.append((operation.subject, step.key))
        self.on_its_way += 1
        self.most_on_its_way = max(self.most_on_its_way, self.on_its_way)
        try:
            if self.latency_seconds:
                await asyncio.sleep(self.latency_seconds)
            while not self.gate.is_set():  # noqa: ASYNC110 - the test opens it from another thread
                await asyncio.sleep(0.005)
            return self.answer(step, operation)
        finally:
            self.on_its_way -= 1

    async def look_up(self, step: Step, operation: Operation, *, how: Mapping[str, Any] | None = None) -> Evidence:
        self.looked.append(operation.subject)
        self.how.append(how)
        return self.found(step, operation)

    async def close(self) -> None:
        return None

    def subjects(self) -> list[str]:
        return [subject for subject, _ in self.sent]


class NoDeadline(Deadline):
    """The worker does not run in the main thread here."""

    def __init__(self) -> None:
        self._usable = False
        self._armed = False


class Operator:
    """A worker in a thread of its own."""

    def __init__(
        self,
        desk: Desk,
        sender: Scripted,
        *,
        handlers: Handlers | None = None,
        concurrency: int = 8,
        lease_seconds: float = 10.0,
        requests_per_second: float = 10_000.0,
        burst: int = 1_000,
        limits: Limits = LIMITS,
        accounts: tuple[str, ...] = (ACCOUNT,),
        owner: str | None = None,
        poll_seconds: float = 0.1,
    ) -> None:
        self._desk = desk
        self.sender = sender
        self.registry = CollectorRegistry()
        self.metrics = OperatorMetrics(self.registry)
        self.stopping = threading.Event()
        self.opened: list[Connections] = []
        self.failure: BaseException | None = None
        self.lane_checks = 0
        used = desk.handlers if handlers is None else handlers
        set_limits = limits_setter(lock_timeout_ms=2_000, transaction_ms_max=20_000, server_version=180_000)
        self.waiting = Waiting()
        self.callers = Callers(
            {"stripe": sender, "http": sender, "mail": sender}, concurrency=concurrency, ring=self.waiting.ring
        )
        self.worker = Worker(
            self.callers,
            self.waiting,
            settings=WorkerSettings(
                ledger=LedgerSettings(
                    owner=owner or f"worker-{uuid.uuid4().hex[:6]}",
                    mode="test",
                    accounts=accounts,
                    effects=tuple(sorted(used.effects)),
                    kinds=("http", "mail", "stripe"),
                    lease_seconds=lease_seconds,
                    call_seconds_max=sender.seconds_max + CHECK_SECONDS_MAX,
                    requests_per_second=requests_per_second,
                    burst=burst,
                    limits=limits,
                    set_limits=set_limits,
                ),
                callbacks=CallbackSettings(
                    effects=used.effects,
                    rules=RequestRules(frozenset(accounts), used.effects),
                    lane_count=LANES,
                    value_bytes_max=100_000,
                    set_limits=set_limits,
                ),
                concurrency=concurrency,
                poll_seconds=poll_seconds,
            ),
            open_connections=self.open,
            check_lanes=self._check_lanes,
            deadline=NoDeadline(),
            metrics=self.metrics,
            stopping=self.stopping.is_set,
            wait=self.stopping.wait,
        )
        self.thread = threading.Thread(target=self._run, name="operator", daemon=True)

    def open(self) -> Connections:
        try:
            opened = Connections(
                psycopg.connect(self._desk.url, application_name="operator"),
                psycopg.connect(self._desk.url, application_name="operator-side", autocommit=True),
            )
        except psycopg.OperationalError as error:
            from onceflow_schemas.failure import Unavailable  # noqa: PLC0415

            raise Unavailable("database_unavailable", "away") from error
        self.opened.append(opened)
        return opened

    def _check_lanes(self, _connection: Any) -> None:
        self.lane_checks += 1

    def _run(self) -> None:
        try:
            self.worker.run(self.open())
        except BaseException as error:  # noqa: BLE001 - shown by the test
            self.failure = error
        finally:
            self.callers.close()
            self.waiting.close()

    def start(self) -> Operator:
        self.callers.start()
        self.thread.start()
        return self

    def stop(self) -> None:
        self.stopping.set()
        self.thread.join(WAIT_SECONDS_MAX)
        assert not self.thread.is_alive()
        if self.failure is not None:
            raise self.failure

    def value(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(name, labels) or 0.0


@dataclass
class Desk:
    """A database with an account, and effects to ask for."""

    url: str
    handlers: Handlers
    refunds: Effect
    running: list[Operator] = field(default_factory=list)

    def ask(
        self,
        *subjects: str,
        effect: Effect | None = None,
        order_key: str | None = None,
        account: str = ACCOUNT,
        **args: Any,
    ) -> list[str]:
        """Ask for operations as an application does, in one transaction; returns their ids."""
        with psycopg.connect(self.url) as connection:
            tx = attach(connection, cause="test", account=account)
            given = args or {"charge": "ch_1", "amount": 500}
            return [
                tx.request(effect or self.refunds, subject=subject, order_key=order_key, **given)
                for subject in subjects
            ]

    def operator(self, sender: Scripted, **settings: Any) -> Operator:
        """A worker that is not started yet; ended with the test."""
        made = Operator(self, sender, **settings)
        self.running.append(made)
        return made

    @contextmanager
    def working(self, sender: Scripted, **settings: Any) -> Iterator[Operator]:
        made = self.operator(sender, **settings).start()
        yield made
        made.stop()

    def rows(self, query: str, *parameters: Any) -> list[dict[str, Any]]:
        with psycopg.connect(self.url, row_factory=dict_row, autocommit=True) as other:
            return other.execute(query.encode(), parameters).fetchall()

    def change(self, query: str, *parameters: Any) -> None:
        with psycopg.connect(self.url, autocommit=True) as other:
            other.execute(query.encode(), parameters)

    def operations(self) -> dict[str, dict[str, Any]]:
        """The operations by subject."""
        # psycopg has no value for infinity.
        found = self.rows(
            "SELECT id, subject, state, step, external_id, fence, tries, lease_owner, lease_until, conclusion, look_asked,"
            " look_at, surplus, told, last_error, result, settled_at,"
            " extract(epoch FROM nullif(next_attempt_at, 'infinity') - clock_timestamp())::float8 AS due_seconds"
            " FROM onceflow.operation"
        )
        return {row["subject"]: row for row in found}

    def states(self) -> Mapping[str, str]:
        return {subject: row["state"] for subject, row in self.operations().items()}

    def outcomes(self) -> list[tuple[str, str]]:
        rows = self.rows("SELECT type, key FROM onceflow.outcome ORDER BY lane, seq")
        return [(row["type"], row["key"]) for row in rows]

    def wait_for(self, **states: str) -> None:
        """Wait until these subjects are in these states."""
        wait_until(lambda: states.items() <= self.states().items(), f"{states}, found {self.states()}")


@pytest.fixture
def desk(fresh_database: str) -> Iterator[Desk]:
    with psycopg.connect(fresh_database, autocommit=True) as setup:
        setup.execute("CREATE TABLE public.told (operation text, state text)")
        for lane in range(LANES):
            setup.execute("INSERT INTO onceflow.lane (lane, topic_id) VALUES (%s, 'outcome-topic')", [lane])
        setup.execute(
            "INSERT INTO onceflow.deployment (id, accounts, mode, system_id, timeline)"
            " VALUES ('test', '{acct_test,acct_other}', 'test', '1', 1)"
        )
    made = Desk(fresh_database, *effects())
    yield made
    for operator in made.running:
        operator.stopping.set()
        operator.sender.gate.set()
        if operator.thread.is_alive():
            operator.thread.join(WAIT_SECONDS_MAX)
        operator.waiting.close()


def effects() -> tuple[Handlers, Effect]:
    """A registry with one effect, whose end is told to a table and as an outcome."""
    from onceflow_processor.operations.effect import Settled  # noqa: PLC0415
    from onceflow_processor.tx import Tx  # noqa: PLC0415
    from onceflow_schemas.operations.calls import StripeCall  # noqa: PLC0415

    handlers = Handlers()

    @handlers.effect("refund")
    def refund(charge: str, amount: int) -> StripeCall:
        return StripeCall.post("/v1/refunds", charge=charge, amount=amount)

    @refund.settled
    def told(settled: Settled, tx: Tx) -> None:
        tx.execute("INSERT INTO public.told VALUES (%s, %s)", [settled.subject, settled.state])
        tx.outcome(f"refund.{settled.state}", key=settled.subject, data={"id": settled.id})

    handlers.check()
    return handlers, refund
