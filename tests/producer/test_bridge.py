"""The bridge as a process: starting, stopping, and a broker that is killed, paused or odd."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import requests
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from tests.conftest import create_topic
from tests.producer.bridge_process import ROOT, BridgeProcess, event, signed
from tests.producer.own_broker import OwnBroker, own_broker
from tests.producer.raw_http import connected, request
from tests.waiting import wait_until

DEADLINE_SECONDS = 10.0


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, cache_dir: Path) -> Iterator[OwnBroker]:
    with own_broker(tmp_path_factory.mktemp("broker"), cache_dir=cache_dir) as running:
        yield running


@pytest.fixture
def own_bridge(broker: OwnBroker, tmp_path: Path) -> Iterator[BridgeProcess]:
    topic = create_topic(broker.bootstrap)
    with BridgeProcess(tmp_path, kafka={"bootstrap.servers": broker.bootstrap}, topic=topic) as running:
        yield running


def code_of(answer: requests.Response) -> str:
    return str(answer.json()["error"]["code"])


def reasons(bridge: BridgeProcess) -> list[str]:
    return [reason["code"] for reason in bridge.get("/readyz").json()["reasons"]]


def size_limits(bridge: BridgeProcess) -> dict[str, Any]:
    """What it says of them; it may be ready before."""
    wait_until(lambda: bool(bridge.lines("bridge_size_limits")), within_seconds=10, why="no limits are told")
    return bridge.lines("bridge_size_limits")[0]


def seconds(what: Any) -> float:
    started = time.monotonic()
    what()
    return time.monotonic() - started


def test_the_state_file_says_where_it_is(bridge: BridgeProcess) -> None:
    state = json.loads(bridge.state_file.read_text())
    assert state == {"pid": bridge.process.pid, "url": bridge.url, "metrics_url": bridge.metrics_url}
    assert bridge.state_file.stat().st_mode & 0o777 == 0o600
    assert bridge.url.startswith("http://127.0.0.1:")
    assert bridge.get("/livez").status_code == 200
    assert bridge.get("/readyz").json() == {"ready": True, "reasons": []}
    limits = size_limits(bridge)
    assert limits["smallest"] == "body"
    assert (limits["body_bytes"], limits["topic_bytes"]) == (1_040_396, 1_048_588)


def test_a_killed_broker_gives_503_in_time_and_heals_alone(broker: OwnBroker, own_bridge: BridgeProcess) -> None:
    assert own_bridge.post(event("evt_before")).status_code == 200
    broker.kill()
    body = event("evt_A9")
    started = time.monotonic()
    answer = own_bridge.post(body)
    assert answer.status_code == 503
    assert time.monotonic() - started < DEADLINE_SECONDS
    assert answer.headers["Retry-After"]
    wait_until(lambda: reasons(own_bridge) == ["broker_unavailable"], within_seconds=10, why="not ready is not said")
    assert own_bridge.get("/livez").status_code == 200
    with ThreadPoolExecutor(50) as pool:
        started = time.monotonic()
        answers = list(pool.map(lambda n: own_bridge.post(event(f"evt_down{n}")), range(200)))
    assert {(answer.status_code, code_of(answer)) for answer in answers} == {(503, "broker_unavailable")}
    assert time.monotonic() - started < DEADLINE_SECONDS
    broker.start()
    wait_until(lambda: not reasons(own_bridge), within_seconds=20, why="it does not heal")
    assert own_bridge.stored(own_bridge.post(body)).value == body
    assert own_bridge.metric("onceflow_bridge_in_flight") == 0


def test_a_paused_broker_blocks_nothing(broker: OwnBroker, own_bridge: BridgeProcess) -> None:
    body = event("evt_paused")
    with broker.paused(), ThreadPoolExecutor(200) as pool:
        started = time.monotonic()
        waiting = [pool.submit(own_bridge.post, body) for _ in range(200)]
        while not all(answer.done() for answer in waiting):
            assert seconds(lambda: own_bridge.get("/livez")) < 2.0
        assert time.monotonic() - started < DEADLINE_SECONDS
        assert {answer.result().status_code for answer in waiting} == {503}
        assert {code_of(answer.result()) for answer in waiting} <= {"broker_timeout", "broker_unavailable"}
        assert reasons(own_bridge) == ["broker_unavailable"]
        assert seconds(lambda: own_bridge.post(body)) < 2.0
    wait_until(lambda: not reasons(own_bridge), within_seconds=15, why="it does not heal")
    answer = own_bridge.post(body)
    assert own_bridge.stored(answer).value == body
    # What was answered with 503 may have been written: unknown, never "not written".
    assert 1 <= own_bridge.all_values().count(body) <= 201


def test_a_short_pause_is_waited_out(broker: OwnBroker, own_bridge: BridgeProcess) -> None:
    with ThreadPoolExecutor(1) as pool:
        with broker.paused():
            waiting = pool.submit(own_bridge.post, event("evt_patience"))
            wait_until(
                lambda: own_bridge.metric("onceflow_bridge_in_flight") == 1, within_seconds=2.5, why="it does not wait"
            )
        assert waiting.result().status_code == 200


def test_terminated_under_load_it_has_said_no_false_200(broker: OwnBroker, own_bridge: BridgeProcess) -> None:
    accepted: list[bytes] = []
    enough = threading.Event()

    def post_until_it_is_gone(worker: int) -> None:
        session = requests.Session()
        for number in range(100_000):
            body = event(f"evt_{worker}_{number}")
            headers = {"Stripe-Signature": signed(body)}
            try:
                answer = session.post(own_bridge.url + "/webhooks/stripe", data=body, headers=headers, timeout=15)
            except requests.ConnectionError:
                return
            assert answer.status_code == 200, answer.text
            accepted.append(body)
            if len(accepted) >= 500:
                enough.set()

    with ThreadPoolExecutor(8) as pool:
        workers = [pool.submit(post_until_it_is_gone, worker) for worker in range(8)]
        assert enough.wait(30)
        own_bridge.process.send_signal(signal.SIGTERM)
        for worker in workers:
            worker.result()
    assert own_bridge.process.wait(15) == 0
    values = set(own_bridge.all_values())
    assert [body for body in accepted if body not in values] == []
    assert own_bridge.lines("bridge_stopped", reason="SIGTERM")
    assert "Traceback" not in own_bridge.log_text()


def in_hand(bridge: BridgeProcess) -> bool:
    return bridge.metric("onceflow_bridge_in_flight") == 1


def test_a_drain_waits_for_the_report_in_hand(broker: OwnBroker, own_bridge: BridgeProcess) -> None:
    with ThreadPoolExecutor(1) as pool:
        with broker.paused():
            waiting = pool.submit(own_bridge.post, event("evt_drained"))
            wait_until(lambda: in_hand(own_bridge), within_seconds=2.5, why="nothing in hand")
            own_bridge.process.send_signal(signal.SIGTERM)
            refused = wait_until(lambda: not_listening(own_bridge), within_seconds=5, why="it still listens")
            assert refused
        assert waiting.result().status_code == 200
    assert own_bridge.process.wait(15) == 0
    assert event("evt_drained") in own_bridge.all_values()


def not_listening(bridge: BridgeProcess) -> bool:
    try:
        with connected(bridge.port):
            return False
    except ConnectionRefusedError:
        return True


def test_a_second_signal_ends_it_at_once(broker: OwnBroker, own_bridge: BridgeProcess) -> None:
    body = event("evt_cut")
    with broker.paused(), connected(own_bridge.port) as client:
        client.sendall(request(f"Stripe-Signature: {signed(body)}", body=body))
        wait_until(lambda: in_hand(own_bridge), within_seconds=2.5, why="nothing in hand")
        own_bridge.process.send_signal(signal.SIGTERM)
        wait_until(lambda: not_listening(own_bridge), within_seconds=5, why="it still listens")
        assert own_bridge.process.poll() is None
        own_bridge.process.send_signal(signal.SIGTERM)
        assert own_bridge.process.wait(2) == 128 + signal.SIGTERM


def test_it_ends_when_its_parent_is_gone(kafka_bootstrap: str, topic: str, tmp_path: Path) -> None:
    child = BridgeProcess(tmp_path, kafka={"bootstrap.servers": kafka_bootstrap}, topic=topic)
    script = (
        "import json, os, subprocess, sys\n"
        "told = json.loads(sys.argv[1]); told['parent_pid'] = os.getpid()\n"
        "log = open(sys.argv[2], 'ab')\n"
        "subprocess.Popen([sys.executable, '-m', 'tests.producer.bridge_main', json.dumps(told)], stdout=log, stderr=log)\n"
        "sys.stdin.read()\n"
    )
    arguments = [sys.executable, "-c", script, json.dumps(child._told), str(child._log)]
    with subprocess.Popen(arguments, cwd=ROOT, stdin=subprocess.PIPE) as parent:
        wait_until(child.state_file.exists, within_seconds=20, why="the bridge is not ready")
        pid = json.loads(child.state_file.read_text())["pid"]
        parent.kill()
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), within_seconds=10, why="the orphan lives")
    assert child.lines("bridge_stopped", reason="parent_gone")


def test_a_missing_topic_is_said_and_never_made(kafka_bootstrap: str, tmp_path: Path) -> None:
    name = f"later.{tmp_path.name}.{os.getpid()}"
    bridge = BridgeProcess(tmp_path, kafka={"bootstrap.servers": kafka_bootstrap}, topic=name)
    bridge.start()
    try:
        bridge.wait_listening()
        wait_until(lambda: reasons(bridge) == ["topic_missing"], within_seconds=10, why="not said")
        answer = bridge.post(event("evt_1"))
        assert (answer.status_code, code_of(answer)) == (503, "topic_missing")
        assert not bridge.state_file.exists()
        admin = AdminClient({"bootstrap.servers": kafka_bootstrap})
        assert name not in admin.list_topics(timeout=10).topics
    finally:
        bridge.kill()


def test_credentials_that_are_refused_end_the_start(kafka_bootstrap: str, topic: str, tmp_path: Path) -> None:
    kafka = {
        "bootstrap.servers": kafka_bootstrap,
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "bridge",
        "sasl.password": "whsec_hush",
    }
    bridge = BridgeProcess(tmp_path, kafka=kafka, topic=topic)
    assert bridge.exit_code_of_start() == 3
    assert "whsec_hush" not in bridge.log_text()
    assert bridge.lines("misconfigured", code="broker_refused")
    assert not bridge.state_file.exists()


def test_a_taken_port_ends_the_start(bridge: BridgeProcess, tmp_path: Path) -> None:
    for taken in ({"port": bridge.port}, {"metrics_port": int(bridge.metrics_url.split(":")[2].split("/")[0])}):
        second = BridgeProcess(tmp_path, kafka={"bootstrap.servers": "127.0.0.1:1"}, topic="x", **taken)
        assert second.exit_code_of_start() == 3
        assert second.lines("misconfigured", code="port_in_use")


def test_a_topic_that_takes_less_than_http_is_an_alarm(kafka_bootstrap: str, tmp_path: Path) -> None:
    topic = create_topic(kafka_bootstrap, config={"max.message.bytes": "200000"})
    with BridgeProcess(tmp_path, kafka={"bootstrap.servers": kafka_bootstrap}, topic=topic) as bridge:
        limits = size_limits(bridge)
        assert (limits["level"], limits["smallest"], limits["topic_bytes"]) == ("error", "producer", 200_000)
        with ThreadPoolExecutor(16) as pool:
            small = [pool.submit(bridge.post, event(f"evt_small{n}")) for n in range(50)]
            large = [pool.submit(bridge.post, b"x" * 300_000) for _ in range(10)]
            assert {answer.result().status_code for answer in small} == {200}
            assert {code_of(answer.result()) for answer in large} == {"record_too_large"}
        assert {answer.result().status_code for answer in large} == {413}
        assert bridge.metric("onceflow_bridge_oversize_total", stage="record") == 10
        assert bridge.lines("webhook_refused", code="record_too_large", level="error")
        # A large batch of small events is no large record.
        with ThreadPoolExecutor(64) as pool:
            medium = list(pool.map(lambda _: bridge.post(b"y" * 50_000), range(64)))
        assert {answer.status_code for answer in medium} == {200}


def test_a_limit_that_is_lowered_meanwhile_costs_the_small_ones_nothing_for_long(
    kafka_bootstrap: str, tmp_path: Path
) -> None:
    topic = create_topic(kafka_bootstrap)
    with BridgeProcess(tmp_path, kafka={"bootstrap.servers": kafka_bootstrap}, topic=topic) as bridge:
        assert bridge.post(b"x" * 300_000).status_code == 200
        entry = ConfigEntry("max.message.bytes", "200000", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
        admin = AdminClient({"bootstrap.servers": kafka_bootstrap})
        admin.incremental_alter_configs([resource])[resource].result(10)
        wait_until(
            lambda: code_of_or_ok(bridge.post(b"x" * 300_000)) == "record_too_large",
            within_seconds=15,
            why="the new limit is not noticed",
        )
        assert {bridge.post(event(f"evt_after{n}")).status_code for n in range(20)} == {200}
        assert bridge.metric("onceflow_bridge_producer_renewals_total") == 1


def code_of_or_ok(answer: requests.Response) -> str:
    return "ok" if answer.status_code == 200 else code_of(answer)


@pytest.mark.parametrize("size", [999_800, 999_900, 1_000_050])
def test_events_near_a_megabyte_pass_and_their_neighbours_too(bridge: BridgeProcess, size: int) -> None:
    padding = size - len(event("evt_big", pad=""))
    body = event("evt_big", pad="x" * padding)
    assert len(body) == size
    with ThreadPoolExecutor(2) as pool:
        large, small = pool.submit(bridge.post, body), pool.submit(bridge.post, event("evt_neighbour"))
    assert bridge.stored(large.result()).value == body
    assert small.result().status_code == 200


@pytest.mark.parametrize("size", [1_048_600, 5_000_000])
def test_events_above_the_limit_are_an_alarm_and_their_neighbours_pass(bridge: BridgeProcess, size: int) -> None:
    before = bridge.metric("onceflow_bridge_oversize_total", stage="body")
    with ThreadPoolExecutor(2) as pool:
        large, small = pool.submit(bridge.post, b"x" * size), pool.submit(bridge.post, event("evt_neighbour"))
    assert (large.result().status_code, code_of(large.result())) == (413, "body_too_large")
    assert small.result().status_code == 200
    assert bridge.metric("onceflow_bridge_oversize_total", stage="body") == before + 1


def test_two_bridges_take_the_same_event_at_once(kafka_bootstrap: str, topic: str, tmp_path: Path) -> None:
    kafka = {"bootstrap.servers": kafka_bootstrap}
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with (
        BridgeProcess(tmp_path / "a", kafka=kafka, topic=topic) as first,
        BridgeProcess(tmp_path / "b", kafka=kafka, topic=topic) as second,
        ThreadPoolExecutor(2) as pool,
    ):
        body = event("evt_both")
        answers = [pool.submit(one.post, body) for one in (first, second)]
        stored = [first.stored(answer.result()) for answer in answers]
        assert stored[0].key == stored[1].key
        assert first.all_values().count(body) == 2
