"""The verdict on operations: what we say of each against what Stripe's own ledger says of it.

Rule: pure.  I2 at most one charge or refund per operation, and what is settled agrees with the money; I3 and I4 a settled
state is told once, in the user's table and as an outcome; I6 fences rise and what is settled stays; I7 nothing is sent
without a committed attempt, and after the safe window not without a look-up; I8 nothing is left under way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta

from tests.checker.operation_snapshot import SETTLED, AttemptRow, Movement, OperationRow, Operations, Request
from tests.checker.violation import Violation

SAFE_WINDOW = timedelta(hours=20)
LISTS = {"charge": "/v1/payment_intents", "refund": "/v1/refunds"}
LATER = {("succeeded", "failed"), ("succeeded", "review"), ("failed", "review"), ("canceled", "review")}
"""What a settled operation may still become: a bank returns a refund, or a second effect shows."""


def judge_operations(found: Operations) -> list[Violation]:
    """Return every broken invariant."""
    rows = {row.id: row for row in found.rows}
    money: dict[str, list[Movement]] = {row.id: [] for row in found.rows}
    violations = []
    for movement in found.movements:
        if movement.operation is not None and movement.operation not in money:
            violations.append(Violation("I2", f"{movement.object}: a {movement.kind} of nothing that was asked for"))
        elif movement.operation is not None:
            money[movement.operation].append(movement)
    for row in found.rows:
        violations += _money(row, money[row.id], asleep=row.id in found.asleep)
        violations += _under_way(row)
    violations += _told(found)
    violations += _attempts(found, rows)
    violations += _requests(found, rows)
    return violations


def judge_operations_pair(earlier: Operations, later: Operations) -> list[Violation]:
    """Judge what may never change between two snapshots (I6)."""
    states = {row.id: row.state for row in later.rows}
    violations = []
    for row in earlier.rows:
        now = states.get(row.id)
        if row.state in SETTLED and now != row.state and (row.state, now) not in LATER:
            violations.append(Violation("I6", f"{_name(row)} was {row.state} and is {now}"))
    kept = set(later.told)
    violations += [Violation("I6", f"the outcome {one} is gone") for one in earlier.told if one not in kept]
    return violations


def _name(row: OperationRow) -> str:
    return f"operation {row.id} ({row.wants} of {row.subject})"


def _money(row: OperationRow, moved: list[Movement], *, asleep: bool) -> Iterator[Violation]:
    if row.wants is None:
        return
    kinds = Counter(movement.kind for movement in moved)
    times = kinds[row.wants]
    if times > 1 and not (
        asleep and row.wants == "refund" and (row.state, row.review) == ("review", "several_objects")
    ):
        yield Violation("I2", f"{_name(row)} has {times} effects and is {row.state}, review {row.review}")
    there = times - kinds["refund_failed"]
    if row.state == "succeeded" and there != 1:
        yield Violation("I2", f"{_name(row)} is succeeded, and Stripe has {there} effects of it")
    if row.state in {"failed", "canceled", "requested"} and there != 0:
        yield Violation("I2", f"{_name(row)} is {row.state}, and Stripe has {there} effects of it")
    for movement in moved:
        if movement.kind == row.wants and (
            row.amount not in {None, movement.amount} or row.currency not in {None, movement.currency}
        ):
            yield Violation("I2", f"{_name(row)}: {movement.amount} {movement.currency}, asked was {row.amount}")
    if row.wants == "charge" and row.state in SETTLED:
        yield from _intents(row, kinds)


def _intents(row: OperationRow, kinds: Counter[str]) -> Iterator[Violation]:
    """Of a settled charge no intent is left that somebody could still confirm."""
    left = kinds["intent"] - kinds["cancel"]
    if left != (1 if row.state == "succeeded" else 0):
        yield Violation("I2", f"{_name(row)} is {row.state}, and {left} intents of it are not canceled")


def _under_way(row: OperationRow) -> Iterator[Violation]:
    if row.state == "review":
        if row.review is None:
            yield Violation("I8", f"{_name(row)} is in review without a reason")
    elif row.state not in SETTLED:
        yield Violation("I8", f"{_name(row)} is {row.state}")
    if row.busy is not None:
        yield Violation("I8", f"{_name(row)} is {row.state}, and {row.busy}")


def _told(found: Operations) -> Iterator[Violation]:
    outcomes = Counter((one.operation, one.state) for one in found.told)
    users = Counter(found.settlements)
    due: set[tuple[str, str]] = set()
    for row in found.rows:
        due |= {(row.id, state) for state in row.told}
        if row.state in SETTLED and row.state not in row.told:
            yield Violation("I3", f"{_name(row)} is {row.state} and did not tell")
    for which, counted in (("outcomes", outcomes), ("rows of the user", users)):
        for pair in sorted(due | set(counted)):
            times, wanted = counted[pair], int(pair in due)
            if times != wanted:
                code = "I4" if times > wanted else "I3"
                yield Violation(code, f"operation {pair[0]}, {pair[1]}: {times} {which}, expected {wanted}")


def _attempts(found: Operations, rows: dict[str, OperationRow]) -> Iterator[Violation]:
    by_operation: dict[str, list[AttemptRow]] = {}
    for attempt in sorted(found.attempts, key=lambda one: (one.operation, one.n)):
        by_operation.setdefault(attempt.operation, []).append(attempt)
    for operation, attempts in by_operation.items():
        fences = [attempt.fence for attempt in attempts]
        if fences != sorted(fences) or len(set(fences)) != len(fences) or fences[-1] > rows[operation].fence:
            yield Violation("I6", f"{_name(rows[operation])}: the fences of its attempts are {fences}")


def _requests(found: Operations, rows: dict[str, OperationRow]) -> Iterator[Violation]:
    """I7: each send has its attempt; after the window each follows a look-up."""
    sends: dict[str, list[Request]] = {}
    for request in found.requests:
        if "search" in request.path:
            yield Violation("I7", f"request {request.n} is a search, which lags")
        operation = (request.key or "").partition(".")[0]
        if request.method == "POST" and operation in rows:
            sends.setdefault(operation, []).append(request)
    committed = Counter(attempt.key for attempt in found.attempts)
    for operation, requests in sends.items():
        row = rows[operation]
        for key, times in Counter(request.key for request in requests).items():
            if key is not None and not _is_surplus(key) and times > committed[key] and operation not in found.restored:
                yield Violation("I7", f"{_name(row)}: {times} requests of {key}, {committed[key]} attempts")
        yield from _blind(found, row, requests)
    yield from _late_attempts(found, rows)


def _is_surplus(key: str) -> bool:
    """The cancel of an intent too many, ``<id>.cancel.<intent>``: harmless at any time."""
    return key.count(".") > 1


def _blind(found: Operations, row: OperationRow, sends: list[Request]) -> Iterator[Violation]:
    since = found.closed.get(row.id)
    if since is None or row.id in found.asleep:
        return
    looks = [request.n for request in found.requests if _looks_at(request, row)]
    for send in sends:
        if send.n > since and not _is_surplus(send.key or ""):
            if not any(since < look < send.n for look in looks):
                yield Violation(
                    "I7", f"{_name(row)}: request {send.n} ({send.path}) after the window, without a look-up"
                )
            since = send.n


def _looks_at(request: Request, row: OperationRow) -> bool:
    """A read of its object, or of the list that it would stand in (which names the order where the list is of one)."""
    if request.method != "GET":
        return False
    if request.names.get("onceflow_operation") == row.id:
        return True
    return request.path == LISTS.get(row.wants or "") and request.names.get("order", row.subject) == row.subject


def _late_attempts(found: Operations, rows: dict[str, OperationRow]) -> Iterator[Violation]:
    """The same from our side: an attempt of an operation whose window was over stands only where Stripe was asked."""
    for attempt in found.attempts:
        row = rows[attempt.operation]
        if attempt.key is None or attempt.sent_at < row.window_from + SAFE_WINDOW or row.id in found.asleep:
            continue
        if row.wants is not None and not any(_looks_at(request, row) for request in found.requests):
            yield Violation("I7", f"{_name(row)}: attempt {attempt.n} is late, and nothing was looked up")
