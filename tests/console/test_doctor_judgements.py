"""What the doctor thinks of what it found; expectations by hand."""

from __future__ import annotations

import dataclasses
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from onceflow.doctor.checked import Checked, cross, crosses, exit_status, tick
from onceflow.doctor.judgements import (
    Right,
    judge_clock,
    judge_deployment,
    judge_lanes,
    judge_limits,
    judge_operations,
    judge_positions,
    judge_retention,
    judge_rights,
    judge_topics,
    rights_of,
)
from onceflow.settings_model import DeploymentSettings, ProcessorSettings, Settings, TopicSettings
from onceflow.settings_retention import RetentionSettings
from onceflow.topic_plan import Difference, TopicFound, TopicPlan
from onceflow_processor.position import LogBounds
from onceflow_processor.position_report import PositionRow, report
from onceflow_processor.retention.book import Line
from onceflow_schemas.failure import Misconfigured, Unavailable

GRANTS = Path(__file__).parents[2] / "deploy" / "grants.sql"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
DAY_MS = 86_400_000
CONFIG = {
    "cleanup.policy": "delete",
    "retention.ms": str(35 * DAY_MS),
    "max.message.bytes": "1048588",
    "min.insync.replicas": "2",
}
TOPIC = TopicFound("events", "id+1", 6, 3, CONFIG)
SETTINGS = Settings(
    deployment=DeploymentSettings(id="shop"),
    topics=TopicSettings(events=("events",), outcomes="outcomes"),
    processor=ProcessorSettings(horizon_days=35),
)


def test_a_cross_has_a_fix() -> None:
    with pytest.raises(AssertionError, match="needs a fix"):
        cross("x", "y", fix="")


@pytest.mark.parametrize(
    ("statuses", "expected"), [([], 0), ([1], 1), ([1, 5], 5), ([5, 3, 1], 3)], ids=["ticks", "one", "away", "settings"]
)
def test_the_exit_status_says_who_must_act_first(statuses: list[int], expected: int) -> None:
    lines = [tick("a", "b"), *(cross("a", "b", fix="c", status=status) for status in statuses)]
    assert exit_status(lines) == expected


def test_every_fault_of_a_failure_is_a_line() -> None:
    two = crosses("x", Misconfigured("settings_invalid", "two", faults=("a", "b")))
    assert [line.found for line in two] == ["settings_invalid: a", "settings_invalid: b"]
    [one] = crosses("x", Unavailable("broker_unavailable", "away"), status=5)
    assert (one.found, one.status) == ("broker_unavailable: away", 5)


@pytest.mark.parametrize(
    ("theirs", "ok", "text"),
    [
        (0.2, True, "less than 0.1 s"),
        (4.0, True, "less than 3.6 s"),
        (6.0, False, "5.5 s ahead of ours"),
        (-6.0, False, "6.0 s behind ours"),
    ],
)
def test_clocks(theirs: float, *, ok: bool, text: str) -> None:
    line = judge_clock(asked=NOW, theirs=NOW + timedelta(seconds=theirs), answered=NOW + timedelta(seconds=0.5))
    assert line.ok is ok
    assert text in line.found


def granted_in_file(role: str) -> set[Right]:
    """The rights of a role as the words of the shipped file say, columns one by one."""
    text = re.sub(r"--.*", "", GRANTS.read_text())
    found = set()
    for privileges, tables, roles in re.findall(r"GRANT\s+([^;]+?)\s+ON\s+(onceflow\.[^;]+?)\s+TO\s+([^;]+);", text):
        if role not in re.split(r",\s*", roles):
            continue
        for privilege, columns in re.findall(r"([A-Z]+)(?: \(([^)]*)\))?", privileges):
            for table in re.split(r",\s*", tables):
                for column in re.split(r",\s*", columns):
                    found.add(Right(table.removeprefix("onceflow."), privilege, column))
    return found


@pytest.mark.parametrize("part", ["process", "operate", "relay", "reconcile"])
def test_the_rights_are_those_that_are_shipped(part: Any) -> None:
    roles = {"process": "processor", "operate": "worker", "relay": "relay", "reconcile": "reconciler"}
    role = f"onceflow_{roles[part]}"
    assert set(rights_of([part])) == granted_in_file(role)


def test_an_operator_may_read_everything_and_needs_what_is_shipped() -> None:
    needed = set(rights_of(["operator"]))
    changes = {right for right in needed if right.privilege != "SELECT"}
    assert changes == {right for right in granted_in_file("onceflow_operator") if right.privilege != "SELECT"}
    assert "GRANT SELECT ON ALL TABLES IN SCHEMA onceflow TO onceflow_operator" in GRANTS.read_text()


def test_rights_that_are_missing() -> None:
    assert rights_of(["bridge"]) == []
    assert judge_rights([], role="me", parts=["relay"]).ok
    one = judge_rights([Right("lane", "UPDATE", "state")], role="me", parts=["relay"])
    assert one.found == "me lacks UPDATE (state) on onceflow.lane"
    many = judge_rights([Right("lane", "SELECT")] * 8, role="me", parts=["relay"])
    assert many.found.endswith(" and 2 more")


def test_the_deployment_row() -> None:
    row = {"id": "shop", "mode": "test", "accounts": ["acct_1", "acct_2"], "restores": 0}
    assert judge_deployment(row, SETTINGS) == tick("deployment", "shop (test), accounts acct_1, acct_2")
    assert "put back or promoted 2 times" in judge_deployment({**row, "restores": 2}, SETTINGS).found
    assert judge_deployment(None, SETTINGS).ok
    for other in ({"id": "bank"}, {"mode": "live"}):
        assert not judge_deployment({**row, **other}, SETTINGS).ok


def lane(number: int, state: str = "ok", detail: str = "") -> dict[str, Any]:
    return {"lane": number, "state": state, "detail": detail}


def test_lanes() -> None:
    topic = dataclasses.replace(TOPIC, partitions=2)
    assert list(judge_lanes([lane(0), lane(1)], topic)) == [tick("lanes", "2 lanes, all ok")]
    assert [line.ok for line in judge_lanes([lane(0), lane(1)], None)] == [True]
    [none] = judge_lanes([], topic)
    assert "no lanes" in none.found
    bad = list(judge_lanes([lane(0, "behind", "why"), lane(1, "stopped:diverged"), lane(2)], topic))
    assert [line.found for line in bad] == [
        "lane 0 is behind: why",
        "lane 1 is stopped:diverged: no detail",
        "3 lanes, but events has 2 partitions",
    ]


def test_positions() -> None:
    row = PositionRow("events", "id-1", 0, 5, "4 0 aa", 1, "me")
    fine = report(row, LogBounds(0, 9), current_id="id-1")
    assert list(judge_positions([fine])) == [tick("positions", "1 partitions, none stopped, lag 4")]
    stopped = report(dataclasses.replace(row, stopped="tail_lost"), LogBounds(0, 9), current_id="id-1")
    [line] = judge_positions([fine, stopped])
    assert line.found.startswith("events/0 is stopped tail_lost: A log ends")
    assert "onceflow progress set events 0" in line.fix


def test_topics() -> None:
    fine = TopicPlan((), found={"events": TOPIC})
    lines = list(judge_topics(fine, SETTINGS))
    assert [line.ok for line in lines] == [True, True]
    assert "id id-1, 6 partitions, 3 copies, 2 confirm, cleanup.policy=delete" in lines[0].found
    differences = (
        Difference("events", "cleanup.policy", "delete", "compact", "configure"),
        Difference("outcomes", "topic", "6 partitions", "missing", "create"),
        Difference("other", "partitions", "6", "3", "refused", "name a new topic"),
    )
    found = [(line.subject, line.fix) for line in judge_topics(TopicPlan(differences), SETTINGS)]
    assert found == [
        ("events", "Run `onceflow topics apply`."),
        ("outcomes", "Run `onceflow topics apply`."),
        ("other", "name a new topic"),
    ]


@pytest.mark.parametrize(
    ("retention_ms", "policy", "ok", "text"),
    [
        (-1, "delete", True, "records are kept for ever"),
        (35 * DAY_MS, "delete", True, "records are kept 35 days, processor.horizon_days is 35"),
        (7 * DAY_MS, "delete", False, "records are kept 7 days"),
        (7 * DAY_MS, "compact,delete", False, "records are kept 7 days"),
        (7 * DAY_MS, "compact", True, "the topic is only compacted: the last record of each key is kept for ever"),
    ],
)
def test_retention_against_the_horizon(retention_ms: int, policy: str, *, ok: bool, text: str) -> None:
    config = {**CONFIG, "retention.ms": str(retention_ms), "cleanup.policy": policy}
    plan = TopicPlan((), found={"events": dataclasses.replace(TOPIC, config=config)})
    [line] = [one for one in judge_topics(plan, SETTINGS) if one.subject == "events retention"]
    assert (line.ok, line.found.startswith(text)) == (ok, True)


def test_the_smallest_limit_is_named() -> None:
    fine = judge_limits(TOPIC, body_bytes_max=1_040_396)
    assert fine.ok
    assert fine.found.startswith("smallest is bridge.body_bytes_max: HTTP body 1040396")
    small = dataclasses.replace(TOPIC, config={**CONFIG, "max.message.bytes": "500000"})
    tight = judge_limits(small, body_bytes_max=1_040_396)
    assert not tight.ok
    assert "topic 500000" in tight.found
    assert tight.fix == "Raise max.message.bytes of events to 1048588, or lower bridge.body_bytes_max to 491808."
    unknown = judge_limits(dataclasses.replace(TOPIC, config={}), body_bytes_max=1_040_396)
    assert (unknown.ok, "topic unknown" in unknown.found) == (True, True)


@pytest.mark.parametrize(
    ("granted", "expected"),
    [
        ({"READ", "WRITE", "DESCRIBE"}, tick("rights on topic t", "READ, WRITE")),
        (None, tick("rights on topic t", "the broker does not say")),
        ({"READ"}, "WRITE is not granted"),
        (set[str](), "READ, WRITE is not granted"),
    ],
)
def test_rights_in_kafka(granted: set[str] | None, expected: Checked | str) -> None:
    line = judge_operations("t", kind="topic", needed=["WRITE", "READ"], granted=granted)
    assert expected == line or (not line.ok and line.found == expected)


def line(name: str, *, deleted: int = 0, oldest: int | None = None, swept: int | None = 0) -> Line:
    def ago(days: int | None) -> datetime | None:
        return None if days is None else NOW - timedelta(days=days)

    return Line(name, None, deleted, ago(oldest), ago(swept), NOW)


@pytest.mark.parametrize(
    ("book", "ok", "text"),
    [
        ([], True, "no marker was deleted yet"),
        ([line("quarantine"), line("outcome/0")], True, "no marker was deleted yet"),
        (
            [
                line("quarantine"),
                line("inbox", deleted=7, oldest=71),
                line("outcome/0", deleted=2),
                line("outcome/1", deleted=3),
            ],
            True,
            "7 markers and 5 outcomes were deleted for their age, the oldest marker left is 71 days old",
        ),
        ([line("quarantine", swept=2), line("inbox")], True, "0 markers and 0 outcomes were deleted for their age"),
        ([line("quarantine", swept=4), line("inbox")], False, "the last sweep ended 4 days ago: tables grow"),
        ([line("quarantine", swept=None)], True, "no marker was deleted yet"),
    ],
)
def test_the_maintenance_duty(book: list[Line], *, ok: bool, text: str) -> None:
    found = judge_retention(book)
    assert (found.ok, found.found) == (ok, text)


def test_markers_that_do_not_outlive_their_topic() -> None:
    settings = SETTINGS.model_copy(update={"retention": RetentionSettings(markers_days=72)})
    kept = dataclasses.replace(TOPIC, config={**CONFIG, "retention.ms": str(60 * DAY_MS)})
    plan = TopicPlan((), found={"events": kept})
    [bad] = [one for one in judge_topics(plan, settings) if not one.ok]
    assert bad.subject == "retention"
    assert bad.found.startswith("retention.markers_days is 72, but events keeps its records 60 days")
    assert (bad.fix, bad.status) == ("A good value is 97.", 3)
