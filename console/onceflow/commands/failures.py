"""``onceflow parked`` and ``onceflow quarantine``: what failed, and what a person decides about it.

Rule: ``retry`` and ``skip`` are a dry run unless ``--execute`` is given with a reason, which is kept in the audit; nothing
runs here, a processor carries it out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onceflow.command_options import Config, Json, Set, setting_sources
from onceflow.failure_options import Kind, checked_ids, with_filter
from onceflow.results import say, write_object, write_table
from onceflow_processor.failures.filter import Filter
from onceflow_schemas.failure_decisions import Action, Verdict

if TYPE_CHECKING:
    from psycopg import Connection

    from onceflow_processor.failures.deciding import Order
    from onceflow_processor.failures.overview import Meant
    from onceflow_schemas.failure import Refused

NEEDS = ("database.url",)
LIMIT_DEFAULT = 50
LIMIT_MAX = 10_000
SAMPLE_EVENTS = 10

Limit = Annotated[int, typer.Option("--limit", min=1, max=LIMIT_MAX, help="How many at most.")]
AtMost = Annotated[int | None, typer.Option("--limit", min=1, help="How many at most; all when left out.")]
Groups = Annotated[bool, typer.Option("--groups", help="What failed alike, with how many and since when.")]
Id = Annotated[str, typer.Argument(metavar="ID", help="As list tells: an event id, or TOPIC/PARTITION/OFFSET.")]
Ids = Annotated[list[str] | None, typer.Argument(metavar="ID", help="Only these; or choose by options.")]
All = Annotated[bool, typer.Option("--all", help="All of them; needed with --execute where nothing else chooses.")]
Reason = Annotated[str | None, typer.Option("--reason", help="Why, for the audit; needed with --execute.")]
Execute = Annotated[bool, typer.Option("--execute/--dry-run", help="Do it; without this flag it is only shown.")]

HELP: Mapping[Kind, str] = {
    "parked": "Events that wait for a retry, or behind an earlier one of their key.",
    "quarantine": "Events and records that need a person.",
}
DECISIONS: Mapping[Kind, Mapping[Action, str]] = {
    "parked": {
        "retry": "Try the first event of each key now instead of at its time.",
        "skip": "Leave events out: they go to quarantine as skipped, and their keys go on.",
    },
    "quarantine": {
        "retry": "Have events run again, each at its place in its key; records without identity are judged again.",
        "skip": "Leave them in quarantine for good, and let their keys go on.",
    },
}


def _app(kind: Kind) -> typer.Typer:
    app = typer.Typer(help=HELP[kind], no_args_is_help=True, rich_markup_mode=None)
    app.command("list")(with_filter(kind)(_list_command(kind)))
    app.command("show")(_show_command(kind))
    for action, told in DECISIONS[kind].items():
        app.command(action, help=told)(with_filter(kind)(_decision_command(kind, action)))
    return app


def _list_command(kind: Kind) -> Callable[..., None]:
    def list_all(
        *,
        wanted: Filter,
        groups: Groups = False,
        limit: Limit = LIMIT_DEFAULT,
        config: Config = None,
        assignments: Set = None,
        as_json: Json = False,
    ) -> None:
        """List them, the latest first; or what failed alike."""
        from onceflow_processor.failures.overview import Meant

        with _session(config, assignments) as (connection, _):
            show = _list_groups if groups else _list_rows
            show(connection, Meant(kind=kind, wanted=wanted), limit=limit, as_json=as_json)

    return list_all


def _show_command(kind: Kind) -> Callable[..., None]:
    def show(event: Id, *, config: Config = None, assignments: Set = None, as_json: Json = False) -> None:
        """Show everything about one: its record, how it failed, what waits behind it, what was decided, the next step."""
        checked_ids([event])
        from onceflow.failure_overview import shown, shown_lines
        from onceflow_processor.failures import overview

        with _session(config, assignments) as (connection, horizon_days):
            found = overview.show(connection, event, kind=kind, horizon_days=horizon_days)
        if as_json:
            write_object(shown(found))
        else:
            print("\n".join(shown_lines(found)))

    return show


def _decision_command(kind: Kind, action: Action) -> Callable[..., None]:
    def decide(
        ids: Ids = None,
        *,
        wanted: Filter,
        every: All = False,
        limit: AtMost = None,
        reason: Reason = None,
        execute: Execute = False,
        config: Config = None,
        assignments: Set = None,
        as_json: Json = False,
    ) -> None:
        meant = _chosen(kind, wanted, ids, every=every, execute=execute)
        said = (reason or "").strip()
        if execute and not said:
            raise typer.BadParameter("--execute needs --reason with some words: they are kept in the audit")
        from onceflow_processor.failures import overview

        with _session(config, assignments) as (connection, horizon_days):
            meant = replace(meant, horizon_days=horizon_days)
            overview.check_ids(connection, meant)
            sample = overview.list_rows(connection, meant, count=SAMPLE_EVENTS)
            verdicts = overview.count_verdicts(connection, meant, action=action, skipped_too=wanted.decided)
            if meant.ids is not None and not any(verdict.acts for verdict in verdicts):
                raise _refused(verdicts)
            if execute:
                order = _order(meant, action, reason=said, again=wanted.decided, limit=limit)
                verdicts = _carry_out(connection, order, events=verdicts.total())
        shown = _Result(kind=kind, action=action, verdicts=verdicts, sample=sample, executed=execute)
        shown.write(as_json=as_json)

    return decide


def _chosen(kind: Kind, wanted: Filter, ids: list[str] | None, *, every: bool, execute: bool) -> Meant:
    """Return which events are meant; ids find those that were decided about too, so that it can be said."""
    from onceflow_processor.failures.overview import Meant

    given = checked_ids(ids)
    chosen = [given is not None, not wanted.is_empty, every].count(True)
    if chosen > 1:
        raise typer.BadParameter("choose by ids, by options, or with --all, not by two of them")
    if execute and not chosen:
        raise typer.BadParameter("--execute without ids and options would mean all of them: say --all if you do")
    if given is not None:
        return Meant(kind=kind, wanted=Filter(decided=True), ids=given)
    return Meant(kind=kind, wanted=wanted)


def _order(meant: Meant, action: Action, *, reason: str, again: bool, limit: int | None) -> Order:
    from onceflow.operator_name import operator_name
    from onceflow_processor.failures.deciding import Order

    return Order(action=action, meant=meant, who=operator_name(), reason=reason, skipped_too=again, events_max=limit)


def _carry_out(connection: Connection[Any], order: Order, *, events: int) -> Counter[Verdict]:
    from onceflow.progress_bar import progress_bar
    from onceflow_processor.failures.deciding import carry_out

    with progress_bar(order.action, total=min(events, order.events_max or events)) as tell:
        return carry_out(connection, order, told=lambda done: tell(done.events)).verdicts


def _refused(verdicts: Mapping[Verdict, int]) -> Refused:
    from onceflow_schemas.failure import Refused

    return Refused("decision_refused", "; ".join(verdict.becomes for verdict in verdicts))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Result:
    """What would be done, or was."""

    kind: Kind
    action: Action
    verdicts: Counter[Verdict]
    sample: Sequence[Mapping[str, Any]]
    executed: bool

    def write(self, *, as_json: bool) -> None:
        from onceflow.failure_overview import LIST_COLUMNS, listed, listed_cells

        if as_json:
            counts = {verdict.value: count for verdict, count in self.verdicts.most_common()}
            changed = sum(count for verdict, count in self.verdicts.items() if verdict.acts)
            result = {
                "decision": f"{self.kind} {self.action}",
                "executed": self.executed,
                "events": self.verdicts.total(),
            }
            sample = [listed(self.kind, row) for row in self.sample]
            write_object({**result, "changed": changed, "verdicts": counts, "sample": sample})
            return
        if self.sample:
            write_table(LIST_COLUMNS[self.kind], [listed_cells(self.kind, row) for row in self.sample])
        for verdict, count in self.verdicts.most_common():
            print(f"{count:>9,}  {verdict.becomes}")
        if not self.verdicts:
            print("nothing of that kind is there")
        print("done" if self.executed else "dry run: nothing was changed; add --execute --reason '...'")


def _list_rows(connection: Connection[Any], meant: Meant, *, limit: int, as_json: bool) -> None:
    from onceflow.failure_overview import LIST_COLUMNS, listed, listed_cells
    from onceflow_processor.failures import overview

    rows = overview.list_rows(connection, meant, count=limit)
    if as_json:
        for row in rows:
            write_object(listed(meant.kind, row))
    else:
        write_table(LIST_COLUMNS[meant.kind], [listed_cells(meant.kind, row) for row in rows])
    every = len(rows) if len(rows) < limit else sum(group.events for group in overview.count_groups(connection, meant))
    say(f"{len(rows):,} of {every:,}")


def _list_groups(connection: Connection[Any], meant: Meant, *, limit: int, as_json: bool) -> None:
    from onceflow.failure_overview import GROUP_COLUMNS, group_cells, group_object
    from onceflow_processor.failures import overview

    groups = overview.count_groups(connection, meant)
    if as_json:
        for group in groups[:limit]:
            write_object(group_object(group))
    else:
        write_table(GROUP_COLUMNS, [group_cells(group) for group in groups[:limit]])
    say(f"{len(groups[:limit]):,} of {len(groups):,} groups, {sum(group.events for group in groups):,} events in all")


@contextmanager
def _session(config: Path | None, assignments: list[str] | None) -> Iterator[tuple[Connection[Any], int]]:
    """Open the database of the settings, with the schema of this release; yields the horizon in days too."""
    from onceflow.database import session
    from onceflow.settings import load_settings
    from onceflow_processor.schema_check import check_schema

    sources = setting_sources(config=config, kafka_config=None, assignments=assignments)
    settings = load_settings(sources, needs=NEEDS).settings
    with session(settings.database.url.get_secret_value(), role="failures") as connection:
        check_schema(connection)
        yield connection, settings.processor.horizon_days


parked = _app("parked")
quarantine = _app("quarantine")
