"""Writes docs/reference/failures.md from the codes in ``onceflow_schemas.failure``: ``python docs/generate_failures.py``.

Rule: the page is never edited by hand; a test compares it with what this program would write.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from onceflow_schemas import failure
from onceflow_schemas.failure_kind import FailureKind

PAGE = Path(__file__).parent / "reference" / "failures.md"

HEAD = """\
# Failure codes

Written by `python docs/generate_failures.py` from `onceflow_schemas/failure.py`; do not edit it.

A code is a contract: it is never reused with another meaning, so alarms and runbooks may key on it. It stands in refusal
bodies of the bridge (`{"error": {"code", "message", "hint"}}`), in `onceflow.quarantine`, `onceflow.progress` and
`onceflow.lane`, in logs, metrics, and in what a command prints. *Who* must act: the **sender** of the request, an
**operator**, a **developer**, or **nobody**, because it heals alone.
"""

GROUPS: tuple[tuple[str, str, Mapping[str, FailureKind]], ...] = (
    (
        "Requests that the bridge refuses",
        "Nothing is stored. 4xx is answered to what no retry can mend, 503 to what Stripe should send again.",
        failure.REQUEST_FAILURES,
    ),
    (
        "Bodies that are kept but not handled",
        "The signature held, so the bridge answers 200 and the processor puts the event into quarantine with its bytes.",
        failure.CONTENT_FAILURES,
    ),
    (
        "Records and handlers: quarantine",
        "The partition goes on; record, reason and, for handlers, the traceback are in `onceflow.quarantine`.",
        failure.RECORD_FAILURES,
    ),
    (
        "Handlers: parked, or asked for",
        "The event waits and is tried again; what is quarantined for one of these needs a decision.",
        failure.PARKING_FAILURES,
    ),
    (
        "Partitions and lanes that stand still",
        "`progress.stopped` holds the code of a partition, `lane.state` that of a lane (`behind`, `stopped:<code>`).",
        failure.PARTITION_FAILURES,
    ),
    (
        "Verified events and outcomes that cannot be stored as they are",
        "Rare, and each needs somebody.",
        failure.PUBLISH_FAILURES,
    ),
    (
        "Decisions that are refused",
        "Nothing was changed; the dry run says what would be possible.",
        failure.DECISION_FAILURES,
    ),
    (
        "Replays that are refused",
        "Nothing was read or moved. See [replay](../operating/replay.md).",
        failure.REPLAY_FAILURES,
    ),
    (
        "Findings and proofs",
        "See [findings](../operating/findings.md) and [the proof](../operating/verify.md).",
        failure.RECONCILER_FAILURES,
    ),
    (
        "Decisions about failed events, and dead letters",
        "See [parked and quarantined](../operating/parked-and-quarantined.md).",
        failure.FAILED_EVENT_FAILURES,
    ),
    (
        "Operations that are refused when they are asked for",
        "The error rises in the handler or application that asked; nothing was written or sent. See [operations](operations.md).",
        failure.ASKED_FAILURES,
    ),
    (
        "Operations that wait for a person",
        "`review.code`; `onceflow operations show` tells the rest.",
        failure.REVIEW_FAILURES,
    ),
    ("While running", "They pass by themselves.", failure.SERVICE_FAILURES),
    ("At start", "The process says every fault at once and ends with exit code 3, 4 or 5.", failure.START_FAILURES),
)


def render() -> str:
    """Return the page."""
    parts = [HEAD]
    for title, about, kinds in GROUPS:
        rows = [
            f"| `{kind.code}` | {kind.actor} | {_cell(kind.meaning)} | {_cell(kind.hint)} |" for kind in kinds.values()
        ]
        parts.append(
            "\n".join([f"## {title}", about, "", "| code | who | meaning | next step |", "|---|---|---|---|", *rows])
        )
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(render(), "utf-8")
    print(f"wrote {PAGE}")
