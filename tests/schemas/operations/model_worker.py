"""A worker in memory for tests of decisions: rows and attempts as lists, calls into ``ModelStripe``, faults on the way.

Rule: it does what a worker does and no more: commit the attempt, call, advance by what was proved.  What must hold at each
send and at each change is asserted here.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Literal

from onceflow_schemas.operations.advance import advance
from onceflow_schemas.operations.decide import LookUp, Review, Send, Settle, Wait, decide, into_review
from onceflow_schemas.operations.evidence import UNSENT, Evidence, Proof
from onceflow_schemas.operations.freeze import STORED, closing_step
from onceflow_schemas.operations.judge import is_ours, judge, judge_list
from onceflow_schemas.operations.limits import LIMITS
from onceflow_schemas.operations.moves import Change
from onceflow_schemas.operations.operation import SETTLED, Operation, Role, State, Step
from tests.schemas.operations.model_stripe import ModelStripe, Reply

Fault = Literal[
    "none",
    "lost_request",
    "lost_answer",
    "slow",
    "crash_before",
    "crash_after",
    "limited",
    "refused_key",
    "busy",
    "unsent",
]

BEFORE_EXECUTION: dict[Fault, Proof] = {
    "limited": Proof.LIMITED,
    "refused_key": Proof.UNAUTHORISED,
    "busy": Proof.BUSY,
    "unsent": Proof.NOT_SENT,
    "lost_request": Proof.UNKNOWN,
}

SETTLING = frozenset(
    {Proof.DONE, Proof.DECLINED, Proof.REFUSED, Proof.ENDED, Proof.ABANDONED, Proof.RULED_FAILED, Proof.RULED_SUCCEEDED}
)


@dataclass
class Attempt:
    """A row of ``attempt``."""

    step: int
    sent_at: datetime
    proof: Proof | None = None


@dataclass
class ModelWorker:
    """One operation and everything that happens to it."""

    stripe: ModelStripe
    operation: Operation
    now: datetime
    attempts: list[Attempt] = field(default_factory=list)
    on_their_way: list[tuple[Step, str | None]] = field(default_factory=list)
    told: list[State] = field(default_factory=list)
    surplus: set[str] = field(default_factory=set)
    complete_look_at: datetime | None = None
    restored: bool = False

    def read(self) -> Operation:
        """The operation as a worker reads it."""
        own = [attempt for attempt in self.attempts if attempt.step == self.operation.step]
        if self.operation.state is State.SENDING:
            own = own[:-1]
        sent = [attempt for attempt in own if attempt.proof not in UNSENT]
        return replace(
            self.operation,
            sent=bool(sent),
            last_sent_at=sent[-1].sent_at if sent else None,
            last_proof=sent[-1].proof if sent else None,
            restored=self.restored,
        )

    def work(self, fault: Fault) -> timedelta | None:
        """One decision and what follows; the pause until the next one when nothing is to be done now."""
        operation = self.read()
        match decide(operation, now=self.now):
            case Send(step, in_window):
                self._check_send(operation, in_window=in_window)
                self._send(step, fault)
            case LookUp(step, how):
                self._look_up(step, how, fault)
            case Settle(evidence):
                self._advance(evidence)
            case Review() as review:
                self._write(into_review(operation, review))
            case Wait(until):
                return None if until is None else until - self.now
        return timedelta(seconds=0)

    def land(self) -> None:
        """A request that was on its way for a long time arrives; nobody hears the answer."""
        step, external_id = self.on_their_way.pop(0)
        self._post(step, external_id)

    def hint(self, object_id: str) -> None:
        """A webhook about an object leads to a look at exactly that one."""
        if self.operation.state is State.SENDING:
            return
        found = self.stripe.objects[object_id]
        if object_id == self.operation.external_id:
            self.complete_look_at = self.now
        self._advance(judge(self.operation.present, found, operation=self.operation, from_lookup=True))

    def close_surplus(self) -> None:
        """The duty that cancels unconfirmed intents too many."""
        while self.surplus:
            object_id = self.surplus.pop()
            self._post(closing_step(self.operation, object_id), None)

    def _check_send(self, operation: Operation, *, in_window: bool) -> None:
        if self.now < operation.window_from + LIMITS.safe_window:
            return
        assert not in_window
        assert self.complete_look_at is not None, "after the window nothing is sent without a look"
        assert self.now - self.complete_look_at <= LIMITS.lookup_fresh
        assert not operation.sent or operation.role is not Role.CALL, "what may have been sent is not sent again"

    def _send(self, step: Step, fault: Fault) -> None:
        self.attempts.append(Attempt(self.operation.step, self.now))
        self.operation = replace(self.operation, state=State.SENDING)
        external_id = self.operation.external_id
        if fault == "crash_before":
            return
        if fault in ("slow", "crash_after"):
            self.on_their_way.append((step, external_id))
            if fault == "slow":
                self._settle(Evidence(proof=Proof.UNKNOWN, detail="no answer in time"))
            return
        if proof := BEFORE_EXECUTION.get(fault):
            self._settle(Evidence(proof=proof, detail=fault))
            return
        reply = self._post(step, external_id)
        unknown = Evidence(proof=Proof.UNKNOWN, detail="the connection broke")
        self._settle(unknown if fault == "lost_answer" else self._answer(step, reply))

    def _post(self, step: Step, external_id: str | None) -> Reply:
        path = step.request["path"].replace(STORED, external_id or "")
        return self.stripe.post(path, dict(step.request["params"]), key=step.key, now=self.now)

    def _answer(self, step: Step, reply: Reply) -> Evidence:
        match reply.status:
            case 200:
                return replace(judge(step, reply.body, operation=self.operation), replayed=reply.replayed)
            case 402:
                intent, code = reply.body["intent"], reply.body["code"]
                return Evidence(proof=Proof.DECLINED, external_id=intent, code=code, replayed=reply.replayed)
            case _:
                return Evidence(proof=Proof.REFUSED, code=reply.body["code"], replayed=reply.replayed)

    def _settle(self, evidence: Evidence) -> None:
        change = advance(self.read(), evidence, now=self.now)
        self.attempts[-1].proof = evidence.proof
        self._write(change, evidence)

    def _look_up(self, step: Step, how: Any, fault: Fault) -> None:
        if fault != "none":
            self._advance(Evidence(proof=Proof.LOOKUP_FAILED, from_lookup=True, detail=fault))
            return
        if "retrieve" in how:
            found = self.stripe.objects[how["retrieve"].rsplit("/", 1)[1]]
            evidence = judge(step, found, operation=self.operation, from_lookup=True)
        else:
            kind = {"/v1/refunds": "refund", "/v1/payment_intents": "payment_intent"}[how["list"]]
            ours = [each for each in self.stripe.list(kind) if is_ours(each, self.operation)]
            evidence = judge_list(step, ours, operation=self.operation)
        self.complete_look_at = self.now
        self._advance(evidence)

    def _advance(self, evidence: Evidence) -> None:
        self._write(advance(self.read(), evidence, now=self.now), evidence)

    def _write(self, change: Change, evidence: Evidence | None = None) -> None:
        before = self.operation
        if before.state is State.UNKNOWN and change.state in SETTLED:
            assert evidence is not None
            assert evidence.proof in SETTLING, "unknown leaves only by evidence"
        if before.state is State.SUCCEEDED and change.state is not State.SUCCEEDED:
            assert evidence is not None
            taken_back = change.state is State.FAILED and evidence.proof is Proof.ENDED and before.role is Role.CALL
            assert taken_back or change.state is State.REVIEW, "succeeded is never overwritten"
        if change.tells:
            assert change.state not in self.told, "a settled callback runs once for each state"
            self.told.append(change.state)
        self.surplus |= set(change.surplus)
        code = None
        if change.state is State.REVIEW:
            code = change.review[0] if change.review else before.review_code
        self.operation = replace(
            before,
            state=change.state,
            step=change.step,
            external_id=change.external_id,
            result=change.result,
            last_error=change.last_error,
            tries=change.tries,
            looked_up_at=change.looked_up_at,
            action_until=change.action_until,
            review_code=code,
            told=tuple(state.value for state in self.told),
        )
