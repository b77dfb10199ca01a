"""TLS, SCRAM and ACLs: what ``onceflow topics acls`` prints is enough for the whole road, and nothing less is."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest
import requests
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from onceflow.embedded.data_folder import DataFolder
from tests.clusters.installation import PARTITIONS, Installation
from tests.clusters.secure_broker import SecureBroker
from tests.every_run import mostly_long
from tests.waiting import wait_until

ROLES = ("bridge", "processor", "relay", "reconciler", "operator")
COMMANDS = {"bridge": "bridge", "processor": "process", "relay": "relay"}
PROBE_SECONDS = 20.0


class World:
    """A secure broker, an installation that was set up with the operator's rights, and the printed rules."""

    def __init__(self, broker: SecureBroker, installation: Installation) -> None:
        self.broker, self.installation = broker, installation
        broker.add_users(*ROLES)
        printed = installation.command("topics", "acls", "--json")
        assert printed.returncode == 0, printed.stderr
        self.rules: list[dict[str, Any]] = [json.loads(line) for line in printed.stdout.splitlines()]
        broker.grant(self.rules)

    def variables(self, user: str, **more: Any) -> dict[str, str]:
        """The settings by which a part logs in."""
        properties = self.broker.client(user, **more)
        return {"ONCEFLOW_KAFKA_" + name.upper().replace(".", "_"): text for name, text in properties.items()}

    def user_without(self, role: str, *, resource_type: str, name: str, left: Sequence[str] = ()) -> str:
        """Make a user with the rights of a role, but with no other operations than those left on one resource."""
        user = f"{role}-without-{resource_type.replace('_', '')}-{len(name)}-{len(left)}"
        self.broker.add_users(user)
        kept = [one for one in self.rules if one["role"] == role]
        less = [one for one in kept if (one["resource_type"], one["name"]) != (resource_type, name)]
        [taken] = [one for one in kept if one not in less]
        less += [{**taken, "operations": list(left)}] if left else []
        self.broker.grant({**one, "principal": f"User:{user}"} for one in less)
        return user


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, cache_dir: Path, module_database: str) -> Iterator[World]:
    root = tmp_path_factory.mktemp("secure")
    folder = DataFolder(root / "data")
    folder.claim()
    broker = SecureBroker(folder, cache_dir=cache_dir)
    try:
        broker.start()
        environment = {"ONCEFLOW_TOPICS_DEAD_LETTERS": "dead.letters"}
        made = World(broker, Installation(root, broker.owner, module_database, environment))
        made.installation.set_up(**made.variables("operator"))
        yield made
    finally:
        broker.stop()
        folder.release()


def test_the_printed_rights_are_enough_for_the_whole_road(world: World) -> None:
    place = world.installation
    planned = place.command("topics", "plan", **world.variables("operator"))
    assert (planned.returncode, planned.stdout.split(":")[0]) == (0, "nothing differs"), planned.stderr
    with ExitStack() as stack:
        parts = {
            role: stack.enter_context(place.running(command, **world.variables(role)))
            for role, command in COMMANDS.items()
        }
        place.send(parts["bridge"], ["evt_1"])
        assert place.wait_for_states(["evt_1"]) == {"evt_1": "processed"}
        assert place.published(1) == ["evt_1"]
    for arguments in (["progress", "show"], ["lanes", "show"]):
        shown = place.command(*arguments, **world.variables("operator"))
        assert shown.returncode == 0, shown.stderr
    for role in ("operator", "reconciler"):
        proved = place.command("verify", "--without-stripe", **world.variables(role))
        assert proved.returncode == 0, proved.stdout + proved.stderr
    for role, part in parts.items():
        assert part.process.returncode == 0, role
        # A broker that has only just started may not know its coordinators yet; whoever waits for that says so.
        told = [line for line in part.lines() if line.get("event") != "waiting_for_dependency"]
        refused = [line for line in told if line.get("code")]
        refused += [line for line in part.lines() if "AUTHORIZATION" in json.dumps(line)]
        assert refused == [], role


def test_a_dead_letter_is_published_with_the_rights_of_the_processor(world: World) -> None:
    place = world.installation
    with psycopg.connect(place.database_url) as owner:
        owner.execute(
            'INSERT INTO onceflow.quarantine (topic_id, partition, "offset", topic, code, detail, headers)'
            " VALUES ('t', 0, 1, 't', 'bad_key', '', '[]')"
        )

    def published() -> bool:
        with psycopg.connect(place.database_url) as connection:
            row = connection.execute(
                "SELECT count(dead_lettered_at) - count(dead_letter_code) FROM onceflow.quarantine"
            ).fetchone()
        return row == (1,)

    with place.running("process", **world.variables("processor")) as part:
        wait_until(published, within_seconds=PROBE_SECONDS, why=part.text())
    with psycopg.connect(place.database_url) as owner:
        # Another test lets verify look at this database, which would say that no topic has its record.
        owner.execute("DELETE FROM onceflow.quarantine WHERE topic_id = 't'")


WRITES = [
    ("operator", "events"),
    ("operator", "outcomes"),
    ("bridge", "outcomes"),
    ("processor", "events"),
    ("processor", "outcomes"),
    ("relay", "events"),
]
READS = [("bridge", "events"), ("bridge", "outcomes"), ("relay", "events")]


@pytest.mark.parametrize(("role", "topic"), WRITES)
def test_a_role_may_not_write_what_is_not_its_own(world: World, role: str, topic: str) -> None:
    reported: list[KafkaError | None] = []
    producer = Producer({**world.broker.client(role), "log_level": 0})
    producer.produce(getattr(world.installation, topic), b"forged", on_delivery=lambda error, _: reported.append(error))
    producer.flush(PROBE_SECONDS)
    [error] = reported
    assert error is not None
    assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


@pytest.mark.parametrize(("role", "topic"), READS)
def test_a_role_may_not_read_what_is_not_its_own(world: World, role: str, topic: str) -> None:
    reader = Consumer({**world.broker.client(role), "group.id": "stranger", "log_level": 0})
    name = getattr(world.installation, topic)
    reader.assign([TopicPartition(name, number, 0) for number in range(PARTITIONS)])

    def refused() -> bool:
        message = reader.poll(0.2)
        found = [message.error() if message is not None else None]
        assert message is None or found[0] is not None, "a record was read"
        # Who may not even see the topic hears of it in the metadata alone.
        found.append(reader.list_topics(name, timeout=PROBE_SECONDS).topics[name].error)
        return KafkaError.TOPIC_AUTHORIZATION_FAILED in [error.code() for error in found if error is not None]

    try:
        assert wait_until(refused, within_seconds=PROBE_SECONDS, why="nothing was refused")
    finally:
        reader.close()


@pytest.mark.parametrize("role", ["bridge", "processor"])
def test_nobody_but_relay_and_operator_moves_a_cursor(world: World, role: str) -> None:
    group = f"onceflow.{world.installation.deployment}.relay"
    place = ConsumerGroupTopicPartitions(group, [TopicPartition(world.installation.outcomes, 0, 3)])
    admin = AdminClient(world.broker.client(role))
    answer = admin.alter_consumer_group_offsets([place], request_timeout=PROBE_SECONDS)[group]
    try:
        [moved] = answer.result(PROBE_SECONDS).topic_partitions
        error = moved.error
    except KafkaException as failure:
        error = failure.args[0]
    assert error is not None
    assert error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED


@pytest.mark.parametrize(
    ("role", "resource_type", "name"),
    [
        ("processor", "group", "onceflow.{}.processor"),
        ("processor", "group", "onceflow.{}.relay"),
        ("processor", "topic", "{}.events"),
        ("processor", "topic", "{}.outcomes"),
        ("relay", "topic", "{}.outcomes"),
        ("bridge", "topic", "{}.events"),
    ],
)
def test_a_part_without_one_of_its_rights_ends_and_says_so(
    world: World, role: str, resource_type: str, name: str
) -> None:
    full = name.format(world.installation.deployment)
    user = world.user_without(role, resource_type=resource_type, name=full)
    with world.installation.started(COMMANDS[role], **world.variables(user)) as part:
        assert part.exit_code() == 5, part.text()
    assert "broker_refused" in part.text()


@pytest.mark.parametrize(("left", "lacks"), [([], "DESCRIBE"), (["DESCRIBE", "DESCRIBE_CONFIGS"], "READ")])
def test_a_position_cannot_be_set_without_a_right_that_is_named(world: World, left: list[str], lacks: str) -> None:
    place = world.installation
    with (
        place.running("bridge", **world.variables("bridge")) as part,
        place.running("process", **world.variables("processor")),
    ):
        # A repeat for the tests that send it too.  The partition stands behind it, or going to the first offset may be no
        # move at all, for which no record is read.
        place.send(part, ["evt_1"])
        place.wait_for_states(["evt_1"])
    user = world.user_without("operator", resource_type="topic", name=place.events, left=left)
    told = []
    for partition in range(PARTITIONS):
        arguments = ("progress", "set", place.events, str(partition), "--earliest", "--reason", "a test")
        done = place.command(*arguments, **world.variables(user))
        if done.returncode != 0:
            told.append(done.stderr)
    # Whoever may only describe the topic fails where there is a record to be read.
    assert len(told) == (PARTITIONS if lacks == "DESCRIBE" else 1)
    assert all(f"{lacks} on topic {place.events} is not granted" in one for one in told), told


@pytest.mark.parametrize(
    ("resource_type", "name"),
    [("transactional_id", "onceflow.{0}.relay.{0}.outcomes"), ("group", "onceflow.{0}.relay")],
)
def test_a_relay_that_may_not_publish_says_so_and_waits(world: World, resource_type: str, name: str) -> None:
    full = name.format(world.installation.deployment)
    user = world.user_without("relay", resource_type=resource_type, name=full)
    with world.installation.running("relay", **world.variables(user)) as part:
        line = part.wait_for_code("broker_refused")
    assert line["event"] == "relay_term_ended"
    assert "AUTHORIZATION_FAILED" in line["message"]


def test_a_bridge_that_may_see_the_topic_and_not_write_it_answers_503(world: World) -> None:
    place = world.installation
    world.broker.add_users("spectator")
    [rule] = [one for one in world.rules if one["role"] == "bridge"]
    world.broker.grant([{**rule, "principal": "User:spectator", "operations": ["DESCRIBE", "DESCRIBE_CONFIGS"]}])
    with place.running("bridge", **world.variables("spectator")) as part:
        assert place.post(part, "evt_refused").status_code == 503
        url = part.state["url"]
        assert wait_until(lambda: not_ready(url, "broker_refused"), within_seconds=PROBE_SECONDS, why=part.text())


def not_ready(url: str, code: str) -> bool:
    """Say whether the bridge gives this reason for not being ready."""
    answer = requests.get(url + "/readyz", timeout=PROBE_SECONDS)
    return answer.status_code == 503 and code in [reason["code"] for reason in answer.json()["reasons"]]


@pytest.mark.parametrize("fault", mostly_long(["password", "authority"], every_run=["password"]))
def test_a_wrong_login_is_told_at_the_start(world: World, fault: str) -> None:
    wrong: dict[str, Any] = {"password": "wrong"} if fault == "password" else {}
    if fault == "authority":
        wrong = {"authority": world.broker.foreign_certificate}
    place = world.installation
    with ExitStack() as stack:
        parts = {
            role: stack.enter_context(place.started(command, **world.variables(role, **wrong)))
            for role, command in COMMANDS.items()
        }
        done = place.command("topics", "plan", **world.variables("operator", **wrong))
        assert (done.returncode, "broker_refused" in done.stderr) == (5, True), done.stderr
        for part in parts.values():
            assert part.exit_code() == 5, part.text()
            assert "broker_refused" in part.text()
