"""``onceflow topics plan``, ``onceflow topics apply`` and ``onceflow topics acls``.

Rule: ``plan`` changes nothing and says by its exit status whether something differs; ``apply`` does what ``plan``
shows, and nothing of it when something is refused.  ``acls`` talks to nobody.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from onceflow.command_options import Config, Json, KafkaConfig, Set, setting_sources
from onceflow.exit_codes import CHECK_FAILED, OK
from onceflow.results import say, write_object, write_table

if TYPE_CHECKING:
    from onceflow.kafka_acls import Role
    from onceflow.settings import SettingSources
    from onceflow.topic_plan import Difference

NEEDS = ("kafka.bootstrap.servers", "database.url")

app = typer.Typer(help="The topics and their lanes.", no_args_is_help=True, rich_markup_mode=None)


@app.command()
def plan(
    *, config: Config = None, kafka_config: KafkaConfig = None, assignments: Set = None, as_json: Json = False
) -> None:
    """Show how topics and lanes differ from the settings."""
    differences = _run(setting_sources(config=config, kafka_config=kafka_config, assignments=assignments), change=False)
    _write(differences, as_json=as_json)
    raise typer.Exit(CHECK_FAILED if differences else OK)


@app.command()
def apply(
    *,
    make_anew: Annotated[
        bool, typer.Option("--make-anew", help="An outcome topic that is gone is made anew; its lanes wait for you.")
    ] = False,
    config: Config = None,
    kafka_config: KafkaConfig = None,
    assignments: Set = None,
    as_json: Json = False,
) -> None:
    """Make topics and lanes what the settings say."""
    sources = setting_sources(config=config, kafka_config=kafka_config, assignments=assignments)
    differences = _run(sources, change=True, make_anew=make_anew)
    _write(differences, as_json=as_json)
    by_hand = any(one.action == "by_hand" for one in differences)
    raise typer.Exit(CHECK_FAILED if by_hand else OK)


@app.command()
def acls(
    *,
    principals: Annotated[
        list[str] | None,
        typer.Option(
            "--principal",
            metavar="ROLE=PRINCIPAL",
            help="Who works as bridge, processor, relay or operator; User:ROLE when left out; repeatable.",
        ),
    ] = None,
    config: Config = None,
    kafka_config: KafkaConfig = None,
    assignments: Set = None,
    as_json: Json = False,
) -> None:
    """Print the rights that each part needs in Kafka, and no others."""
    from onceflow.kafka_acls import acl_command, acl_object, acl_rules
    from onceflow.settings import load_settings

    given = _principals(principals or [])
    sources = setting_sources(config=config, kafka_config=kafka_config, assignments=assignments)
    settings = load_settings(sources, needs=("deployment.id",)).settings
    rules = acl_rules(settings, principals=given)
    if as_json:
        for rule in rules:
            write_object(acl_object(rule))
        return
    columns = ("principal", "on", "name", "operations", "why")
    write_table(
        columns, [(one.principal, one.resource_type, one.name, ", ".join(one.operations), one.why) for one in rules]
    )
    print()
    for rule in rules:
        print(acl_command(rule, brokers=settings.kafka.properties.get("bootstrap.servers", "BROKER:9092")))


def _principals(assignments: list[str]) -> dict[Role, str]:
    from onceflow.kafka_acls import ROLES

    given: dict[Role, str] = {}
    for assignment in assignments:
        name, _, principal = assignment.partition("=")
        role = next((one for one in ROLES if one == name), None)
        if role is None or not principal:
            raise typer.BadParameter(f"--principal takes ROLE=PRINCIPAL with a role of {', '.join(ROLES)}")
        given[role] = principal
    return given


def _run(sources: SettingSources, *, change: bool, make_anew: bool = False) -> tuple[Difference, ...]:
    """Return what differed; with ``change`` it was mended."""
    from onceflow.database import session
    from onceflow.kafka_admin import KafkaAdmin
    from onceflow.settings import load_settings
    from onceflow.topics import apply_topics, plan_from_settings

    settings = load_settings(sources, needs=NEEDS).settings
    admin = KafkaAdmin(settings.kafka.properties)
    with session(settings.database.url.get_secret_value(), role="topics") as connection:
        found, wishes = plan_from_settings(
            settings.topics, admin=admin, connection=connection, inputs=settings.input_topics, make_anew=make_anew
        )
        if change:
            apply_topics(
                found,
                wishes,
                admin=admin,
                connection=connection,
                outcome_topic=settings.topics.outcomes,
                progress=say,
            )
    return found.differences


def _write(differences: tuple[Difference, ...], *, as_json: bool) -> None:
    if as_json:
        for one in differences:
            fields = ("subject", "what", "wanted", "found", "action", "note")
            write_object({name: getattr(one, name) for name in fields})
    elif differences:
        columns = ("subject", "what", "wanted", "found", "action", "note")
        rows = [
            (one.subject, one.what, one.wanted, one.found, one.action.replace("_", " "), one.note)
            for one in differences
        ]
        write_table(columns, rows)
    else:
        print("nothing differs: topics and lanes are as the settings say")
