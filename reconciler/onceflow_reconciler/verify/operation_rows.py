"""Holds the rows of operations against themselves: an id is made of what the operation is for, a digest of its arguments.

Rule: rows are read in pages of one cursor, so that memory does not grow with them.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from onceflow_reconciler.verify.tables import Tables
from onceflow_schemas.identity import operation_id

OPERATIONS_MAX: Final = 2_000
"""Operations of one page."""


def judge_operations(tables: Tables) -> None:
    """Note those that are not what they were when they were asked for."""
    for page in tables.pages("operations_asked", rows_max=OPERATIONS_MAX):
        for found, account, mode, effect, subject, occurrence, args_differ in page:
            made = operation_id(account=account, mode=mode, effect=effect, subject=subject, occurrence=occurrence)
            why = fault_of_operation(found, made=made, args_differ=args_differ)
            if why is not None:
                tables.unexplained("operation_differs", f"operation {found}", why)
        # Whoever is told renews a lease meanwhile.
        tables.count(0)


def fault_of_operation(found: UUID, *, made: UUID, args_differ: bool) -> str | None:
    """Return why a row cannot be as it was written; None where it can."""
    if found != made:
        return f"account, mode, effect, subject and occurrence make the id {made}"
    return "its arguments, or its order key, are not those that it was asked for with" if args_differ else None
