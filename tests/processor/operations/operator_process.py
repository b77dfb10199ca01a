"""Workers of operations as processes, as ``onceflow operate`` starts them, against a Stripe that only knows refunds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs

import psycopg

from onceflow_processor.operations.attached import attach
from tests.processor.operations.sample_effects import refund
from tests.processor.processor_process import Road, end, wait_until

ACCOUNT = "acct_test"


class SmallStripe:
    """Makes refunds, one for each key; ``effects`` counts what was really done."""

    def __init__(self) -> None:
        self.effects: Counter[str] = Counter()
        self.requests: Counter[str] = Counter()
        self.made: dict[str, dict[str, Any]] = {}
        self.gate = threading.Event()
        self.gate.set()
        self.waiting = 0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                answer = outer.refund(self.headers["Idempotency-Key"], parse_qs(body))
                data = json.dumps(answer).encode()
                try:
                    self.send_response(200)
                    self.send_header("Content-Type", "application/json")
                    self.send_header("Content-Length", str(len(data)))
                    self.end_headers()
                    self.wfile.write(data)
                except OSError:
                    self.close_connection = True

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def refund(self, key: str, form: dict[str, list[str]]) -> dict[str, Any]:
        self.requests[key] += 1
        if key not in self.made:
            self.effects[form["metadata[onceflow_operation]"][0]] += 1
            self.made[key] = {
                "id": f"re_{uuid.uuid4().hex}",
                "object": "refund",
                "status": "succeeded",
                "amount": int(form["amount"][0]),
                "currency": "usd",
                "charge": form["charge"][0],
                "metadata": {"onceflow_operation": form["metadata[onceflow_operation]"][0]},
                "livemode": False,
            }
        self.waiting += 1
        self.gate.wait(60)
        self.waiting -= 1
        return self.made[key]

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.gate.set()
        self._server.shutdown()
        self._server.server_close()


class OperationsRoad(Road):
    """A road with workers of operations."""

    def prepare(self) -> None:
        """Write what a processor writes at its first start."""
        with psycopg.connect(self.database_url, autocommit=True) as setup:
            setup.execute(
                "INSERT INTO onceflow.deployment (id, accounts, mode, system_id, timeline)"
                " SELECT %s, '{acct_test}', 'test', system_identifier::text,"
                " (SELECT timeline_id FROM pg_control_checkpoint()) FROM pg_control_system()",
                [self.deployment],
            )

    def ask(self, *subjects: str) -> list[str]:
        with psycopg.connect(self.database_url) as connection:
            tx = attach(connection, cause="test", account=ACCOUNT)
            return [tx.request(refund, subject=subject, charge="ch_1", amount=500) for subject in subjects]

    @contextmanager
    def worker(self, stripe: SmallStripe, **settings: str) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
        """Run a worker; yields its process and its log."""
        number = uuid.uuid4().hex[:6]
        state, log = self.folder / f"operator-{number}.json", self.folder / f"operator-{number}.log"
        environment = {
            **os.environ,
            **self._environment,
            "ONCEFLOW_RUNTIME_STATE_FILE": str(state),
            "ONCEFLOW_PROCESSOR_HANDLERS": "tests.processor.operations.sample_effects:handlers",
            "ONCEFLOW_STRIPE_API_BASE": stripe.url,
            "STRIPE_API_KEY": "sk_test_1",
            "ONCEFLOW_OPERATIONS_CALL_SECONDS_MAX": "6",
            "ONCEFLOW_OPERATIONS_CALLBACK_DEADLINE_SECONDS": "1",
            "ONCEFLOW_OPERATIONS_LEASE_SECONDS": "14",
            "ONCEFLOW_LOGS_FORMAT": "json",
            **settings,
        }
        with log.open("wb") as stderr:
            process = subprocess.Popen(
                [sys.executable, "-m", "onceflow", "operate"], env=environment, stderr=stderr, stdout=stderr
            )
        try:
            wait_until(lambda: state.exists() or process.poll() is not None, "the worker is ready")
            assert process.poll() is None, log.read_text()[-3000:]
            yield process, log
        finally:
            end(process)

    def operations(self) -> dict[str, str]:
        return {row["subject"]: row["state"] for row in self.rows("SELECT subject, state FROM onceflow.operation")}
