"""``onceflow demo``: the whole road on this machine, with everything killed, and the count.

Rule: the demo sees no settings of any other installation, whatever stands in the environment or in this folder.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onceflow.command_options import Json

REQUESTS = 2_000


def demo(
    *,
    seed: Annotated[int | None, typer.Option("--seed", help="Repeat the traffic and deaths of an earlier run.")] = None,
    requests: Annotated[int, typer.Option("--requests", min=200, help="How many requests to send.")] = REQUESTS,
    data: Annotated[
        Path | None, typer.Option("--data", metavar="DIR", help="Keep data and logs here; removed when left out.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Send 2,000 webhooks, ask for 250 refunds and charges of a Stripe that loses answers, kill every part, and count."""
    from onceflow.demo.run import DemoOptions, run
    from onceflow.settings import demo_environment, forget_libpq_variables

    forget_libpq_variables()
    options = DemoOptions(environment=demo_environment(), seed=seed, requests=requests, folder=data, as_json=as_json)
    raise typer.Exit(run(options))
