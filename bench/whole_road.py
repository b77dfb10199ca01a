"""Bridge, processor and relay on one road, under a steady load."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.children import Child, onceflow_part, product_environment, running
from bench.stage import Road, Stage

PATH = "/webhooks/stripe"
PARTS = {"bridge": "bridge", "processor": "process", "relay": "relay"}


@dataclass(frozen=True, slots=True)
class WholeRoad:
    """A running road."""

    road: Road
    database_url: str
    webhook_url: str
    parts: dict[str, Child]


@contextmanager
def whole_road(stage: Stage, *, handlers: str = "bench.handlers:plain") -> Iterator[WholeRoad]:
    """Run the three parts on topics and a database of their own."""
    road = stage.road()
    with ExitStack() as stack:
        url = stack.enter_context(stage.database(road))
        settings = stage.settings(road, database_url=url, handlers=handlers)
        parts: dict[str, Child] = {}
        states: dict[str, Any] = {}
        for name, command in PARTS.items():
            part = onceflow_part(command, name=name, settings=settings, folder=stage.folder)
            parts[name], states[name] = stack.enter_context(part)
        yield WholeRoad(road, url, states["bridge"]["url"] + PATH, parts)


@contextmanager
def paced_load(stage: Stage, told: dict[str, Any]) -> Iterator[tuple[Child, Path]]:
    """Run ``bench.load`` at a steady rate; yields it and the file in which its answer will be."""
    answer_file = stage.folder / "paced.json"
    answer_file.unlink(missing_ok=True)
    argv = [sys.executable, "-m", "bench.load", json.dumps({**told, "answer_file": str(answer_file)})]
    with running("paced_load", argv, environment=product_environment({}), folder=stage.folder) as load:
        yield load, answer_file
