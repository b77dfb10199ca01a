"""``onceflow findings``: what the reconciler has found, in plain words, and what a person decides about it.

Rule: ``accept`` and ``heal`` are dry runs unless ``--execute`` is given, and need a reason, which is kept in the audit.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onceflow.command_options import Config, Json, KafkaConfig, Live, Set, setting_sources
from onceflow.results import say, write_object, write_table

if TYPE_CHECKING:
    from psycopg import Connection

    from onceflow.settings import SettingSources
    from onceflow_reconciler.remedies import Action

NEEDS = ("database.url",)
BRING_NEEDS = ("deployment.id", "stripe.account", "attestation.keys", "kafka.bootstrap.servers", "database.url")
LIMIT_DEFAULT = 50
LIMIT_MAX = 10_000
LIST_COLUMNS = ("id", "kind", "state", "since", "money", "about")

app = typer.Typer(help="What the reconciler has found.", no_args_is_help=True, rich_markup_mode=None)

Id = Annotated[int, typer.Argument(metavar="ID", min=1, help="The finding's number.")]
Ids = Annotated[list[int], typer.Argument(metavar="ID...", min=1, help="Numbers of findings.")]


@app.command("list")
def list_all(
    *,
    every: Annotated[bool, typer.Option("--all", help="Also those that are healed or accepted.")] = False,
    kind: Annotated[str | None, typer.Option("--kind", help="Only those of this kind.")] = None,
    account: Annotated[str | None, typer.Option("--account", help="Only those of this account.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=LIMIT_MAX, help="How many at most.")] = LIMIT_DEFAULT,
    before: Annotated[int | None, typer.Option("--before", metavar="ID", help="The next page.")] = None,
    config: Config = None,
    assignments: Set = None,
    as_json: Json = False,
) -> None:
    """List findings that are open, the latest first."""
    from onceflow_reconciler.finding_pages import OPEN, FindingFilter, list_findings
    from onceflow_schemas.findings import FINDING_KINDS

    if kind is not None and kind not in FINDING_KINDS:
        raise typer.BadParameter(f"there is no kind {kind}: {', '.join(FINDING_KINDS)}")
    wanted = FindingFilter(states=None if every else OPEN, kind=kind, account=account, before=before)
    with _session(config, assignments) as connection:
        found = list_findings(connection, wanted, count=limit + 1)
    page = found[:limit]
    if as_json:
        for row in page:
            write_object(row)
    else:
        write_table(LIST_COLUMNS, [_cells(row) for row in page])
    if len(found) > limit:
        say(f"there are more: --before {page[-1]['id']}")


@app.command()
def show(finding_id: Id, *, config: Config = None, assignments: Set = None, as_json: Json = False) -> None:
    """Show one on a page: what, since when, the money at stake, what was tried, what you can do."""
    from onceflow_reconciler.finding_pages import show_finding
    from onceflow_schemas.findings import FINDING_KINDS

    with _session(config, assignments) as connection:
        found = show_finding(connection, finding_id)
    kind = FINDING_KINDS[found["kind"]]
    if as_json:
        told = {
            "meaning": kind.meaning,
            "money_at_risk": kind.money,
            "first_command": kind.first,
            "person": kind.person,
        }
        write_object({**found, **told})
        return
    lines = [
        f"{found['id']} {kind.title} ({found['kind']}, {found['state']})",
        f"about:   {found['subject']}",
        f"since:   {_time(found['first_seen_at'])}, seen last {_time(found['last_seen_at'])}",
        f"money:   {_money(found)}",
        *(f"{name}: {_shown(name, value)}" for name, value in found["facts"].items()),
        "",
        kind.meaning,
        *(f"tried: {_time(one['at'])} {one['action']} by {one['who']}: {one['result']}" for one in found["remedies"]),
        *(
            [f"decided: {found['decided_by']}: {found['reason']}"]
            if found["decided_by"]
            else [*_first(kind.first, found), f"then: {kind.person}"]
        ),
    ]
    typer.echo("\n".join(lines))


def _tell_not_open(finding_ids: Iterable[int]) -> None:
    for one in sorted(finding_ids):
        say(f"{one} is not open any more: `onceflow findings show {one}`")


def _shown(name: str, value: object) -> object:
    """A fact as people read it: a look at everything has begun at no time."""
    if value is None:
        return "-"
    return "the beginning" if name == "since" and str(value).startswith("1970-01-01T00:00:00") else value


def _first(command: str, found: Mapping[str, Any]) -> list[str]:
    """The first command with the ids of this finding; none where it is this very page."""
    if command.startswith("onceflow findings show "):
        return []
    facts = found["facts"]
    for word, name in (("ID", "operation_id"), ("LANE", "lane"), ("TOPIC", "topic"), ("EVENT", "event_id")):
        if facts.get(name) is not None:
            command = re.sub(rf"\b{word}\b", str(facts[name]), command)
    return [f"first: {command}"]


@app.command()
def accept(
    finding_ids: Ids,
    *,
    reason: Annotated[str, typer.Option("--reason", help="Why, for the audit.")],
    execute: Annotated[
        bool, typer.Option("--execute/--dry-run", help="Do it; without this flag it is only shown.")
    ] = False,
    config: Config = None,
    assignments: Set = None,
    as_json: Json = False,
) -> None:
    """Take findings as they are: with the same facts they are none any more."""
    from onceflow.operator_name import operator_name
    from onceflow_reconciler.finding_pages import OPEN, accept_findings, show_finding

    if not reason.strip():
        raise typer.BadParameter("--reason says nothing")
    with _session(config, assignments) as connection:
        if execute:
            done = accept_findings(connection, finding_ids, who=operator_name(), reason=reason)
        else:
            done = [one for one in (show_finding(connection, each) for each in finding_ids) if one["state"] in OPEN]
    named = [{"id": one["id"], "kind": one["kind"], "subject": one["subject"]} for one in done]
    if as_json:
        write_object({"executed": execute, "accepted": named})
    else:
        word = "accepted" if execute else "would be accepted (--execute does it)"
        for one in named:
            say(f"{one['id']} {one['kind']} {one['subject']}: {word}")
        _tell_not_open(set(finding_ids) - {one["id"] for one in named})
    raise typer.Exit(0 if len(done) == len(set(finding_ids)) else 1)


@app.command()
def heal(
    finding_ids: Ids,
    *,
    reason: Annotated[str, typer.Option("--reason", help="Why, for the audit.")],
    execute: Annotated[
        bool, typer.Option("--execute/--dry-run", help="Do it; without this flag it is only shown.")
    ] = False,
    config: Config = None,
    kafka_config: KafkaConfig = None,
    assignments: Set = None,
    live: Live = False,
    as_json: Json = False,
) -> None:
    """Do now what may be done about findings without a decision; whatever else is open is named with its first command."""
    from onceflow.operator_name import operator_name
    from onceflow_reconciler.finding_pages import OPEN, heal_in_tables, show_finding
    from onceflow_reconciler.remedies import MEANINGS, REMEDIES
    from onceflow_schemas.findings import FINDING_KINDS

    if not reason.strip():
        raise typer.BadParameter("--reason says nothing")
    with _session(config, assignments) as connection:
        found = [one for one in (show_finding(connection, each) for each in finding_ids) if one["state"] in OPEN]
        by_action: dict[Action, list[dict[str, Any]]] = {}
        for one in found:
            if one["kind"] in REMEDIES:
                by_action.setdefault(REMEDIES[one["kind"]], []).append(one)
        refused: dict[int, str] = {}
        if execute:
            if "republish" in by_action:
                sources = setting_sources(config=config, kafka_config=kafka_config, assignments=assignments, live=live)
                refused = _bring(by_action["republish"], sources)
                by_action["republish"] = [one for one in by_action["republish"] if one["id"] not in refused]
            for action, ones in by_action.items():
                heal_in_tables(connection, ones, action=action, who=operator_name(), reason=reason)
    told = [
        {"id": one["id"], "kind": one["kind"], "action": None if one["id"] in refused else REMEDIES.get(one["kind"])}
        for one in found
    ]
    if as_json:
        write_object({"executed": execute, "findings": told})
    else:
        for one in found:
            remedy = REMEDIES.get(one["kind"])
            words = f"needs a person: {FINDING_KINDS[one['kind']].first}" if remedy is None else MEANINGS[remedy]
            words = refused.get(one["id"], words)
            say(
                f"{one['id']} {one['kind']} {one['subject']}: {words}"
                + ("" if execute or remedy is None else " (--execute)")
            )
        _tell_not_open(set(finding_ids) - {one["id"] for one in found})
    raise typer.Exit(0 if len(found) == len(set(finding_ids)) and all(one["action"] for one in told) else 1)


def _bring(found: Sequence[Mapping[str, Any]], sources: SettingSources) -> dict[int, str]:
    """Bring events; return why some can never be brought, by the finding's number."""
    from onceflow.service_options import reconciler_options
    from onceflow.settings import load_settings
    from onceflow_reconciler.service import bring
    from onceflow_reconciler.stripe_lists import NotBelieved, NotReadable
    from onceflow_schemas.failure import Unavailable

    settings = load_settings(sources, needs=BRING_NEEDS).settings
    events: dict[str, list[str]] = {}
    for one in found:
        events.setdefault(one["account"], []).append(one["facts"]["event_id"])
    try:
        refused = bring(reconciler_options(settings), events)
    except (NotReadable, NotBelieved) as error:
        raise Unavailable("stripe_not_readable", f"Stripe does not show the event: {error}") from error
    by_event = {(one["account"], one["facts"]["event_id"]): one["id"] for one in found}
    return {by_event[event]: why for event, why in refused.items()}


@contextmanager
def _session(config: Config, assignments: Set) -> Iterator[Connection[Any]]:
    """Open the database of the settings, with the schema of this release."""
    from onceflow.database import session
    from onceflow.settings import load_settings
    from onceflow_processor.schema_check import check_schema

    sources = setting_sources(config=config, kafka_config=None, assignments=assignments)
    settings = load_settings(sources, needs=NEEDS).settings
    with session(settings.database.url.get_secret_value(), role="findings") as connection:
        check_schema(connection)
        yield connection


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    return (str(row["id"]), row["kind"], row["state"], _time(row["first_seen_at"]), _money(row), row["subject"])


def _money(row: Mapping[str, Any]) -> str:
    return "" if row["amount"] is None else f"{row['amount']} {row['currency'] or ''}".strip()


def _time(moment: Any) -> str:
    from onceflow_schemas.times import format_time

    return "" if moment is None else format_time(moment)
