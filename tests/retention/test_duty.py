"""The duty inside a running relay: it deletes, is killed anywhere, is refused at the start, and the relay goes on."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)

from onceflow_processor.relay.service import RelayOptions, run
from onceflow_processor.retention.needs import Wishes
from onceflow_schemas.failure import Misconfigured
from tests.conftest import create_topic
from tests.every_run import mostly_long
from tests.relay.conftest import lanes  # noqa: F401 - the fixture
from tests.relay.lanes import Lanes, header, sequence, wait_for
from tests.retention.ledger import Ledger

SCRIPT = Path(__file__).with_name("retention_process.py")
DAY_MS = 86_400_000
Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def events(kafka_bootstrap: str) -> str:
    return create_topic(kafka_bootstrap, partitions=1, config={"retention.ms": str(35 * DAY_MS)})


@pytest.fixture
def ledger(lanes: Lanes) -> Ledger:  # noqa: F811
    return Ledger(lanes.database_url)


@pytest.fixture
def start(lanes: Lanes, events: str) -> Start:  # noqa: F811
    """Start a relay with its duty; ``point`` and ``hits`` say where it kills itself."""

    def started(owner: str = "one", *, point: str = "", hits: int = 1, **wishes: Any) -> subprocess.Popen[bytes]:
        options = lanes.options(owner, event_topics=[events])
        given = [json.dumps(one) for one in (options, {"horizon_days": 35, **wishes}, point, hits)]
        with (lanes.folder / "relay.log").open("ab") as log:
            process = subprocess.Popen([sys.executable, str(SCRIPT), *given], stdout=log, stderr=log)
        lanes.processes.append(process)
        lanes.state_file = Path(options["state_file"])  # type: ignore[attr-defined]
        return process

    return started


def swept(ledger: Ledger) -> bool:
    rows = ledger.sql("SELECT count(*) FILTER (WHERE swept_at IS NOT NULL) FROM onceflow.retention")
    return rows == [(6,)]


def sweep_again(ledger: Ledger) -> None:
    ledger.sql("UPDATE onceflow.retention SET swept_at = NULL")


def publish(lanes: Lanes, rows: int) -> None:  # noqa: F811
    for lane in range(3):
        lanes.add(lane, rows)
    wait_for(lanes.all_published, "all is published")


def age(ledger: Ledger, *, days: int) -> None:
    ledger.sql("UPDATE onceflow.outcome SET created_at = created_at - make_interval(days => %s)", [days])


def test_a_relay_deletes_what_is_old_and_shows_it(lanes: Lanes, ledger: Ledger, start: Start) -> None:  # noqa: F811
    ledger.add_markers(500, days=80)
    ledger.add_markers(500, days=60)
    ledger.sql(
        "INSERT INTO onceflow.object_read (account, mode, kind, object_id, first_path, path, state, read_at, result)"
        " SELECT 'acct_1', 'test', 'object', 'cus_' || days, '/', '/', 'read', now() - make_interval(days => days), 'gone'"
        " FROM unnest(ARRAY[60, 80]) AS days"
    )
    process = start()
    publish(lanes, 100)
    wait_for(lambda: swept(ledger), "a sweep of nothing but markers")
    assert ledger.markers() == {"evt_60": 500}
    assert ledger.sql("SELECT object_id FROM onceflow.object_read") == [("cus_60",)]
    process.terminate()
    assert process.wait(20) == 0, lanes.log()
    age(ledger, days=80)
    sweep_again(ledger)
    start("two")
    wait_for(lambda: swept(ledger), "a sweep of the lanes")
    assert [ledger.seqs(lane) for lane in range(3)] == [[100]] * 3
    publish(lanes, 1)
    url = json.loads(lanes.state_file.read_text())["metrics_url"]  # type: ignore[attr-defined]
    with urllib.request.urlopen(url, timeout=10) as page:
        text = page.read().decode()
    assert 'onceflow_retention_deleted_total{table="outcome"} 297.0' in text
    assert 'onceflow_retention_kept_days{table="inbox"} 72.0' in text
    assert lanes.sequences() == {lane: list(range(1, 102)) for lane in range(3)}


@pytest.mark.parametrize("point", ["retention.before_slice", "retention.after_slice"])
@pytest.mark.parametrize("hits", mostly_long([1, 3, 9], every_run=[3]))
def test_killed_between_slices_the_next_relay_goes_on(
    lanes: Lanes,  # noqa: F811
    ledger: Ledger,
    start: Start,
    *,
    point: str,
    hits: int,
) -> None:
    process = start()
    publish(lanes, 100)
    wait_for(lambda: swept(ledger), "the first sweep")
    process.terminate()
    process.wait(20)
    age(ledger, days=80)
    ledger.add_markers(400, days=80)
    ledger.add_markers(100, days=60)
    ledger.add_markers(100, days=80, state="parked", name="parked")
    sweep_again(ledger)
    killed = start("killed", point=point, hits=hits)
    assert killed.wait(30) == -9
    start("heir")
    wait_for(lambda: swept(ledger), "the heir's sweep")
    assert ledger.markers() == {"evt_60": 100, "parked_80": 100}
    assert [ledger.seqs(lane) for lane in range(3)] == [[100]] * 3
    assert ledger.sql("SELECT sum(deleted) FROM onceflow.retention") == [(400 + 297,)], "each once"
    publish(lanes, 50)
    for lane, found in lanes.records().items():
        assert [sequence(one) for one in found] == list(range(1, 151)), f"lane {lane}"
        assert len({header(one, "ce_id") for one in found}) == 150


def test_killed_in_the_middle_of_a_slice_nothing_of_it_happened(lanes: Lanes, ledger: Ledger, start: Start) -> None:  # noqa: F811
    """The slice waits for a lock that the test holds, and the relay dies meanwhile."""
    ledger.add_markers(30, days=80)
    ledger.sql("INSERT INTO onceflow.retention (name) VALUES ('inbox')")
    process = start()
    with lanes.connect() as holder:
        holder.execute("BEGIN")
        holder.execute("SELECT FROM onceflow.retention FOR UPDATE")
        wait_for(lambda: "55P03" in lanes.log(), "the slice has given up, and said so")
        process.kill()
        process.wait(20)
        holder.execute("ROLLBACK")
    assert ledger.markers() == {"evt_80": 30}
    start("heir")
    wait_for(lambda: ledger.markers() == {}, "the heir deletes")


def test_a_relay_that_was_stopped_beyond_its_lease_deletes_nothing_more(
    lanes: Lanes,  # noqa: F811
    ledger: Ledger,
    start: Start,
) -> None:
    zombie = start("zombie")
    wait_for(lambda: swept(ledger), "its first sweep")
    # Not for ever: a lease that ends later than any may be granted for is nobody's.
    ledger.sql(
        "UPDATE onceflow.lease SET token = token + 1, owner = 'other', lease_until = clock_timestamp() + interval '60 seconds'"
    )
    ledger.add_markers(30, days=80)
    sweep_again(ledger)
    wait_for(lambda: "relay_term_ended" in lanes.log(), "it has lost its lease")
    assert zombie.poll() is None
    assert ledger.markers() == {"evt_80": 30}


def test_an_idle_lane_of_which_only_the_last_row_is_left_is_found_in_order(
    lanes: Lanes,  # noqa: F811
    ledger: Ledger,
    start: Start,
) -> None:
    """Also when the relay's cursor is gone, so that the last record of the topic alone tells where it stands."""
    process = start()
    publish(lanes, 60)
    process.terminate()
    process.wait(20)
    age(ledger, days=80)
    ledger.sql("DELETE FROM onceflow.retention")
    second = start("two")
    wait_for(lambda: [ledger.seqs(lane) for lane in range(3)] == [[60]] * 3, "only the last is left")
    second.terminate()
    second.wait(20)
    admin = AdminClient({"bootstrap.servers": lanes.bootstrap})
    admin.delete_consumer_groups([lanes.group])[lanes.group].result(20)
    start("three")
    publish(lanes, 5)
    assert [lanes.state(lane) for lane in range(3)] == [(65, 65, "ok", "")] * 3
    assert lanes.sequences() == {lane: list(range(1, 66)) for lane in range(3)}


def in_process(lanes: Lanes, events: str, **wishes: Any) -> RelayOptions:  # noqa: F811
    options = lanes.options(event_topics=(events,), retention=Wishes(horizon_days=35, **wishes))
    return RelayOptions(**{**options, "state_file": Path(options["state_file"])})


def test_settings_that_delete_too_early_are_refused_at_the_start(lanes: Lanes, events: str) -> None:  # noqa: F811
    set_retention(lanes, events, 60 * DAY_MS)
    set_retention(lanes, lanes.topic, 90 * DAY_MS)
    with pytest.raises(Misconfigured) as refused:
        run(in_process(lanes, events, markers_days=96, outcomes_days=96))
    assert refused.value.code == "settings_invalid"
    assert refused.value.faults == (
        (
            f"retention.markers_days is 96, but {events} keeps its records 60 days, and Stripe may send an event again for 30 days "
            "before: a record could outlive its marker; a good value is 97"
        ),
        (
            f"retention.outcomes_days is 96, but {lanes.topic} keeps its records 90 days: a lost end of the topic could not be "
            "published again; a good value is 97"
        ),
    )


def test_a_topic_without_an_end_and_a_number_of_days_contradict_each_other(lanes: Lanes, events: str) -> None:  # noqa: F811
    set_retention(lanes, events, -1)
    with pytest.raises(Misconfigured, match="leave it unset, and they are kept for ever"):
        run(in_process(lanes, events, markers_days=36_500))


def test_of_a_topic_without_an_end_no_marker_is_deleted(
    lanes: Lanes,  # noqa: F811
    ledger: Ledger,
    events: str,
    start: Start,
) -> None:
    set_retention(lanes, events, -1)
    ledger.add_markers(30, days=4_000)
    start(outcomes_days=72)
    wait_for(
        lambda: ledger.sql("SELECT count(*) FROM onceflow.retention WHERE swept_at IS NOT NULL") == [(4,)],
        "the lanes are swept, the inbox is not",
    )
    assert ledger.markers() == {"evt_4000": 30}


def set_retention(lanes: Lanes, topic: str, retention_ms: int) -> None:  # noqa: F811
    admin = AdminClient({"bootstrap.servers": lanes.bootstrap})
    entry = ConfigEntry("retention.ms", str(retention_ms), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(20)
    asked = ConfigResource(ConfigResource.Type.TOPIC, topic)
    wait_for(
        lambda: admin.describe_configs([asked])[asked].result(20)["retention.ms"].value == str(retention_ms),
        "the broker knows it",
    )
