"""Writes docs/operating/findings.md and a page per kind beside it from the kinds in ``onceflow_schemas.findings``.

``python docs/generate_findings.py``.  Rule: the pages are never edited by hand; a test compares them with what this program would write.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from onceflow_reconciler.remedies import MEANINGS, REMEDIES
from onceflow_schemas.finding_kind import FindingKind, Risk
from onceflow_schemas.findings import FINDING_KINDS
from onceflow_schemas.ledger_findings import LEDGER_KINDS

OPERATING = Path(__file__).parent / "operating"
LIST = "findings.md"
PAGES = "findings"
_DOCUMENT = re.compile(r"docs/((?:operating|guides)/[a-z-]+\.md)")

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

`onceflow_reconciler_open_findings{kind}` is the metric to alarm on, beside `onceflow_reconciler_missed_total` and `onceflow_reconciler_drifts_total`; *money* says
whether money is at risk while a finding of the kind is open. Each kind has a page of its own.
"""

RISKS: Mapping[Risk, str] = MappingProxyType(
    {
        "yes": "Yes: money has moved, or was to move, otherwise than onceflow's ledger says, or nobody knows.",
        "possible": "Possibly: it depends on the events or records behind it.",
        "no": "No: nothing is lost by it.",
    }
)


def render() -> dict[str, str]:
    """Return the pages by their paths below docs/operating."""
    return {LIST: _list()} | {f"{PAGES}/{kind.name}.md": _page(kind) for kind in FINDING_KINDS.values()}


def _list() -> str:
    rows = [
        f"| [`{kind.name}`]({PAGES}/{kind.name}.md) | {kind.title} | {kind.money} | `{kind.first}` |"
        for kind in FINDING_KINDS.values()
    ]
    return "\n".join([HEAD, "| Kind | What | Money | First |", "|---|---|---|---|", *rows]) + "\n"


def _page(kind: FindingKind) -> str:
    sections = (
        f"# `{kind.name}`: {kind.title}",
        "Written by `python docs/generate_findings.py`; do not edit it. All kinds: [findings](../findings.md).",
        f"## What it means\n\n{_linked(kind.meaning)}",
        f"## Is money at risk\n\n{RISKS[kind.money]}",
        f"## The first command\n\n```sh\n{kind.first}\n```",
        f"## What onceflow does by itself\n\n{_by_itself(kind)}",
        f"## What you can do\n\n{_linked(kind.person)}",
        f"## Where it is seen\n\n{_seen(kind)}",
    )
    return "\n\n".join(sections) + "\n"


def _by_itself(kind: FindingKind) -> str:
    action = REMEDIES.get(kind.name)
    ending = "A later look that does not find it any more makes it `healed`; one that finds it again, `recurring`."
    if action is None:
        return f"Nothing that would change a ledger: it needs a person. {ending}"
    return (
        f"Its remedy is `{action}`: {MEANINGS[action]}. It is audited, may be done twice without harm, and "
        f"`onceflow findings heal ID --reason 'now' --execute` does it at once. {ending}"
    )


def _seen(kind: FindingKind) -> str:
    by = (
        "The look at whole ledgers once an hour (`reconciler.ledger_minutes`), and `onceflow verify`, which counts it as unexplained until it is gone or accepted."
        if kind.name in LEDGER_KINDS
        else "The reconciler's look, once a minute (`reconciler.cycle_seconds`)."
    )
    return f'{by} Metric: `onceflow_reconciler_open_findings{{kind="{kind.name}"}}`.'


def _linked(text: str) -> str:
    return _DOCUMENT.sub(lambda found: f"[{Path(found[1]).stem}](../../{found[1]})", text)


if __name__ == "__main__":
    for place, text in render().items():
        page = OPERATING / place
        page.parent.mkdir(exist_ok=True)
        page.write_text(text, "utf-8")
    print(f"wrote {OPERATING / LIST} and {len(FINDING_KINDS)} pages")
