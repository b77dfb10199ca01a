"""The list of rights in Kafka; ``tests/clusters`` proves that it is enough and that less is not."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from onceflow.commands.topics import app
from onceflow.kafka_acls import acl_command, acl_rules
from onceflow.settings import SettingSources, load_settings
from onceflow.settings_model import Settings

ENVIRONMENT = {
    "ONCEFLOW_CONFIG": "/dev/null",
    "ONCEFLOW_DEPLOYMENT_ID": "shop",
    "ONCEFLOW_TOPICS_EVENTS": "own,foreign",
    "ONCEFLOW_TOPICS_OUTCOMES": "out",
}


def settings() -> Settings:
    return load_settings(SettingSources(), environment=ENVIRONMENT).settings


def test_only_what_is_used_is_granted() -> None:
    rules = acl_rules(settings(), principals={})
    assert {one.pattern_type for one in rules} == {"literal"}
    assert [
        (one.principal, one.resource_type, one.name, one.operations) for one in rules if one.role != "operator"
    ] == [
        ("User:bridge", "topic", "own", ("WRITE", "DESCRIBE_CONFIGS")),
        ("User:processor", "topic", "own", ("READ", "DESCRIBE_CONFIGS")),
        ("User:processor", "topic", "foreign", ("READ", "DESCRIBE_CONFIGS")),
        ("User:processor", "group", "onceflow.shop.processor", ("READ",)),
        ("User:processor", "topic", "out", ("READ", "DESCRIBE_CONFIGS")),
        ("User:processor", "group", "onceflow.shop.relay", ("DESCRIBE",)),
        ("User:relay", "topic", "out", ("READ", "WRITE", "DESCRIBE_CONFIGS")),
        ("User:relay", "transactional_id", "onceflow.shop.relay.out", ("WRITE",)),
        ("User:relay", "group", "onceflow.shop.relay", ("READ",)),
        ("User:relay", "topic", "own", ("DESCRIBE_CONFIGS",)),
        ("User:relay", "topic", "foreign", ("DESCRIBE_CONFIGS",)),
        ("User:worker", "topic", "out", ("READ", "DESCRIBE_CONFIGS")),
        ("User:worker", "group", "onceflow.shop.relay", ("DESCRIBE",)),
        ("User:reconciler", "topic", "own", ("READ", "WRITE", "DESCRIBE_CONFIGS")),
        ("User:reconciler", "topic", "foreign", ("READ", "DESCRIBE_CONFIGS")),
        ("User:reconciler", "topic", "out", ("READ", "DESCRIBE_CONFIGS")),
        ("User:reconciler", "group", "onceflow.shop.reconciler", ("DESCRIBE",)),
    ]


def test_the_dead_letter_topic_is_written_by_the_processor_and_made_by_the_operator() -> None:
    environment = {**ENVIRONMENT, "ONCEFLOW_TOPICS_DEAD_LETTERS": "dead"}
    rules = acl_rules(load_settings(SettingSources(), environment=environment).settings, principals={})
    assert [(one.principal, one.operations) for one in rules if one.name == "dead"] == [
        ("User:processor", ("WRITE",)),
        ("User:operator", ("CREATE", "DESCRIBE", "ALTER_CONFIGS")),
    ]


def test_principals_may_have_any_name() -> None:
    rules = acl_rules(settings(), principals={"relay": "User:CN=relay,O=Shop Ltd"})
    relay = [one for one in rules if one.role == "relay"]
    assert {one.principal for one in relay} == {"User:CN=relay,O=Shop Ltd"}
    assert acl_command(relay[1], brokers="kafka:9093") == (
        "kafka-acls.sh --bootstrap-server kafka:9093 --command-config admin.properties --add"
        " --allow-principal 'User:CN=relay,O=Shop Ltd' --operation Write --transactional-id onceflow.shop.relay.out"
    )


def run(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["acls", *arguments], env=ENVIRONMENT)
    return done.exit_code, done.output


def test_the_command_prints_a_table_and_the_lines_of_kafka_s_own_tool() -> None:
    status, text = run("--principal", "bridge=User:b")
    assert status == 0
    table, _, lines = text.partition("\n\n")
    assert table.splitlines()[0].split() == ["principal", "on", "name", "operations", "why"]
    count = len(acl_rules(settings(), principals={}))
    assert len(table.splitlines()) == count + 1
    assert len(lines.splitlines()) == count
    assert lines.splitlines()[0].endswith(
        "--allow-principal User:b --operation Write --operation DescribeConfigs --topic own"
    )


def test_the_command_prints_one_object_per_rule() -> None:
    status, text = run("--json")
    assert status == 0
    assert json.loads(text.splitlines()[0]) == {
        "role": "bridge",
        "principal": "User:bridge",
        "resource_type": "topic",
        "pattern_type": "literal",
        "name": "own",
        "operations": ["WRITE", "DESCRIBE_CONFIGS"],
        "why": "publishes events; asks for the topic's size limit",
    }


@pytest.mark.parametrize("given", ["bridge", "bridge=", "cook=User:c"])
def test_a_mistyped_principal_is_refused(given: str) -> None:
    status, text = run("--principal", given)
    assert status == 2
    assert "bridge, processor, relay, worker, reconciler, operator" in text
