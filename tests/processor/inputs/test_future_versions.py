"""Row 40 of the catalogue of bad input: a record of a version from the future is kept, and runs once after the upgrade."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace

import pytest

from onceflow import Event, Handlers, Tx
from onceflow_processor.inputs import cloudevents_binary, cloudevents_structured, eventbridge
from onceflow_processor.readmission import Readmission
from onceflow_processor.records import Partition, Record
from onceflow_schemas import attestation
from tests.processor import conftest
from tests.processor.conftest import TOPIC, Bench
from tests.processor.inputs import rules
from tests.processor.inputs.foreign_records import WRAP
from tests.processor.inputs.rules import given, rules_of
from tests.processor.processor_process import CREATED

MakeBench = Callable[[Handlers], Bench]
FORMATS = ("cloudevents-binary", "cloudevents-structured", "eventbridge")
COMMAND_SECONDS_MAX = 60


def upgrade(patch: pytest.MonkeyPatch) -> None:
    """Let everything that is loaded be a release that knows the next versions."""
    patch.setattr(attestation, "VERSION", "v2")
    patch.setattr(cloudevents_binary, "VERSION", b"2.0")
    patch.setattr(cloudevents_structured, "VERSION", "2.0")
    patch.setattr(eventbridge, "VERSION", "1")


def body(number: int) -> bytes:
    subject = {"id": f"in_{number}", "object": "invoice", "amount_paid": 5}
    return conftest.event_body(f"evt_{number}", "invoice.paid", subject, created=CREATED)


def of_the_future(name: str, number: int) -> Record:
    """A foreign record whose wrapping has the next version."""
    value, headers = WRAP[name](body(number))
    value = value.replace(b'"specversion": "1.0"', b'"specversion": "2.0"').replace(
        b'"version": "0"', b'"version": "1"'
    )
    headers = [(key, b"2.0" if key == "ce_specversion" else one) for key, one in headers]
    return replace(rules.record(value, headers), partition=Partition(name, number + 1), offset=number)


def test_a_record_of_a_later_version_is_kept_and_runs_once_after_the_upgrade(
    bench: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    handlers = Handlers()

    @handlers.on("invoice.paid")
    def booked(event: Event, tx: Tx) -> None:
        tx.outcome("booked", key=event.object["id"], data={})

    one = bench(handlers)
    one.rules = rules_of(*(given(name, topic=name) for name in FORMATS))
    with monkeypatch.context() as future:
        upgrade(future)
        attested = conftest.record(body(9), 9)
    assert b"v2 k1 " in b" ".join(value or b"" for _, value in attested.headers)
    batch = [attested, *(of_the_future(name, number) for number, name in enumerate(FORMATS))]
    one.run(batch)
    assert set(one.quarantine().values()) == {"future_version"}
    kept = one.rows('SELECT "offset", value FROM onceflow.quarantine')
    assert {row["offset"]: bytes(row["value"]) for row in kept} == {each.offset: each.value for each in batch}
    assert (one.states(), one.outcomes()) == ({}, [])

    retry(one)
    judge_again(one)
    assert one.states() == {}, "the release of today still does not know them"
    upgrade(monkeypatch)
    retry(one)
    for _ in range(2):
        judge_again(one)
        one.redrive(10)
    # Each comes once more, as after a rewind: it is known.
    one.run([replace(each, offset=each.offset + 100) for each in batch])
    ids = sorted(["evt_0", "evt_1", "evt_2", "evt_9"])
    assert one.states() == dict.fromkeys(ids, "processed")
    assert sorted(one.outcomes()) == [("booked", f"in_{event_id[4:]}") for event_id in ids]


def retry(one: Bench) -> None:
    """As a person asks for it."""
    command = [sys.executable, "-m", "onceflow", "quarantine", "retry", "--code", "future_version", "--execute"]
    subprocess.run(
        [*command, "--reason", "upgraded"],
        env={**os.environ, "DATABASE_URL": one.url, "ONCEFLOW_CONFIG": "/dev/null"},
        check=True,
        stdout=subprocess.DEVNULL,
        timeout=COMMAND_SECONDS_MAX,
    )


def judge_again(one: Bench) -> None:
    readmission = Readmission(
        rules=one.rules, topics=[TOPIC, *one.rules.inputs], handlers=one.handlers, connection=lambda: one.connection
    )
    readmission.turn()
