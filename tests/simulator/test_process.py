"""The simulator as a process: its ready file, its end, its speed; the context manager and the fixture for others."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import requests
import stripe

from onceflow_simulator import Simulator, SimulatorClient, SimulatorRefused
from onceflow_simulator.client import wait_until
from tests.simulator.asking import get, pay, post
from tests.simulator.receiver import Receiver

pytest_plugins = ["pytester"]

READY_SECONDS_MAX = 20.0
COMMAND = [sys.executable, "-m", "onceflow_simulator"]


def start(folder: Path, *arguments: str) -> tuple[subprocess.Popen[bytes], Path]:
    state_file = folder / "state.json"
    process = subprocess.Popen([*COMMAND, "--state-file", str(state_file), *arguments])
    wait_until(
        lambda: state_file.exists() or process.poll() is not None, "it is ready", timeout_seconds=READY_SECONDS_MAX
    )
    return process, state_file


def test_the_ready_file_and_a_clean_end(tmp_path: Path) -> None:
    process, state_file = start(tmp_path, "--seed", "5", "--account", "acct_shop", "--knobs", '{"latency_ms": 3}')
    try:
        state = json.loads(state_file.read_text("utf-8"))
        assert state["pid"] == process.pid
        assert state["url"].startswith("http://127.0.0.1:")
        assert (state["seed"], state["account"]) == (5, "acct_shop")
        assert (state["secret"], state["api_key"]) == ("whsec_onceflow_simulator", "sk_test_simulator")
        assert state_file.stat().st_mode & 0o777 == 0o600
        assert [path.name for path in tmp_path.iterdir()] == ["state.json"]
        assert get(state["url"], "/v1/account", api_key=state["api_key"]).json()["id"] == "acct_shop"
        client = SimulatorClient(state["url"])
        client.set(latency_ms=9)
        client.reset()
        assert client.call("GET", "/knobs")["latency_ms"] == 3
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0


def test_the_first_webhook_is_there_again_after_a_reset(tmp_path: Path) -> None:
    with Receiver() as receiver:
        process, state_file = start(tmp_path, "--webhook-url", receiver.url, "--secret", "whsec_mine")
        try:
            client = SimulatorClient(json.loads(state_file.read_text("utf-8"))["url"])
            for _ in range(2):
                post(client.url, "/v1/customers")
                client.wait_delivered()
                client.reset()
            assert len(receiver.received) == 2
            one = receiver.received[0]
            assert stripe.WebhookSignature.verify_header(one.body, one.signature, "whsec_mine", 300)
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(10) == 0


def test_a_request_in_flight_ends_before_the_process_does(tmp_path: Path) -> None:
    process, state_file = start(tmp_path, "--knobs", '{"latency_ms": 700}')
    url = json.loads(state_file.read_text("utf-8"))["url"]
    with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))) as connection:
        connection.sendall(b"GET /v1/account HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer sk_test_12345678\r\n\r\n")
        wait_until(lambda: SimulatorClient(url).state()["requests"] == 1, "it is in flight", timeout_seconds=5)
        process.send_signal(signal.SIGTERM)
        assert connection.recv(20).startswith(b"HTTP/1.1 200")
    assert process.wait(10) == 0


def test_it_ends_with_its_parent(tmp_path: Path) -> None:
    state_file = tmp_path / "state.json"
    program = (
        "import os, subprocess, sys\n"
        f"subprocess.Popen([sys.executable, '-m', 'onceflow_simulator', '--state-file', {str(state_file)!r},"
        " '--parent-pid', str(os.getpid())])\n"
        "sys.stdin.read()\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE)
    wait_until(state_file.exists, "it is ready", timeout_seconds=READY_SECONDS_MAX)
    url = json.loads(state_file.read_text("utf-8"))["url"]
    assert SimulatorClient(url).state()["bugs"] == []
    parent.kill()
    parent.communicate()
    wait_until(lambda: not answers(url), "it has ended", timeout_seconds=10)


def answers(url: str) -> bool:
    try:
        SimulatorClient(url).state()
    except OSError:
        return False
    return True


def test_wrong_options_are_told(tmp_path: Path) -> None:
    done = subprocess.run([*COMMAND, "--knobs", '{"colour": 1}'], capture_output=True, text=True, check=False)
    assert (done.returncode, "colour" in done.stderr) == (2, True)


def test_the_same_seed_gives_the_same_ids_and_none_gives_others() -> None:
    def first_id(seed: int | None) -> str:
        with Simulator(seed=seed) as simulator:
            answer = requests.post(
                simulator.url + "/v1/customers", headers={"Authorization": f"Bearer {simulator.api_key}"}, timeout=10
            )
            return str(answer.json()["id"])

    assert first_id(3) == first_id(3)
    assert first_id(None) != first_id(None)


def test_a_port_that_is_taken_is_told() -> None:
    with Simulator() as first, pytest.raises(AssertionError, match="ended with exit code 1"):  # noqa: SIM117
        with Simulator(port=int(first.url.rpartition(":")[2])):
            pass


def test_what_sim_refuses_says_why(simulator: Simulator, client: stripe.StripeClient) -> None:
    with pytest.raises(SimulatorRefused, match=r"^there is no colour; there are latency_ms, "):
        simulator.set(colour="red")
    with pytest.raises(SimulatorRefused, match=r"^latency_ms: Input should be greater than or equal to 0$"):
        simulator.set(latency_ms=-1)
    with pytest.raises(SimulatorRefused, match=r"^there is no match.pth; times: Input should be greater than "):
        simulator.faults.add("slow", match={"pth": "/v1/refunds"}, times=0)
    with pytest.raises(SimulatorRefused, match=r"^advance_seconds: Input should be a valid number, unable to parse"):
        simulator.call("POST", "/clock", body={"advance_seconds": "soon"})
    with pytest.raises(SimulatorRefused, match=r"^no kind 'refnd'; there are charge, authorization, refund, "):
        simulator.ledger(kind="refnd")
    for ask in (simulator.ledger().count, simulator.ledger().amount, simulator.ledger().doubled):
        with pytest.raises(ValueError, match="no kind 'refnd'; there are charge"):
            ask("refnd")
    with pytest.raises(SimulatorRefused, match=r"^Not Found$"):
        simulator.call("GET", "/nothing")
    with pytest.raises(SimulatorRefused, match="no object 'pi_1' in account acct_simulator"):
        simulator.act("settle", "pi_1")
    with pytest.raises(SimulatorRefused, match="no act 'dance'"):
        simulator.act("dance", "pi_1")
    charge = pay(client).latest_charge
    with pytest.raises(SimulatorRefused, match=f"settle is done to a payment_intent; {charge} is a charge"):
        simulator.act("settle", charge)
    with pytest.raises(SimulatorRefused, match="cannot cancel this PaymentIntent"):
        simulator.act("cancel", pay(client).id)
    with pytest.raises(SimulatorRefused, match="no endpoint 'we_1'"):
        simulator.change_webhook("we_1", drop=1)
    assert simulator.call("GET", "/knobs")["latency_ms"] == 0


def test_the_fixture_for_other_projects(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import urllib.request

        pytest_plugins = ["onceflow_simulator.pytest_plugin"]


        def ask(simulator):
            headers = {"Authorization": f"Bearer {simulator.api_key}"}
            request = urllib.request.Request(simulator.url + "/v1/customers", b"", headers)
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status


        def test_first(stripe_simulator):
            assert ask(stripe_simulator) == 200
            assert stripe_simulator.state()["events"] == {"acct_simulator/test": 1}


        def test_second(stripe_simulator):
            assert stripe_simulator.state()["events"] == {}
        """
    )
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-p", "no:randomly")
    result.assert_outcomes(passed=2)


REQUESTS = 40
CLIENTS = 32


async def ask_again_and_again(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body = b"amount=2000&currency=usd&confirm=true&payment_method=pm_card_visa"
    head = (
        b"POST /v1/payment_intents HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer sk_test_12345678\r\n"
        b"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: %d\r\n\r\n" % len(body)
    )
    for _ in range(REQUESTS):
        writer.write(head + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(int(answer.lower().split(b"content-length: ")[1].split(b"\r")[0]))
    writer.close()
    await writer.wait_closed()


def cpu_seconds(pid: int) -> float:
    """Of the process, from the kernel: what other processes do on this machine has little say in it."""
    fields = Path(f"/proc/{pid}/stat").read_text("ascii").split()
    return (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")


def test_one_core_answers_800_charges_per_second() -> None:
    """With 20 ms of latency and 32 clients: less than 1.25 ms of the processor's time for each, whoever else uses it."""

    async def run(port: int) -> None:
        await asyncio.gather(*(ask_again_and_again(port) for _ in range(CLIENTS)))

    with Simulator(latency_ms=20) as simulator:
        before, begun = cpu_seconds(simulator.pid), time.monotonic()
        asyncio.run(run(int(simulator.url.rpartition(":")[2])))
        used = (cpu_seconds(simulator.pid) - before) / (CLIENTS * REQUESTS)
        rate = CLIENTS * REQUESTS / (time.monotonic() - begun)
        assert simulator.ledger(entries=False).count("charge") == CLIENTS * REQUESTS
    print(f"{used * 1e6:.0f} us of the processor per charge, {rate:.0f} charges/s")
    assert used < 1 / 800
