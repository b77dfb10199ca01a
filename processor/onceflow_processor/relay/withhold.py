"""A person's decision to leave out an outcome that cannot be published.

Rule: only the outcome that a stopped lane stands in front of may be withheld, so that nothing already published is
changed; a placeholder goes out under its id and sequence, so consumers see no gap.
"""

from __future__ import annotations

import re
from typing import Any, Final, Literal

import psycopg
from psycopg.rows import tuple_row

from onceflow_processor.relay.lane_store import LOCK_TIMEOUT_MS, STATEMENT_TIMEOUT_MS
from onceflow_schemas.sql import queries

CODE_PATTERN: Final = re.compile(r"[a-z][a-z_]{0,63}")
_SQL = queries("relay")

Withholding = Literal["withheld", "lane_not_stopped", "other_sequence"]


def withhold(connection: psycopg.Connection[Any], lane: int, *, seq: int, code: str) -> Withholding:
    """Leave out one outcome and open its lane again, in one transaction.

    Args:
        connection: any open one, not inside a transaction.
        lane: the lane, in state ``stopped:unpublishable``.
        seq: the sequence that its detail names.
        code: goes out in the header ``onceflow_withheld``: small letters and underscores.

    Returns:
        ``withheld``, or why nothing was changed: the lane is not stopped by an unpublishable outcome, or it stands in
        front of another sequence.

    Raises:
        ValueError: the code is not in its form.
        psycopg.Error: the database did not answer, or the lane is locked.
    """
    if not CODE_PATTERN.fullmatch(code):
        message = "a withholding code has small letters and underscores, at most 64"
        raise ValueError(message)
    limits = {"lock_timeout": str(LOCK_TIMEOUT_MS), "statement_timeout": str(STATEMENT_TIMEOUT_MS)}
    with connection.transaction(), connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(_SQL["limits"], limits)
        row = cursor.execute(_SQL["withhold"], {"lane": lane, "seq": seq, "code": code}).fetchone()
    assert row is not None, "the query always has one row"
    stopped, withheld = row
    if withheld:
        return "withheld"
    return "other_sequence" if stopped else "lane_not_stopped"
