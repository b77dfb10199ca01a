"""What a look at whole ledgers shows, as findings.

Rule: a finding says from when on it was looked at, and only a look that begins no later may heal it.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from psycopg import Connection

from onceflow_reconciler.finding import Finding
from onceflow_reconciler.finding_store import record
from onceflow_reconciler.verify.question import Answer
from onceflow_schemas.ledger_findings import LEDGER_KINDS
from onceflow_schemas.sql import queries
from onceflow_schemas.times import format_time

MISSED: Final = "missed_event"
EVER: Final = datetime(1970, 1, 1, tzinfo=UTC)

_SQL = queries("reconcile")


def keep(connection: Connection[Any], answer: Answer, *, mode: str, since: datetime | None, is_whole: bool) -> int:
    """Write what is unexplained as findings, and heal what this look would have shown; return how many were seen.

    Args:
        connection: in a transaction, or in autocommit.
        answer: of the look.
        mode: of the deployment.
        since: where its window began; None for all.
        is_whole: all ledgers were looked at, Stripe's too, and nothing was left out.
    """
    begins = format_time(since or EVER)
    with connection.transaction():
        known = {(kind, subject): facts for kind, subject, facts in _open(connection)}
        found: dict[tuple[str, str], Finding] = {}
        for kind, subject, detail in answer.unexplained:
            if kind in LEDGER_KINDS:
                facts = known.get((kind, subject), {})
                # What is known stays as it is: other facts would be another finding.
                kept = facts if facts.get("detail") == detail else {"detail": detail, "since": begins}
                found[kind, subject] = Finding(kind, subject, None, mode, kept)
            elif kind == MISSED and is_whole and (kind, subject) not in known:
                _, account, _, event_id = subject.replace("/", " ").split(" ", 3)
                found[kind, subject] = Finding(kind, subject, account, mode, {"event_id": event_id, "detail": detail})
        record(connection, list(found.values()))
        if len(answer.unexplained) == answer.unexplained_count:
            accepted = {(kind, subject) for kind, subject, *_ in answer.accepted}
            gone = [
                (kind, subject)
                for (kind, subject), facts in known.items()
                if kind != MISSED
                and (kind, subject) not in found
                and (kind, subject) not in accepted
                and (is_whole or (kind not in STRIPE_KINDS and facts.get("since", begins) >= begins))
            ]
            connection.execute(
                _SQL["gone_of"], {"kinds": [kind for kind, _ in gone], "subjects": [one for _, one in gone]}
            )
    return len(found)


def oldest(connection: Connection[Any]) -> datetime | None:
    """Return where the window of the oldest open finding of ledgers began."""
    [(since,)] = connection.execute(_SQL["oldest_of_ledgers"], {"kinds": list(_BY_LOOK)}).fetchall()
    return None if since is None else datetime.fromisoformat(since)


def _open(connection: Connection[Any]) -> list[Any]:
    return connection.execute(_SQL["open_of_kinds"], {"kinds": [*LEDGER_KINDS, MISSED]}).fetchall()


STRIPE_KINDS: Final = frozenset(
    {
        "event_differs",
        "event_not_listed",
        "object_not_listed",
        "proof_differs",
        "proof_of_another",
        "hour_differs",
        "hours_unproved",
    }
)
"""What only a look at Stripe, or at a proof, can say."""
_BY_LOOK: Final = tuple(kind for kind in LEDGER_KINDS if kind not in STRIPE_KINDS)
