"""A run from the command line: services up, the chosen groups, the table.

Rule: ``NAME=VALUE`` words and flags are read here and nowhere else; a goal that is missed makes exit code 1.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bench import verify
from bench.children import SideFailed
from bench.figures import Measured
from bench.groups import GROUPS, LARGE_GROUPS, Group, chosen
from bench.machine import about_machine, about_services
from bench.peers_environment import make_environment
from bench.report import (
    EVIDENCE,
    EVIDENCE_LARGE,
    EVIDENCE_VERIFY,
    LATEST,
    LATEST_LARGE,
    LATEST_VERIFY,
    as_table,
    write,
)
from bench.sizes import FULL, QUICK, Sizes
from bench.stage import Stage
from onceflow.embedded import EmbeddedServices
from onceflow.settings import user_cache_folder

LARGE_PROOF_EVENTS = 1_000_000
About = dict[str, dict[str, str]]
USAGE = "usage: python -m bench [ONLY=group,figure,...] [ROUNDS=n] [EVENTS=n, of the group verify] [--quick] [--output FILE]"


@dataclass(frozen=True, slots=True)
class Options:
    """What a run was asked for; ``output`` None is ``bench/latest.json`` (and nothing in a quick run)."""

    only: tuple[str, ...] = ()
    rounds: int | None = None
    events: int | None = None
    quick: bool = False
    output: Path | None = None

    @property
    def sizes(self) -> Sizes:
        """The sizes of this run."""
        sizes = QUICK if self.quick else FULL
        return replace(sizes, rounds=self.rounds or sizes.rounds, verify_events=self.events or sizes.verify_events)

    @property
    def is_large_proof(self) -> bool:
        """Whether it is the proof over a million events, which has a page of its own."""
        return self.events == LARGE_PROOF_EVENTS and not self.quick


def read_options(words: Sequence[str], *, only: tuple[str, ...] = ()) -> Options:
    """Read the words of the command line.

    Raises:
        ValueError: a word is not known, or its value cannot be used.
    """
    options = Options(only=only)
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name, _, value = word.partition("=")
        if word == "--quick":
            options = replace(options, quick=True)
        elif word == "--output" and rest:
            options = replace(options, output=Path(rest.pop(0)))
        elif name == "ONLY" and value:
            options = replace(options, only=tuple(value.split(",")))
        elif name == "ROUNDS" and value.isdecimal() and int(value) > 0:
            options = replace(options, rounds=int(value))
        elif name == "EVENTS" and value.isdecimal() and int(value) > 0:
            options = replace(options, events=int(value))
        else:
            raise ValueError(f"{word!r} is not understood")
    chosen(options.only)
    return options


def measure(stage: Stage, only: Sequence[str]) -> list[Measured]:
    """Run the chosen groups on a stage."""
    found: list[Measured] = []
    for group in chosen(only):
        stage.say(f"{group.name}:")
        try:
            found += group.measure(stage)
        except SideFailed as failed:
            # The other groups are still worth their time; the figures that are missing make the exit code.
            stage.say(f"bench: {group.name}: {failed}")
    return found


def main(words: Sequence[str], *, only: tuple[str, ...] = ()) -> int:
    """Run the bench; returns the exit code: 0, 1 a goal was missed or a side failed, 2 usage."""
    try:
        options = read_options(words, only=only)
    except ValueError as fault:
        print(f"{fault}\n{USAGE}", file=sys.stderr)
        return 2
    wanted = {figure.name for group in chosen(options.only) for figure in group.figures}
    folder = Path(tempfile.mkdtemp(prefix="onceflow-bench-"))
    measured, about = _run(options, folder)
    print(as_table(measured))
    for section in about.values():
        print("; ".join(f"{name} {text}" for name, text in section.items()))
    names = {one.figure.name for one in measured}
    if options.output is not None or not options.quick:
        latest, page = _places(names, options)
        write(measured, about=about, json_file=options.output or latest, page=page)
    failed = sorted(wanted - names)
    if failed:
        _say(f"bench: not measured: {', '.join(failed)}; the logs are in {folder}")
    else:
        shutil.rmtree(folder, ignore_errors=True)
    missed = [one.figure.name for one in measured if one.figure.is_met(one.value) is False]
    if missed and not options.quick:
        _say(f"bench: goals missed: {', '.join(missed)}")
    return 1 if failed or (missed and not options.quick) else 0


def _run(options: Options, folder: Path) -> tuple[list[Measured], About]:
    has_peers = any(group.has_peers for group in chosen(options.only))
    peer_python = make_environment(_say) if has_peers else Path(sys.executable)
    with EmbeddedServices(data_dir=folder / "data", cache_dir=user_cache_folder(), progress=_say) as services:
        stage = Stage(
            folder=folder,
            bootstrap=services.kafka_bootstrap,
            database_url=services.database_url,
            sizes=options.sizes,
            peer_python=peer_python,
            say=_say,
        )
        run = {"rounds": str(stage.sizes.rounds), "quick": "yes" if options.quick else "no"}
        about = {
            "machine": about_machine(folder),
            "settings": about_services(stage.bootstrap, stage.database_url) | run,
        }
        return measure(stage, options.only), about


def _places(names: set[str], options: Options) -> tuple[Path, Path | None]:
    """Return where the numbers go, and the page; None where the run is not what a page is about."""
    if options.is_large_proof and names == {figure.name for figure in verify.FIGURES}:
        return LATEST_VERIFY, EVIDENCE_VERIFY
    latest = LATEST_LARGE if names <= _names(LARGE_GROUPS) else LATEST
    pages = {_names(GROUPS): EVIDENCE, _names(LARGE_GROUPS): EVIDENCE_LARGE}
    return latest, None if options.quick or options.events is not None else pages.get(frozenset(names))


def _names(groups: Sequence[Group]) -> frozenset[str]:
    return frozenset(figure.name for group in groups for figure in group.figures)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
