"""Every block of the production page is run, in its order, against a broker and a database that are not ours to start.

Only addresses and ports are replaced.  What is installed is what the page installs, in a folder that holds what the
Dockerfile copies; one event goes all the way to the outcome topic.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import stripe

from onceflow.embedded.data_folder import DataFolder
from onceflow.embedded.ports import claim_ports
from tests.checker.waiting import wait_for
from tests.clusters.secure_broker import SecureBroker
from tests.deploy.test_dockerfile import copied
from tests.relay.lanes import header, read_all

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "operating" / "production.md"
BLOCK = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE_NAME = re.compile(r"# file: (\S+)\n")
METRIC = re.compile(r"onceflow_(?:bridge|processor|operations|relay)_[a-z_]+")
PORTS = ("8080", "9101", "9102", "9103", "9104")
SECRET = "whsec_the_secret_that_Stripe_shows"
STEP_SECONDS_MAX = 240
READY_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 40.0
OUTCOME_SECONDS_MAX = 60.0
EVENT = {
    "id": "evt_1",
    "object": "event",
    "type": "invoice.paid",
    "livemode": False,
    "data": {"object": {"id": "in_1", "object": "invoice", "amount_paid": 4200, "currency": "eur"}},
}


@dataclass
class Reader:
    """Somebody who follows the page with a shell.

    Args:
        folder: the checkout.
        broker: the Kafka, whose administrator reads along.
        places: what the page's addresses and ports are here.
        prelude: what the page says to type in every terminal.
        services: what was started in terminals of their own, by name.
    """

    folder: Path
    broker: SecureBroker
    places: Mapping[str, str]
    prelude: str = ""
    services: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def follow(self) -> None:
        for language, note, text in BLOCK.findall(PAGE.read_text("utf-8")):
            here = re.sub("|".join(map(re.escape, self.places)), lambda found: self.places[found[0]], text)
            name = FILE_NAME.match(text)
            words = note.split()
            if name is not None:
                (self.folder / name[1]).write_text(here, "utf-8")
            elif words == ["every", "terminal"]:
                self.prelude += here
            elif words[:1] == ["terminal"]:
                self._start(words[1], here)
            else:
                assert (language, words) == ("sh", []), f"a block that this test cannot run: {text}"
                if "/readyz" in here:
                    self.wait_ready()
                self._run(here)
                if "topics acls" in here:
                    printed = self._run(here.replace("topics acls", "topics acls --json"))
                    for line in printed.splitlines():  # One by one: parts with one login share some of them.
                        self.broker.grant([json.loads(line)])

    def wait_ready(self) -> None:
        """A person looks at the terminals until the services have started."""
        for path in (f"{self.places['8080']}/readyz", *(f"{self.places[port]}/metrics" for port in PORTS[1:])):
            wait_for(lambda path=path: self.answer(path), limit_seconds=READY_SECONDS_MAX, what=path)  # type: ignore[misc]

    def answer(self, path: str) -> str | None:
        ended = {name: (self.folder / f"{name}.log").read_text() for name, one in self.services.items() if one.poll()}
        assert not ended, ended
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{path}", timeout=4) as answer:
                return str(answer.read().decode())
        except OSError:
            return None

    def _shell(self, script: str) -> list[str]:
        return ["bash", "-eu", "-o", "pipefail", "-c", f"{self.prelude}\n{script}"]

    def _run(self, script: str) -> str:
        done = subprocess.run(
            self._shell(script), cwd=self.folder, env=environment(), capture_output=True, text=True,
            timeout=STEP_SECONDS_MAX, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def _start(self, name: str, script: str) -> None:
        with (self.folder / f"{name}.log").open("wb") as log:
            self.services[name] = subprocess.Popen(
                self._shell(f"exec {script}"), cwd=self.folder, env=environment(), stdout=log, stderr=log
            )

    def stop(self) -> dict[str, int]:
        """SIGTERM, in the page's order."""
        ends = {}
        for name, service in self.services.items():
            service.send_signal(signal.SIGTERM)
            ends[name] = service.wait(STOP_SECONDS_MAX)
        return ends

    def kill(self) -> None:
        for service in self.services.values():
            service.kill()
            service.wait(20)


def environment() -> dict[str, str]:
    """Python as the one that runs this test, and nothing that would let the checkout's own code be found."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PIP_REQUIRE"))}
    return {**kept, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for source in copied():
        target = tmp_path / source
        target.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / source, target)
    return tmp_path


def send(port: str) -> int:
    body = json.dumps({**EVENT, "created": int(time.time())})
    signature = stripe.WebhookSignature.generate_signature_header(body, SECRET)
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/webhooks/stripe", body.encode(), {"Stripe-Signature": signature}
    )
    with urllib.request.urlopen(request, timeout=20) as answer:
        return int(answer.status)


@pytest.fixture
def broker(tmp_path_factory: pytest.TempPathFactory, cache_dir: Path) -> Iterator[SecureBroker]:
    """Somebody's Kafka: TLS, a login, and no right that was not granted."""
    folder = DataFolder(tmp_path_factory.mktemp("kafka"))
    folder.claim()
    secure = SecureBroker(folder, cache_dir=cache_dir)
    try:
        secure.start()
        secure.add_users("onceflow")
        yield secure
    finally:
        secure.stop()
        folder.release()


@pytest.mark.long
@pytest.mark.soak
@pytest.mark.timeout(600)  # Two installations by pip, which has no more than its share of a busy machine.
def test_the_page_step_by_step(checkout: Path, broker: SecureBroker, empty_database: str) -> None:
    ports = claim_ports(checkout / "ports.json", PORTS, grace_seconds=0.0)
    client = broker.client("onceflow")
    shutil.copy(client["ssl.ca.location"], checkout / "kafka_ca.pem")
    reader = Reader(
        checkout,
        broker,
        {
            "kafka-1.example.com:9093": client["bootstrap.servers"],
            "postgresql://onceflow@database.example.com:5432/payments": f"'{empty_database}'",
            **{port: str(number) for port, number in ports.items()},
        },
    )
    try:
        reader.follow()
        assert send(reader.places["8080"]) == 200
        found = wait_for(
            lambda: outcomes(broker.owner["bootstrap.servers"]), limit_seconds=OUTCOME_SECONDS_MAX, what="the outcome"
        )
        assert found == [("invoice.paid", "event:acct_1AbCdEfGhIjKlMnO/test/evt_1", 4200)]
        named = set(METRIC.findall(PAGE.read_text("utf-8")))
        shown = "".join(reader.answer(f"{reader.places[port]}/metrics") or "" for port in PORTS[1:])
        assert len(named) >= 8
        assert {name for name in named if f"\n# HELP {name} " not in shown} == set(), (
            "every metric that is named exists"
        )
        assert reader.stop() == {"bridge": 0, "processor": 0, "operator": 0, "relay": 0}
    finally:
        reader.kill()


def outcomes(bootstrap: str) -> list[tuple[str | None, str | None, int]]:
    records = [one for lane in read_all(bootstrap, "stripe.outcomes.v1", partitions=6).values() for one in lane]
    return [
        (header(one, "ce_type"), header(one, "onceflow_cause"), json.loads(one.value() or b"")["amount_paid"])
        for one in records
    ]
