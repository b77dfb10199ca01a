"""``onceflow operations``: shows operations, and takes what a person decides about them.

Rule: ``resolve``, ``cancel`` and ``retry`` are a dry run unless ``--execute`` is given; each needs a reason, which is kept
in the audit, and a worker carries out what was decided.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal
from uuid import UUID

import typer

from onceflow.command_options import Config, Json, Set, setting_sources
from onceflow.results import say, write_object, write_table

if TYPE_CHECKING:
    from psycopg import Connection

    from onceflow.settings_model import Settings
    from onceflow_processor.operations.overview import Shown
    from onceflow_processor.operations.ruling import Decided, Decider

NEEDS = ("database.url",)
LIMIT_DEFAULT = 50
LIMIT_MAX = 10_000

app = typer.Typer(
    help="Durable operations: charges, refunds and other effects.", no_args_is_help=True, rich_markup_mode=None
)

Id = Annotated[UUID, typer.Argument(metavar="ID", help="The operation's id.")]
Reason = Annotated[str, typer.Option("--reason", help="Why, for the audit.")]
Execute = Annotated[bool, typer.Option("--execute/--dry-run", help="Do it; without this flag it is only shown.")]


@app.command("list")
def list_all(
    *,
    states: Annotated[
        list[str] | None, typer.Option("--state", metavar="STATE", help="Only those in this state; repeatable.")
    ] = None,
    is_open: Annotated[bool, typer.Option("--open", help="Only those that are not settled.")] = False,
    effect: Annotated[str | None, typer.Option("--effect", help="Only those of this effect.")] = None,
    account: Annotated[str | None, typer.Option("--account", help="Only those of this account.")] = None,
    order_key: Annotated[str | None, typer.Option("--order-key", help="Only those with this order key.")] = None,
    subject: Annotated[str | None, typer.Option("--subject", help="Only those for this subject.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=LIMIT_MAX, help="How many at most.")] = LIMIT_DEFAULT,
    before: Annotated[
        int | None, typer.Option("--before", metavar="NUMBER", help="The next page: those asked for before this one.")
    ] = None,
    config: Config = None,
    assignments: Set = None,
    as_json: Json = False,
) -> None:
    """List operations, the latest first."""
    from onceflow.operation_overview import LIST_COLUMNS, listed, listed_cells
    from onceflow_processor.operations.overview import Filter, list_operations

    wanted = Filter(
        states=_states(states or [], is_open=is_open),
        effect=effect,
        account=account,
        order_key=order_key,
        subject=subject,
        before=before,
    )
    with _session(config, assignments) as (connection, _):
        found = list_operations(connection, wanted, count=limit + 1)
    page = found[:limit]
    if as_json:
        for row in page:
            write_object(listed(row))
    else:
        write_table(LIST_COLUMNS, [listed_cells(row) for row in page])
    if len(found) > limit:
        say(f"there are more: --before {page[-1]['seq']}")


@app.command()
def show(operation_id: Id, *, config: Config = None, assignments: Set = None, as_json: Json = False) -> None:
    """Show everything about one: what was asked, what was tried, why nothing is sent now, and what happens next."""
    from onceflow.operation_overview import shown
    from onceflow.service_options import operation_limits
    from onceflow_processor.operations.overview import show_operation

    with _session(config, assignments) as (connection, settings):
        found = show_operation(connection, operation_id, limits=operation_limits(settings))
    if as_json:
        write_object(shown(found))
    else:
        _write_shown(found)


@app.command()
def resolve(
    operation_id: Id,
    *,
    succeeded: Annotated[bool, typer.Option("--succeeded", help="The effect is there.")] = False,
    failed: Annotated[bool, typer.Option("--failed", help="The effect is not there, and will not be.")] = False,
    reason: Reason,
    execute: Execute = False,
    config: Config = None,
    assignments: Set = None,
    as_json: Json = False,
) -> None:
    """Say how an operation in review or unknown has ended."""
    if succeeded == failed:
        raise typer.BadParameter("give one of --succeeded, --failed")
    outcome: Literal["succeeded", "failed"] = "succeeded" if succeeded else "failed"
    from onceflow_processor.operations import ruling

    decider = _decider(reason, execute=execute)
    with _session(config, assignments) as (connection, _):
        decided = ruling.resolve(connection, operation_id, outcome=outcome, decider=decider)
    _write(decided, "resolve", executed=execute, as_json=as_json)


@app.command()
def cancel(
    operation_id: Id,
    *,
    reason: Reason,
    execute: Execute = False,
    config: Config = None,
    assignments: Set = None,
    as_json: Json = False,
) -> None:
    """Cancel an operation: before anything was sent, or as long as a charge's intent can be closed."""
    from onceflow_processor.operations import ruling

    decider = _decider(reason, execute=execute)
    with _session(config, assignments) as (connection, _):
        decided = ruling.cancel(connection, operation_id, decider=decider)
    _write(decided, "cancel", executed=execute, as_json=as_json)


@app.command()
def retry(
    operation_id: Id,
    *,
    reason: Reason,
    execute: Execute = False,
    config: Config = None,
    assignments: Set = None,
    as_json: Json = False,
) -> None:
    """Ask for a failed or canceled one again, as its next occurrence; of one whose callback fails, try that now."""
    from onceflow_processor.operations import ruling

    decider = _decider(reason, execute=execute)
    with _session(config, assignments) as (connection, _):
        decided = ruling.retry(connection, operation_id, decider=decider)
    _write(decided, "retry", executed=execute, as_json=as_json)


@app.command()
def accounts(
    *,
    go_on: Annotated[
        str | None, typer.Option("--go-on", metavar="ACCOUNT", help="Have a paused account tried at once.")
    ] = None,
    reason: Annotated[str | None, typer.Option("--reason", help="Why, for the audit; needed with --go-on.")] = None,
    config: Config = None,
    assignments: Set = None,
    as_json: Json = False,
) -> None:
    """Show what is paused and why; with --go-on one call is tried at once, and the rest follows when it is accepted."""
    if (go_on is None) != (reason is None):
        raise typer.BadParameter("--go-on and --reason are given together")
    from onceflow.operation_overview import ACCOUNT_COLUMNS, account_cells, account_reason, listed
    from onceflow_processor.operations import overview, ruling

    with _session(config, assignments) as (connection, settings):
        if go_on is not None:
            decider = _decider(reason or "", execute=True)
            ruling.let_account_go_on(connection, go_on, mode=settings.stripe.mode, decider=decider)
            say(f"{go_on}: one call is tried at once; the others follow when it is accepted")
        found = overview.list_accounts(connection)
    if not as_json:
        write_table(ACCOUNT_COLUMNS, [account_cells(row) for row in found])
        return
    for row in found:
        write_object({**listed(row), "reason": account_reason(row) or None})


def _states(given: list[str], *, is_open: bool) -> tuple[str, ...] | None:
    from onceflow_schemas.operations.operation import SETTLED, State

    known = [state.value for state in State]
    unknown = [name for name in given if name not in known]
    if unknown:
        raise typer.BadParameter(f"no such state: {', '.join(unknown)}; there are {', '.join(known)}")
    wanted = set(given or known) - ({state.value for state in SETTLED} if is_open else set())
    return tuple(sorted(wanted)) if given or is_open else None


def _decider(reason: str, *, execute: bool) -> Decider:
    if not reason.strip():
        raise typer.BadParameter("--reason needs some words: they are kept in the audit")
    from onceflow.operator_name import operator_name
    from onceflow_processor.operations.ruling import Decider

    return Decider(who=operator_name(), reason=reason.strip(), execute=execute)


@contextmanager
def _session(config: Path | None, assignments: list[str] | None) -> Iterator[tuple[Connection[Any], Settings]]:
    """Open the database of the settings, with the schema of this release."""
    from onceflow.database import session
    from onceflow.settings import load_settings
    from onceflow_processor.schema_check import check_schema

    sources = setting_sources(config=config, kafka_config=None, assignments=assignments)
    settings = load_settings(sources, needs=NEEDS).settings
    with session(settings.database.url.get_secret_value(), role="operations") as connection:
        check_schema(connection)
        yield connection, settings


def _write_shown(found: Shown) -> None:
    from onceflow.operation_overview import shown_lines, shown_tables

    for name, value in shown_lines(found).items():
        print(f"{name:13}{value}")
    for title, columns, rows in shown_tables(found):
        print(f"\n{title}")
        write_table(columns, rows)
    print(f"\n{found.why}")
    if found.decisions:
        commands = ", ".join(f"`onceflow operations {name}`" for name in found.decisions)
        print(f"You may decide: {commands}")


def _write(decided: Decided, action: str, *, executed: bool, as_json: bool) -> None:
    operation = decided.read.operation
    result = {
        "id": str(operation.id),
        "decision": action,
        "effect": operation.effect,
        "subject": operation.subject,
        "occurrence": operation.occurrence,
        "state": operation.state.value,
        "becomes": decided.becomes,
        "again": None if decided.again is None else str(decided.again),
        "executed": executed,
    }
    if as_json:
        write_object(result)
        return
    for name, value in result.items():
        if value is not None and name != "executed":
            print(f"{name:12}{value}")
    print("done" if executed else "dry run: nothing was changed; add --execute")
