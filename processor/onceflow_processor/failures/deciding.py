"""Decisions of a person about parked and quarantined events, in pages: each page is one transaction, audit included.

Rule: locks are taken in the order markers, keys, parked events, rows of quarantine; the verdict is made from facts that
are read after the markers are locked, and whatever is in another state by then is left alone.  Killed between two pages,
the command is given again: what was decided already changes nothing.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import psycopg
from psycopg import Connection
from psycopg.rows import dict_row

from onceflow_processor.arrays import Bigints, Integers, Texts
from onceflow_processor.failures.overview import Kind, Meant, database_now, subjects_of, verdict_of
from onceflow_processor.failures.placing import order_key_of
from onceflow_producer.failpoint import hit
from onceflow_schemas.failure import Unavailable
from onceflow_schemas.failure_decisions import Action, Verdict
from onceflow_schemas.sql import queries

PAGE_EVENTS = 200
"""Events in one transaction: their markers are locked meanwhile, so it is kept short."""
PAGE_TRIES_MAX = 3
KEY_TRIES_MAX = 5
LOCK_TIMEOUT_MS = 10_000
"""A redrive holds the marker of its event for as long as the handlers run."""
STATEMENT_TIMEOUT_MS = 30_000

_SQL = queries("failures")
_OPERATING = queries("operating")

Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What is to be done, by whom and why.

    Attributes:
        action: what is wanted.
        meant: for which events.
        who, reason: for the audit.
        skipped_too: a retry is wanted of what was skipped as well.
        events_max: stop after so many have been looked at; None for all.
    """

    action: Action
    meant: Meant
    who: str
    reason: str
    skipped_too: bool = False
    events_max: int | None = None


@dataclass(slots=True)
class Done:
    """How many events ended how, and in how many transactions."""

    verdicts: Counter[Verdict] = field(default_factory=Counter)
    pages: int = 0

    @property
    def events(self) -> int:
        """How many were looked at."""
        return self.verdicts.total()


def carry_out(connection: Connection[Any], order: Order, *, told: Callable[[Done], None] = lambda _done: None) -> Done:
    """Decide about all events that are meant and were there when it began.

    Args:
        connection: idle; left idle.
        order: what is to be done.
        told: called after each page.

    Raises:
        Unavailable: ``database_unavailable``: rows stay locked by somebody else; what was done before is kept.
    """
    done, after = Done(), _FIRST[order.meant.kind]
    started = database_now(connection)
    until = started if order.meant.wanted.until is None else min(started, order.meant.wanted.until)
    order = replace(order, meant=replace(order.meant, wanted=replace(order.meant.wanted, until=until)))
    # Each page begins behind the one before it, so that the loop ends with the rows.
    while True:
        count = PAGE_EVENTS if order.events_max is None else min(PAGE_EVENTS, order.events_max - done.events)
        page = _page(connection, order, done, after=after, count=count) if count else []
        if not page:
            return done
        after = {f"after_{name}": page[-1][name] for name in _ORDER[order.meant.kind]}
        told(done)
        hit("decisions.between_pages")


_ORDER: Mapping[Kind, tuple[str, ...]] = {
    "parked": ("order_key", "seq"),
    "quarantine": ("topic_id", "partition", "offset"),
}
_FIRST: Mapping[Kind, Mapping[str, Any]] = {
    kind: {f"after_{name}": None for name in names} for kind, names in _ORDER.items()
}


def _page(connection: Connection[Any], order: Order, done: Done, *, after: Mapping[str, Any], count: int) -> list[Row]:
    """Decide about one page; it is tried again where it met others, who lock in the same order but batch by batch."""
    for left in reversed(range(PAGE_TRIES_MAX)):
        try:
            with connection.transaction():
                page, verdicts = _decide_page(connection, order, after=after, count=count)
                hit("decisions.before_commit")
        except psycopg.errors.LockNotAvailable as error:
            raise Unavailable(
                "database_unavailable",
                f"the next events are locked by a redrive or another decision; {done.events} were decided before",
                "Give the same command again; what is decided already stays as it is.",
            ) from error
        except (psycopg.errors.DeadlockDetected, psycopg.errors.SerializationFailure):
            if not left:
                raise
            continue
        done.verdicts.update(verdicts)
        done.pages += bool(page)
        return page
    raise AssertionError("the last try returns or raises")


def _decide_page(
    connection: Connection[Any], order: Order, *, after: Mapping[str, Any], count: int
) -> tuple[list[Row], Counter[Verdict]]:
    limits = {"lock_timeout": f"{LOCK_TIMEOUT_MS}ms", "statement_timeout": f"{STATEMENT_TIMEOUT_MS}ms"}
    connection.execute(_OPERATING["limits"], limits)
    kind = order.meant.kind
    page = _rows(connection, f"{kind}_page", order.meant.parameters(**after, count=count))
    if not page:
        return page, Counter()
    _run(connection, "lock_markers", _identities(page))
    given = _identities(page) if kind == "parked" else _places(page)
    facts = _rows(connection, f"{kind}_facts", {**given, "horizon_days": order.meant.horizon_days})
    by_verdict: dict[Verdict, list[Row]] = {}
    for row in facts:
        verdict = verdict_of(kind, row, action=order.action, skipped_too=order.skipped_too)
        by_verdict.setdefault(verdict, []).append(row)
    counts = Counter({verdict: len(rows) for verdict, rows in by_verdict.items()})
    if len(facts) < len(page):
        counts[Verdict.MOVED_ON] += len(page) - len(facts)
    for verdict, rows in by_verdict.items():
        if verdict.acts:
            written = _WRITERS[kind, verdict](connection, rows, order)
            _audit(connection, written, order, verdict=verdict)
            # Another decision may have come first about rows that no marker guards.
            counts[verdict] -= len(rows) - len(written)
            counts[Verdict.MOVED_ON] += len(rows) - len(written)
    return page, +counts


def _redrive(connection: Connection[Any], rows: Sequence[Row], order: Order) -> list[Row]:
    """Put quarantined events back into parking."""
    keyed = [{**row, "order_key": order_key_of(row)} for row in rows]
    _lock_keys(connection, keyed, begin=True)
    _run(connection, "park_again", {**_places(keyed), "order_keys": Texts(row["order_key"] for row in keyed)})
    _run(connection, "order_keys", _keys(keyed))
    _set_states(connection, rows, former="quarantined", state="parked")
    _run(connection, "move_keys_on", {**_keys(keyed), **_identities(keyed)})
    return _decided(connection, rows, order, decision="retried")


def _ask(connection: Connection[Any], rows: Sequence[Row], order: Order) -> list[Row]:
    _run(connection, "lock_quarantined", _places(rows))
    given = {**_places(rows), "decisions": Texts(row["decision"] for row in rows), **_by(order)}
    return _among(rows, _rows(connection, "quarantine_ask", given))


def _skip_quarantined(connection: Connection[Any], rows: Sequence[Row], order: Order) -> list[Row]:
    return _decided(connection, rows, order, decision="skipped")


def _skip_head(connection: Connection[Any], rows: Sequence[Row], order: Order) -> list[Row]:
    """Let the keys go on that wait for quarantined events."""
    _lock_keys(connection, rows)
    _move_keys(connection, rows)
    return _decided(connection, rows, order, decision="skipped")


def _skip_parked(connection: Connection[Any], rows: Sequence[Row], order: Order) -> list[Row]:
    _lock_keys(connection, rows)
    _run(connection, "quarantine_skipped", {**_identities(rows), **_by(order)})
    _set_states(connection, rows, former="parked", state="quarantined")
    _move_keys(connection, rows)
    return list(rows)


def _try_now(connection: Connection[Any], rows: Sequence[Row], _order: Order) -> list[Row]:
    _lock_keys(connection, rows)
    moved = _rows(connection, "try_keys_now", _keys(rows))
    names = ("account", "mode", "event_id")
    known = {tuple(one[name] for name in names) for one in moved}
    return [row for row in rows if tuple(row[name] for name in names) in known]


_WRITERS: Mapping[tuple[Kind, Verdict], Callable[[Connection[Any], Sequence[Row], Order], list[Row]]] = {
    ("quarantine", Verdict.REDRIVE): _redrive,
    ("quarantine", Verdict.ADMIT_AGAIN): _ask,
    ("quarantine", Verdict.SKIP): _skip_quarantined,
    ("quarantine", Verdict.SKIP_AND_GO_ON): _skip_head,
    ("parked", Verdict.TRY_NOW): _try_now,
    ("parked", Verdict.SKIP): _skip_parked,
    ("parked", Verdict.SKIP_AND_GO_ON): _skip_parked,
}


def _lock_keys(connection: Connection[Any], rows: Sequence[Row], *, begin: bool = False) -> None:
    """Lock the keys, which the next statement then sees as they are; with ``begin`` those that are missing are made."""
    wanted = {row["order_key"] for row in rows}
    firsts = list({row["order_key"]: row for row in rows}.values())
    for _ in range(KEY_TRIES_MAX):
        if begin:
            _run(connection, "begin_keys", {**_keys(firsts), **_identities(firsts, as_given=True)})
        locked = {row["order_key"] for row in _rows(connection, "lock_keys", _keys(rows))}
        # A redrive may end a key between the two statements.
        if locked == wanted or not begin:
            return
    raise Unavailable("database_unavailable", "keys come and go too quickly to be locked", "Give the command again.")


def _move_keys(connection: Connection[Any], rows: Sequence[Row]) -> None:
    given = {**_keys(rows), **_identities(rows)}
    _run(connection, "move_keys_on", given)
    _run(connection, "end_keys", given)


def _set_states(connection: Connection[Any], rows: Sequence[Row], *, former: str, state: str) -> None:
    given = {**_identities(rows), "from_state": former, "state": state}
    changed = connection.execute(_SQL["set_states"], given).rowcount
    assert changed == len(rows), f"{len(rows)} locked markers were {former}, and {changed} are {state} now"


def _decided(connection: Connection[Any], rows: Sequence[Row], order: Order, *, decision: str) -> list[Row]:
    _run(connection, "lock_quarantined", _places(rows))
    former = Texts(row["decision"] for row in rows)
    given = {**_places(rows), "decisions": former, "decision": decision, **_by(order)}
    return _among(rows, _rows(connection, "quarantine_decide", given))


def _audit(connection: Connection[Any], rows: Sequence[Row], order: Order, *, verdict: Verdict) -> None:
    before = ("state", "code", "order_key", "decision" if order.meant.kind == "quarantine" else "reason")
    given = {
        **_by(order),
        "action": f"{order.meant.kind}_{order.action}",
        "subjects": Texts(subjects_of(row)[0] for row in rows),
        "befores": Texts(json.dumps({name: row[name] for name in before}) for row in rows),
        "afters": Texts(json.dumps({"becomes": verdict.value}) for _ in rows),
    }
    if rows:
        _run(connection, "audit_all", given)


def _among(rows: Sequence[Row], written: Iterable[Row]) -> list[Row]:
    places = {(row["topic_id"], row["partition"], row["offset"]) for row in written}
    return [row for row in rows if (row["topic_id"], row["partition"], row["offset"]) in places]


def _identities(rows: Sequence[Row], *, as_given: bool = False) -> dict[str, Any]:
    known = [(row["account"], row["mode"], row["event_id"]) for row in rows if row["event_id"] is not None]
    known = known if as_given else sorted(known)
    return {
        "accounts": Texts(account for account, _, _ in known),
        "modes": Texts(mode for _, mode, _ in known),
        "event_ids": Texts(event_id for _, _, event_id in known),
    }


def _places(rows: Sequence[Row]) -> dict[str, Any]:
    return {
        "topic_ids": Texts(row["topic_id"] for row in rows),
        "partitions": Integers(row["partition"] for row in rows),
        "offsets": Bigints(row["offset"] for row in rows),
    }


def _keys(rows: Sequence[Row]) -> dict[str, Any]:
    return {"order_keys": Texts(row["order_key"] for row in rows)}


def _by(order: Order) -> dict[str, Any]:
    return {"who": order.who, "reason": order.reason}


def _rows(connection: Connection[Any], name: str, given: Mapping[str, Any]) -> list[Row]:
    with connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(_SQL[name], given).fetchall()


def _run(connection: Connection[Any], name: str, given: Mapping[str, Any]) -> None:
    connection.execute(_SQL[name], given)
