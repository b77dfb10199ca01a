"""Writes docs/operating/findings.md from the kinds in ``onceflow_schemas.findings``: ``python docs/generate_findings.py``.

Rule: the page is never edited by hand; a test compares it with what this program would write.
"""

from __future__ import annotations

from pathlib import Path

from onceflow_schemas.findings import FINDING_KINDS, FindingKind

PAGE = Path(__file__).parent / "operating" / "findings.md"

HEAD = """\
# Findings

Written by `python docs/generate_findings.py` from `onceflow_schemas/findings.py`; do not edit it.

`onceflow reconcile` compares the ledgers once a minute and writes what differs into `onceflow.finding`. A finding is `open` until it is gone or
was healed (`healed`); one that comes back is `recurring`; one that a person takes as it is (`accepted`) stays so as long as its facts do.

```sh
onceflow findings list                 # what is open; --all, --kind, --account, --json
onceflow findings show ID              # on one page: what, since when, money at stake, what was tried, the first command
onceflow findings heal ID --reason 'now' --execute       # what may be done without a decision, at once
onceflow findings accept ID --reason 'known' --execute
onceflow reconcile --once --dry-run    # look now, and change nothing
```

`onceflow_reconciler_missed_total`, `onceflow_reconciler_drifts_total` and `onceflow_reconciler_table_findings{kind}` are the metrics to alarm on; *money* below says
whether money is at risk while a finding of the kind is open."""


def render() -> str:
    """Return the page."""
    return "\n\n".join([HEAD, *(_section(kind) for kind in FINDING_KINDS.values())]) + "\n"


def _section(kind: FindingKind) -> str:
    return f"## `{kind.name}`: {kind.title}\n\n{kind.meaning}\n\n**Money**: {kind.money}. First: `{kind.first}`."


if __name__ == "__main__":
    PAGE.write_text(render(), "utf-8")
    print(f"wrote {PAGE}")
