"""Writes diagrams and tables of docs/reference/operations.md from the table in the code: ``python docs/generate_operations.py``.

Rule: what stands between the two marks of the page is never edited by hand; a test compares it with what this program makes.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

from onceflow_schemas.operations.advance import advance
from onceflow_schemas.operations.calls import Charge, StripeCall
from onceflow_schemas.operations.evidence import Evidence, Proof
from onceflow_schemas.operations.freeze import freeze
from onceflow_schemas.operations.moves import Change
from onceflow_schemas.operations.operation import SETTLED, Operation, Role, State

PAGE = Path(__file__).parent / "reference" / "operations.md"
BEGIN, END = "<!-- generated: python docs/generate_operations.py -->\n", "<!-- end of what is generated -->\n"

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CALL = StripeCall.refund(charge="ch_1")
CHARGE = Charge(amount=100, currency="usd", payment_method="pm_1")

SENT: dict[str, Any] = {"sent": True, "last_sent_at": NOW}
SITUATIONS: dict[str, dict[str, Any]] = {
    "answer to the first send": {"state": State.SENDING},
    "answer, earlier try possible": {"state": State.SENDING, **SENT},
    "read, never sent": {"state": State.REQUESTED},
    "read, unknown": {"state": State.UNKNOWN, **SENT},
    "read, pending": {"state": State.PENDING, **SENT},
    "in review for want of evidence": {"state": State.REVIEW, "review_code": "operation_not_found", **SENT},
    "succeeded": {"state": State.SUCCEEDED, **SENT},
    "failed": {"state": State.FAILED, **SENT},
    "canceled": {"state": State.CANCELED, **SENT},
}

DECIDED = (
    (State.REQUESTED, State.SENDING, "attempt committed"),
    (State.UNKNOWN, State.SENDING, "attempt committed"),
    (State.PENDING, State.SENDING, "attempt of the cancel committed"),
    (State.REQUESTED, State.REVIEW, "window over, nothing found"),
    (State.UNKNOWN, State.REVIEW, "window over, nothing found"),
)
"""Arrows that are no proof but a decision (``decide``); the third is only a charge's."""


NEVER = {
    (Role.CREATE, State.PENDING),
    (Role.CREATE, State.SUCCEEDED),
    (Role.CANCEL, State.REQUESTED),
    (Role.CANCEL, State.UNKNOWN),
}
"""An intent that was only created is not pending; while one is being closed, the charge is."""


def operation(role: Role, **fields: Any) -> Operation:
    """An operation whose present step has that role."""
    steps = freeze(CALL if role is Role.CALL else CHARGE, operation_id=UUID(int=0))
    step = [step.name for step in steps].index(role.value)
    return Operation(
        id=UUID(int=0), account="acct_1", mode="test", effect="e", subject="s", occurrence=1, order_key=None, args={},
        steps=steps, step=step, api_version="", requested_at=NOW, window_from=NOW, external_id=None if step == 0 else "pi_1",
        **fields,
    )  # fmt: skip


def change(before: Operation, proof: Proof) -> Change | None:
    """What the proof makes of it; None for what cannot happen."""
    if (before.role, before.state) in NEVER:
        return None
    read = before.state is not State.SENDING
    try:
        return advance(
            before, Evidence(proof=proof, from_lookup=read, external_id=before.external_id or "pi_1"), now=NOW
        )
    except AssertionError:
        return None


def transitions(role: Role) -> Iterator[tuple[State, State, Proof]]:
    """Every change of state that a proof can make in a step of that role."""
    for fields in SITUATIONS.values():
        before = operation(role, **fields)
        for proof in Proof:
            after = change(before, proof)
            if after is not None and after.state is not before.state:
                yield before.state, after.state, proof


def diagram(title: str, roles: tuple[Role, ...]) -> str:
    """A state diagram in mermaid's form."""
    labels: dict[tuple[State, State], dict[str, None]] = {}
    for before, after, about in DECIDED:
        if before is not State.PENDING or Role.CANCEL in roles:
            labels.setdefault((before, after), {})[about] = None
    for role in roles:
        for before, after, proof in transitions(role):
            labels.setdefault((before, after), {})[proof.value] = None
    arrows = [f"    {before} --> {after}: {', '.join(about)}" for (before, after), about in sorted(labels.items())]
    ends = [f"    {state} --> [*]" for state in sorted(SETTLED)]
    return "\n".join(
        [f"### {title}", "", "```mermaid", "stateDiagram-v2", "    [*] --> requested", *arrows, *ends, "```"]
    )


def cell(before: Operation, proof: Proof) -> str:
    """What happens, in a word or two."""
    after = change(before, proof)
    if after is None:
        return ""
    if after.step != before.step:
        return f"{after.state}, {before.steps[after.step].name}"
    return after.state.value if after.state is not before.state else "-"


def table(role: Role) -> str:
    """All proofs in all situations of a step."""
    rows = [
        f"| {proof.value} | {' | '.join(cell(operation(role, **fields), proof) for fields in SITUATIONS.values())} |"
        for proof in Proof
    ]
    title = {
        Role.CALL: "the only call of an operation",
        Role.CREATE: "the create of a charge",
        Role.CONFIRM: "the confirm of a charge",
        Role.CANCEL: "the cancel of a charge",
    }[role]
    head = f"| proof | {' | '.join(SITUATIONS)} |"
    return "\n".join([f"### Proofs: {title}", "", head, "|---" * (len(SITUATIONS) + 1) + "|", *rows])


def render() -> str:
    """Return what stands between the marks."""
    charge = (Role.CREATE, Role.CONFIRM, Role.CANCEL)
    parts = [diagram("One call", (Role.CALL,)), diagram("A charge", charge), *(table(role) for role in Role)]
    return "\n" + "\n\n".join(parts) + "\n\n"


def page(text: str) -> str:
    """Return the page with its generated part made anew."""
    before, rest = text.split(BEGIN)
    return before + BEGIN + render() + END + rest.split(END)[1]


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text("utf-8")), "utf-8")
    print(f"wrote {PAGE}")
