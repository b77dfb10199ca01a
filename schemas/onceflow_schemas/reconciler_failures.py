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
    ("stripe_not_readable", "Stripe's list of events cannot be read.", "`onceflow doctor` tells what the API key may."),
    ("proof_refused", "A file is no proof, or cannot be written.", "Name another file, or move this one away."),
)
