"""Codes of the reconciler's commands.

Rule: as in ``onceflow_schemas.failure``, which takes this table in.
"""

from __future__ import annotations

from onceflow_schemas.failure_kind import kinds

RECONCILER_FAILURES = kinds(
    "operator",
    (
        "finding_missing",
        "There is no finding with this number.",
        "`onceflow findings list --all` shows those that there are.",
    ),
)
