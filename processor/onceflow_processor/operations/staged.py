"""Moves outcomes of application transactions into lanes.

Rule: a lane is held only for the last statement of a short transaction of ours, never by an application.  An outcome leaves
the staging table in the transaction that gives it its sequence: it is moved once, or not yet.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from uuid import UUID

import psycopg
import structlog
from psycopg import Connection

from onceflow_processor.arrays import Bigints, Texts, Uuids
from onceflow_processor.effects import FactKey, Outcome
from onceflow_processor.relay.lane_check import HANDS_OUT
from onceflow_processor.sqlstates import Meaning, meaning_of
from onceflow_processor.tail import outcome_columns
from onceflow_schemas.identity import lane_of
from onceflow_schemas.sql import queries
from onceflow_schemas.told_facts import FACTS_TOLD_MAX

PAGE_ROWS = 500
PAGES_MAX = 20
"""Pages that are looked through for outcomes of open lanes, when those of closed lanes wait before them."""

_AGAIN = frozenset({Meaning.RERUN, Meaning.LANE})

_SQL = queries("outcomes_staged")
_BATCH = queries("batch")
_SQL_LANES = queries("start")["lanes"]

log = structlog.get_logger("onceflow.operations")


class _Row(NamedTuple):
    id: int
    outcome_id: UUID
    type: str
    key: str
    value: bytes
    cause: str


class StagedOutcomes:
    """Moves staged outcomes over connections whose lanes were compared with the outcome topic (``check_lanes``)."""

    def __init__(self, *, set_limits: Callable[[Connection[Any]], None]) -> None:
        """``set_limits`` sets the time limits of a transaction (``attempt.limits_setter``)."""
        self._set_limits = set_limits

    def move(self, connection: Connection[Any]) -> int:
        """Move one page of outcomes in one transaction; return how many.  0: there is nothing to move now.

        Args:
            connection: idle; left so.

        Raises:
            psycopg.Error: the database is away or refuses.
        """
        try:
            with connection.transaction():
                return self._move(connection)
        except psycopg.Error as error:
            if meaning_of(error, ours=True) not in _AGAIN:
                raise
            # A lane was closed meanwhile, or somebody held it for too long: the next turn finds out.
            log.info("staged_outcomes_wait", sqlstate=error.sqlstate)
            return 0

    def _move(self, connection: Connection[Any]) -> int:
        self._set_limits(connection)
        alone = connection.execute(_SQL["move_alone"]).fetchone()
        if alone is None or not alone[0]:
            return 0
        states = {lane: state for lane, state, _ in connection.execute(_SQL_LANES).fetchall()}
        rows = _page(connection, {lane for lane, state in states.items() if state in HANDS_OUT}, lane_count=len(states))
        if not rows:
            return 0
        known = connection.execute(_SQL["known_outcomes"], {"outcome_ids": Uuids(row.outcome_id for row in rows)})
        repeats = {outcome_id for (outcome_id,) in known.fetchall()}
        outcomes = [
            Outcome(lane_of(row.key, len(states)), row.outcome_id, row.type, row.key, bytes(row.value), row.cause)
            for row in rows
            if row.outcome_id not in repeats
        ]
        connection.execute(_SQL["unstage"], {"ids": Bigints(row.id for row in rows)})
        if outcomes:
            connection.execute(_BATCH["tail_outcomes"], outcome_columns(outcomes, _facts_of(connection, outcomes)))
        return len(rows)


def _facts_of(connection: Connection[Any], outcomes: Sequence[Outcome]) -> dict[FactKey, str]:
    """Return the latest facts that the outcomes' causes claimed, in their applications' transactions, with those causes."""
    asked = {"causes": Texts({outcome.cause for outcome in outcomes}), "count": FACTS_TOLD_MAX}
    rows = connection.execute(_SQL["facts_of_causes"], asked).fetchall()
    return {(namespace, key): cause for namespace, key, cause in rows}


def _page(connection: Connection[Any], open_lanes: set[int], *, lane_count: int) -> list[_Row]:
    """Return the first outcomes, in their order, whose lanes hand out sequences."""
    found: list[_Row] = []
    after = 0
    for _ in range(PAGES_MAX):
        rows = [_Row(*row) for row in _read(connection, after)]
        found.extend(row for row in rows if lane_of(row.key, lane_count) in open_lanes)
        if found or len(rows) < PAGE_ROWS:
            break
        after = rows[-1].id
    return found


def _read(connection: Connection[Any], after: int) -> Sequence[tuple[Any, ...]]:
    return connection.execute(_SQL["staged"], {"after": after, "count": PAGE_ROWS}).fetchall()
