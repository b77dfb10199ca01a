"""`onceflow up` from outside: the ready file, deaths of every part, stops, and what is left behind (nothing)."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import stripe

from tests.waiting import wait_until

PARTS = ("postgres", "kafka", "bridge", "processor", "operator", "relay", "simulator")
READY_SECONDS = 120.0
STOP_SECONDS = 40.0
ORPHAN_SECONDS = 10.0
RESTART_SECONDS = 30.0


class Up:
    """One `onceflow up` as a child of the test."""

    def __init__(self, folder: Path, *arguments: str, **environment: str) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self.ready_file = folder / "out" / "ready.json"
        self.ready_file.parent.mkdir(exist_ok=True)
        self.data = folder / "data"
        # The last of two flags counts.
        kept = {
            name: os.environ[name] for name in ("PATH", "HOME", "XDG_CACHE_HOME", "PYTHONPATH") if name in os.environ
        }
        argv = [sys.executable, "-m", "onceflow", "up", "--data", str(self.data), "--ready-file", str(self.ready_file)]
        with (folder / "up.log").open("ab") as log:
            self.process = subprocess.Popen(
                [*argv, "--no-simulator", *arguments], cwd=folder, env={**kept, **environment}, stdout=log, stderr=log
            )

    def ready(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.ready_file.read_text())
        return found

    def said(self) -> str:
        return (self.folder / "up.log").read_text()

    def wait_ready(self) -> dict[str, Any]:
        wait_for(lambda: self.ready_file.exists() or self.process.poll() is not None, READY_SECONDS)
        assert self.process.poll() is None, self.said()
        return self.ready()

    def stop(self, number: int = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(STOP_SECONDS)


def wait_for(condition: Callable[[], bool], seconds: float) -> None:
    wait_until(condition, within_seconds=seconds, why="the condition comes true")


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def send(ready: dict[str, Any], event_id: str) -> int:
    body = json.dumps(
        {
            "id": event_id,
            "object": "event",
            "type": "payment_intent.succeeded",
            "created": int(time.time()),
            "livemode": False,
            "api_version": "2026-01-01",
            "data": {"object": {"id": f"pi_{event_id}", "object": "payment_intent", "amount": 5, "currency": "eur"}},
        }
    )
    header = stripe.WebhookSignature.generate_signature_header(body, ready["webhook_secret"], int(time.time()))
    request = urllib.request.Request(ready["webhook_url"], body.encode(), {"Stripe-Signature": header})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return int(answer.status)


def inbox(ready: dict[str, Any]) -> list[str]:
    with psycopg.connect(ready["database_url"]) as connection:
        rows = connection.execute("SELECT event_id FROM onceflow.inbox ORDER BY event_id").fetchall()
    return [event_id for (event_id,) in rows]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Up]]:
    started: list[Up] = []

    def begin(name: str = "a", *arguments: str, **environment: str) -> Up:
        up = Up(tmp_path / name, *arguments, **environment)
        started.append(up)
        return up

    yield begin
    for up in started:
        if up.process.poll() is None:
            up.stop()


def pay(ready: dict[str, Any]) -> None:
    """A customer pays, at the Stripe of the ready file."""
    client = stripe.StripeClient(ready["stripe_api_key"], base_addresses={"api": ready["stripe_api_base"]})
    client.v1.payment_intents.create(
        {
            "amount": 500,
            "currency": "eur",
            "confirm": True,
            "payment_method": "pm_card_visa",
            "return_url": "https://x.org",
        }
    )


def outcomes(ready: dict[str, Any]) -> list[str]:
    with psycopg.connect(ready["database_url"]) as connection:
        rows = connection.execute("SELECT type FROM onceflow.outcome ORDER BY created_at, seq").fetchall()
    return [kind for (kind,) in rows]


def test_the_whole_life_of_a_data_folder(start: Callable[..., Up]) -> None:
    up = start("a", "--simulator", STRIPE_API_KEY="sk_test_CANARY")
    ready = up.wait_ready()
    assert stat.S_IMODE(up.ready_file.stat().st_mode) == 0o600
    assert ready["version"] == 1
    assert sorted(ready) == sorted(
        [
            "version", "webhook_url", "webhook_secret", "kafka_bootstrap", "database_url", "event_topic",
            "outcome_topic", "stripe_api_base", "stripe_api_key", "environment", "metrics_urls", "pids",
        ]
    )  # fmt: skip
    assert sorted(ready["pids"]) == sorted(PARTS)
    assert sorted(ready["metrics_urls"]) == ["bridge", "operator", "processor", "relay"]
    assert "does not use stripe.api_key; --no-simulator does" in up.said()
    assert "CANARY" not in up.ready_file.read_text() + up.said()
    assert (ready["event_topic"], ready["outcome_topic"]) == ("stripe.events.v1", "stripe.outcomes.v1")
    assert json.loads((up.data / "ready.json").read_text()) == ready
    assert ready["webhook_url"] in up.said()
    for url in ready["metrics_urls"].values():
        with urllib.request.urlopen(url, timeout=10) as page:
            assert b"onceflow_" in page.read()

    assert send(ready, "evt_1") == 200
    wait_for(lambda: inbox(ready) == ["evt_1"], 20)

    for part in PARTS:
        before = up.ready()["pids"][part]
        os.kill(before, signal.SIGKILL)
        wait_for(lambda part=part, before=before: up.ready()["pids"][part] != before, RESTART_SECONDS)  # type: ignore[misc]
    now = up.ready()
    assert {name: now[name] for name in now if name != "pids"} == {
        name: ready[name] for name in ready if name != "pids"
    }
    assert not set(now["pids"].values()) & set(ready["pids"].values())
    assert all(alive(pid) for pid in now["pids"].values())
    wait_for(lambda: send(now, "evt_2") == 200, 20)
    wait_for(lambda: inbox(now) == ["evt_1", "evt_2"], 30)
    assert "simulator: it keeps nothing on disk, so it is an empty Stripe now" in up.said()

    second = subprocess.run(
        [sys.executable, "-m", "onceflow", "up", "--data", str(up.data), "--json"],
        cwd=up.folder, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert second.returncode == 3
    assert json.loads(second.stdout)["error"]["code"] == "data_folder_in_use"
    assert all(alive(pid) for pid in now["pids"].values()), "the refused one has touched nothing"
    assert up.ready() == now

    assert up.stop() == 0
    assert not [pid for pid in now["pids"].values() if alive(pid)]
    assert not up.ready_file.exists()

    again = start("a", "--simulator")
    later = again.wait_ready()
    assert {name: later[name] for name in later if name != "pids"} == {
        name: ready[name] for name in ready if name != "pids"
    }
    assert inbox(later) == ["evt_1", "evt_2"]
    assert send(later, "evt_3") == 200
    wait_for(lambda: inbox(later) == ["evt_1", "evt_2", "evt_3"], 20)
    before = len(outcomes(later))
    pay(later)
    wait_for(lambda: outcomes(later)[before:] == ["payment.succeeded"], 20)

    again.process.kill()
    wait_for(lambda: not [pid for pid in later["pids"].values() if alive(pid)], ORPHAN_SECONDS)


@pytest.mark.long
def test_without_a_simulator_and_a_key_operations_wait(start: Callable[..., Up]) -> None:
    up = start()
    ready = up.wait_ready()
    assert sorted(ready["pids"]) == ["bridge", "kafka", "postgres", "processor", "relay"]
    assert not {"stripe_api_base", "stripe_api_key"} & ready.keys()
    assert "note: operations are not carried out: there is no simulator and no stripe.api_key" in up.said()


def test_two_folders_side_by_side_and_ctrl_c(start: Callable[..., Up]) -> None:
    ups = [start("a"), start("b", "--port", "0", STRIPE_WEBHOOK_SECRET="whsec_listen", PGSSLMODE="verify-full")]
    first, second = (up.wait_ready() for up in ups)
    assert first["webhook_secret"] != second["webhook_secret"]
    assert first["webhook_url"] != second["webhook_url"]
    assert send(first, "evt_a") == 200
    assert send({**second, "webhook_secret": "whsec_listen"}, "evt_b") == 200
    wait_for(lambda: (inbox(first), inbox(second)) == (["evt_a"], ["evt_b"]), 20)
    for up in ups:
        assert up.stop(signal.SIGINT) == 0
    pids = [*first["pids"].values(), *second["pids"].values()]
    assert not [pid for pid in pids if alive(pid)]
    for up in ups:
        for log in (up.data / "logs").glob("*.log"):
            assert first["webhook_secret"] not in log.read_text(errors="replace")
            assert second["webhook_secret"] not in log.read_text(errors="replace")


@pytest.mark.parametrize(
    ("source", "told"),
    [
        (None, ["handlers_not_found", "there is no module shop_d in"]),
        ("raise ValueError('of the user')\n", ["handlers_not_found", "ValueError: of the user", "shop_d.py, line 1"]),
        (
            "from onceflow import Handlers\nhandlers = Handlers()\n"
            + "".join(f"@handlers.on('a b')\ndef h{number}(event):\n    pass\n" for number in range(10)),
            ["handlers_invalid: 20 faults", "'h0' has the type 'a b'", "'h9' cannot be called with (event, tx)"],
        ),
    ],
)
def test_handlers_that_cannot_be_used_are_told_before_anything_is_started(
    source: str | None, told: list[str], start: Callable[..., Up], tmp_path: Path
) -> None:
    (tmp_path / "a").mkdir()
    if source is not None:
        (tmp_path / "a" / "shop_d.py").write_text(source)
    up = start("a", "--handlers", "shop_d:handlers")
    assert up.process.wait(READY_SECONDS) == 3
    for words in told:
        assert words in up.said()
    assert not up.data.exists()
    assert not up.ready_file.exists()


def test_a_stop_while_it_starts_leaves_nothing(start: Callable[..., Up]) -> None:
    up = start()
    wait_for(lambda: "postgres" in up.said(), READY_SECONDS)
    assert up.stop() == 0
    assert "Traceback" not in up.said()
    marker = str(up.data).encode()
    found = [path for path in Path("/proc").glob("[0-9]*/cmdline") if _mentions(path, marker)]
    assert found == []


def _mentions(path: Path, marker: bytes) -> bool:
    try:
        return marker in path.read_bytes()
    except OSError:
        return False


def test_ctrl_c_while_it_starts_can_be_told_from_a_stop(start: Callable[..., Up]) -> None:
    # A shell ignores it in what runs in the background, and a child inherits that; behind a handler it does not.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    up = start()
    signal.signal(signal.SIGINT, before)
    wait_for(lambda: "postgres" in up.said(), READY_SECONDS)
    assert up.stop(signal.SIGINT) == 130
    assert up.said().splitlines()[-1] == "interrupted before it was done"
    assert "Traceback" not in up.said()


def test_a_taken_port_is_told_before_anything_is_started_and_an_old_ready_file_is_gone(
    start: Callable[..., Up], tmp_path: Path
) -> None:
    (tmp_path / "a" / "out").mkdir(parents=True)
    (tmp_path / "a" / "out" / "ready.json").write_text('{"stale": 1}')
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        up = start("a", "--port", str(port))
        assert up.process.wait(READY_SECONDS) == 3
    assert f"port_in_use: cannot listen on 127.0.0.1 port {port}: it is in use" in up.said()
    assert not up.ready_file.exists()
    assert not (up.data / "postgres" / "cluster").exists()
    assert list((up.data / "logs").iterdir()) == []


@pytest.mark.parametrize("place", ["no/ready.json", "."])
def test_a_ready_file_that_cannot_be_written_is_a_usage_error(place: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "onceflow", "up", "--ready-file", str(tmp_path / place)],
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "--ready-file" in done.stderr
    assert not (tmp_path / ".onceflow").exists()
