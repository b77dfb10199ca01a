"""What people see of parked and quarantined events: a list, groups of what failed alike, and everything about one.

Rule: it only reads, and a list never holds what a record or a message of an error says, since both may hold personal data.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Literal

from psycopg import Connection
from psycopg.rows import dict_row

from onceflow_processor.failures.filter import Filter
from onceflow_schemas.failure import Refused
from onceflow_schemas.failure_decisions import (
    Action,
    ParkedFacts,
    QuarantinedFacts,
    Verdict,
    decide_parked,
    decide_quarantined,
)
from onceflow_schemas.sql import queries
from onceflow_schemas.topic_ids import shown_topic_id

Kind = Literal["parked", "quarantine"]

GROUPS_MAX = 10_000
"""Rows of the count; types, handlers and classes of errors come from code, so there are few."""
BEHIND_MAX = 20
AUDITS_MAX = 100
STATEMENT_TIMEOUT_MS = 60_000
LOCK_TIMEOUT_MS = 5_000

_SQL = queries("failures")
_OPERATING = queries("operating")


@dataclass(frozen=True, slots=True, kw_only=True)
class Meant:
    """Which rows are meant: by filter, or by ids; ``ids`` of None means all of the filter.

    ``horizon_days`` says which events are too old to be retried: as the processors have it.
    """

    kind: Kind
    wanted: Filter
    ids: tuple[str, ...] | None = None
    horizon_days: int = 35

    def parameters(self, **more: Any) -> dict[str, Any]:
        """Return the parameters of a statement with the filter of this kind."""
        return {
            **self.wanted.parameters(),
            "ids": None if self.ids is None else list(self.ids),
            "horizon_days": self.horizon_days,
            **more,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Events that failed alike; ``sample`` is an id of one of them, its place where nobody vouches for an identity."""

    type: str
    handler: str
    error: str
    events: int
    first_at: datetime
    last_at: datetime
    sample: str

    @property
    def name(self) -> str:
        """What ``--group`` takes."""
        return f"{self.type} {self.handler or '-'} {self.error}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """Everything about one event: its row, its record, what waits behind it, what was decided, what may be decided."""

    kind: Kind
    row: Mapping[str, Any]
    record: Mapping[str, Any]
    behind: Sequence[Mapping[str, Any]]
    behind_count: int
    audits: Sequence[Mapping[str, Any]]
    verdicts: Mapping[Action, Verdict]


def list_rows(connection: Connection[Any], meant: Meant, *, count: int) -> list[dict[str, Any]]:
    """Return rows, the latest first.

    Args:
        connection: idle; left idle.
        meant: which.
        count: how many at most.
    """
    with connection.transaction():
        return _read(connection, f"{meant.kind}_listed", meant.parameters(count=count))


def count_groups(connection: Connection[Any], meant: Meant) -> list[Group]:
    """Return what failed alike, the largest group first; left idle."""
    groups: dict[tuple[str, str, str], Group] = {}
    for row in _counted(connection, meant):
        key = (row["type"], row["handler"], row["error"])
        known = groups.get(key)
        groups[key] = Group(
            type=key[0],
            handler=key[1],
            error=key[2],
            events=row["events"] + (known.events if known else 0),
            first_at=min(row["first_at"], known.first_at) if known else row["first_at"],
            last_at=max(row["last_at"], known.last_at) if known else row["last_at"],
            sample=known.sample if known else row["sample"],
        )
    return sorted(groups.values(), key=lambda group: (-group.events, group.name))


def count_verdicts(
    connection: Connection[Any], meant: Meant, *, action: Action, skipped_too: bool = False
) -> Counter[Verdict]:
    """Return how many of the events would end how, if this were done now; left idle."""
    counts: Counter[Verdict] = Counter()
    for row in _counted(connection, meant):
        counts[verdict_of(meant.kind, row, action=action, skipped_too=skipped_too)] += row["events"]
    return counts


def verdict_of(kind: Kind, row: Mapping[str, Any], *, action: Action, skipped_too: bool = False) -> Verdict:
    """Return what would become of a row as it was read."""
    if kind == "parked":
        return decide_parked(action, ParkedFacts(**{one.name: row[one.name] for one in fields(ParkedFacts)}))
    facts = QuarantinedFacts(**{one.name: row[one.name] for one in fields(QuarantinedFacts)})
    return decide_quarantined(action, facts, skipped_too=skipped_too)


def check_ids(connection: Connection[Any], meant: Meant) -> None:
    """Say which of the ids name nothing.

    Raises:
        Refused: ``failed_event_missing``.
    """
    if meant.ids is None:
        return
    found: set[str] = set()
    for row in list_rows(connection, meant, count=len(meant.ids) * ROWS_PER_ID_MAX):
        found.update(ids_of(row))
    missing = [one for one in meant.ids if one not in found]
    if missing:
        raise Refused("failed_event_missing", f"nothing {_HELD[meant.kind]} has the id {', '.join(missing[:10])}")


ROWS_PER_ID_MAX = 100
"""An id may name several rows: of other accounts, or copies of one record."""

_HELD: Mapping[Kind, str] = {"parked": "parked", "quarantine": "in quarantine"}


def ids_of(row: Mapping[str, Any]) -> list[str]:
    """Return every id that a person may call a row by; the first one is the exact one."""
    place = f"{row['partition']}/{row['offset']}"
    places = [f"{shown_topic_id(row['topic_id'])}/{place}", f"{row['topic']}/{place}"]
    if row["event_id"] is None:
        return places
    whole = f"{row['account']}/{row['mode']}/{row['event_id']}"
    return [whole, row["event_id"], *places]


def show(connection: Connection[Any], event: str, *, kind: Kind, horizon_days: int) -> Shown:
    """Return everything about one event.

    Args:
        connection: idle; left idle.
        event: its id, as ``ids_of`` tells.
        kind: where it is looked for.
        horizon_days: as the processors have it.

    Raises:
        Refused: ``failed_event_missing``; the id names several, and the message tells their exact ids.
    """
    meant = Meant(kind=kind, wanted=Filter(decided=True), ids=(event,), horizon_days=horizon_days)
    check_ids(connection, meant)
    rows = list_rows(connection, meant, count=ROWS_PER_ID_MAX)
    if len(rows) > 1:
        exact = ", ".join(_most_exact(kind, row) for row in rows[:10])
        raise Refused("failed_event_missing", f"{event} names several; say which: {exact}")
    [row] = rows
    with connection.transaction():
        [record] = _read(connection, f"{kind}_shown", row)
        after = {"after_seq": row["seq"] if kind == "parked" else None, "order_key": row["order_key"]}
        behind = []
        if kind == "parked" or row["blocks"]:
            behind = _read(connection, "waiting_behind", {**after, "count": BEHIND_MAX})
        audits = _read(connection, "audits", {"subjects": subjects_of(row), "count": AUDITS_MAX})
    return Shown(
        kind=kind,
        row=row,
        record=record,
        behind=behind,
        behind_count=behind[0]["events"] if behind else 0,
        audits=audits,
        verdicts={action: verdict_of(kind, row, action=action) for action in ACTIONS},
    )


ACTIONS: tuple[Action, ...] = ("retry", "skip")


def _most_exact(kind: Kind, row: Mapping[str, Any]) -> str:
    """The identity names one parked event; of one event several records may be in quarantine."""
    ids = ids_of(row)
    return ids[0] if kind == "parked" else ids[-2]


def subjects_of(row: Mapping[str, Any]) -> list[str]:
    """Return the subjects under which the audit may speak of a row; the first one is used."""
    record = f"record {row['topic']}/{row['partition']}/{row['offset']} of topic {shown_topic_id(row['topic_id'])}"
    if row["event_id"] is None:
        return [record]
    return [f"event {row['account']}/{row['mode']}/{row['event_id']}", record]


def database_now(connection: Connection[Any]) -> datetime:
    """Return the database's clock; left idle."""
    with connection.transaction():
        now: datetime = _read(connection, "now", {})[0]["now"]
    return now


def _counted(connection: Connection[Any], meant: Meant) -> list[dict[str, Any]]:
    with connection.transaction():
        return _read(connection, f"{meant.kind}_counted", meant.parameters(count=GROUPS_MAX))


def _read(connection: Connection[Any], name: str, given: Mapping[str, Any]) -> list[dict[str, Any]]:
    limits = {"lock_timeout": f"{LOCK_TIMEOUT_MS}ms", "statement_timeout": f"{STATEMENT_TIMEOUT_MS}ms"}
    connection.execute(_OPERATING["limits"], limits)
    with connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(_SQL[name], given).fetchall()
