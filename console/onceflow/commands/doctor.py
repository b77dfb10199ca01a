"""``onceflow doctor``: a tick or a cross with the fix for everything that the services depend on.

Rule: it changes nothing, ends in bounded time with dependencies away, and shows no secret.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onceflow.command_options import Config, Json, KafkaConfig, Live, Set, setting_sources
from onceflow.commands import bridge, lanes, operate, process, progress, relay
from onceflow.results import write_object

if TYPE_CHECKING:
    from onceflow.doctor.checked import Checked

SERVICES = ("bridge", "process", "relay")
NEEDS = {
    "bridge": bridge.NEEDS,
    "process": process.NEEDS,
    "operate": operate.NEEDS,
    "relay": relay.NEEDS,
    "operator": tuple(dict.fromkeys((*progress.SET_NEEDS, *lanes.NEEDS))),
}


def doctor(
    *,
    part: Annotated[
        list[str] | None,
        typer.Option(
            "--part",
            help="bridge, process, operate, relay or operator (who runs progress, lanes, outcomes, operations): what these"
            " settings are for; repeatable, bridge, process and relay by default.",
        ),
    ] = None,
    config: Config = None,
    kafka_config: KafkaConfig = None,
    assignments: Set = None,
    live: Live = False,
    as_json: Json = False,
) -> None:
    """Look at everything that onceflow depends on; change nothing."""
    parts = list(dict.fromkeys(part or SERVICES))
    unknown = [one for one in parts if one not in NEEDS]
    if unknown:
        raise typer.BadParameter(f"--part takes {', '.join(NEEDS)}, not {unknown[0]}")
    from onceflow.doctor.checked import PARTS, exit_status
    from onceflow.doctor.examine import examine
    from onceflow.redaction import redacted
    from onceflow.settings import read_settings

    sources = setting_sources(config=config, kafka_config=kafka_config, assignments=assignments, live=live)
    needs = dict.fromkeys(name for one in parts for name in NEEDS[one])
    loaded = read_settings(sources, needs=tuple(needs))
    lines = []
    for line in examine(loaded, parts=[one for one in PARTS if one in parts], folder=Path.cwd()):
        lines.append(line)
        if as_json:
            write_object(
                {"subject": line.subject, "ok": line.ok, "found": redacted(line.found), "fix": redacted(line.fix)}
            )
        else:
            _write(line)
    raise typer.Exit(exit_status(lines))


def _write(line: Checked) -> None:
    from rich.console import Console
    from rich.text import Text

    from onceflow.redaction import redacted

    utf8 = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    mark = ("✓" if line.ok else "✗") if utf8 else ("ok" if line.ok else "NO")
    text = Text.assemble((mark, "green" if line.ok else "bold red"), f" {line.subject}: {redacted(line.found)}")
    if not line.ok:
        text.append(f"\n  fix: {redacted(line.fix)}")
    # Without a terminal there are no colours, and nothing is folded: a script reads whole lines.
    Console(file=sys.stdout, highlight=False, soft_wrap=True).print(text)
