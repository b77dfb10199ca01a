"""Operations that objects at Stripe name, as the comparison wants them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from psycopg import Connection

from onceflow_processor.arrays import Uuids
from onceflow_reconciler.compare_objects import Known
from onceflow_schemas.sql import queries

_SQL = queries("reconcile")


def known_operations(connection: Connection[Any], ids: Sequence[UUID]) -> dict[UUID, Known]:
    """Return those of the operations that there are."""
    if not ids:
        return {}
    rows = connection.execute(_SQL["operations_named"], {"ids": Uuids(ids)}).fetchall()
    return {
        row[0]: Known(
            state=row[1],
            external_id=row[2],
            surplus=frozenset(row[3]),
            amount=row[4],
            currency=row[5],
            effect=row[6],
            subject=row[7],
        )
        for row in rows
    }
