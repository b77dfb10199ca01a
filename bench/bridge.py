"""The bridge against other endpoints: the same load, one endpoint after the other.

Rule: every endpoint answers 200 to the same signed webhooks over the same number of kept connections; the bridge says
200 only after all replicas have the record, the peers do what their figure says.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from bench.children import READY_SECONDS, Child, onceflow_part, peer_environment, product_environment, running, wait_for
from bench.figures import Figure, Measured
from bench.load import LOAD_SECONDS_MAX
from bench.measuring import Side, alternate, median_ratio
from bench.stage import Stage
from onceflow.embedded.ports import accepts_connections, choose_port

PATH = "/webhooks/stripe"
FIGURES = (
    Figure("bridge_vs_noop", "bridge with acks=all / FastAPI endpoint that only reads the body", 0.9),
    Figure("bridge_vs_sqlalchemy", "bridge / FastAPI endpoint that inserts each webhook with SQLAlchemy", 10.0),
    Figure("bridge_vs_flush", "bridge / FastAPI endpoint with produce and flush in each request", 4.0),
)
_UNDER = {"bridge_vs_noop": "noop", "bridge_vs_sqlalchemy": "sqlalchemy", "bridge_vs_flush": "flush"}


@dataclass(slots=True)
class _Endpoint:
    """A running endpoint and what was seen while it was under load."""

    url: str
    child: Child
    load_shares: list[float] = field(default_factory=list)
    cpu_microseconds: list[float] = field(default_factory=list)


def measure(stage: Stage) -> list[Measured]:
    """Measure all figures of this module."""
    road = stage.road()
    with ExitStack() as stack:
        url = stack.enter_context(stage.database(road))
        settings = stage.settings(road, database_url=url)
        bridge, state = stack.enter_context(
            onceflow_part("bridge", name="bridge", settings=settings, folder=stage.folder)
        )
        endpoints = {"bridge": _Endpoint(state["url"] + PATH, bridge)}
        told = {"bootstrap": stage.bootstrap, "database_url": url, "topic": road.events}
        for name in _UNDER.values():
            endpoints[name] = stack.enter_context(_peer(stage, f"{name}_endpoint", told))
        sides = {name: _side(stage, name, endpoint) for name, endpoint in endpoints.items()}
        rates = alternate(sides, rounds=stage.sizes.rounds, say=stage.say)
    found = []
    for figure in FIGURES:
        under = _UNDER[figure.name]
        notes = {
            f"{what} of {side}": max(getattr(endpoints[side], attribute))
            for side in ("bridge", under)
            for what, attribute in (
                ("load's share of the cores", "load_shares"),
                ("CPU us per request", "cpu_microseconds"),
            )
        }
        value = median_ratio(rates["bridge"], rates[under])
        found.append(Measured(figure, value, {"bridge": rates["bridge"], under: rates[under]}, notes))
    return found


@contextmanager
def _peer(stage: Stage, script: str, told: dict[str, Any]) -> Iterator[_Endpoint]:
    port = choose_port(taken=())
    argv = [str(stage.peer_python), str(stage.peers_folder / f"{script}.py"), json.dumps({**told, "port": port})]
    with running(script, argv, environment=peer_environment(), folder=stage.folder) as child:
        wait_for(lambda: accepts_connections(port), limit_seconds=READY_SECONDS, what=f"{script} listens", child=child)
        yield _Endpoint(f"http://127.0.0.1:{port}{PATH}", child)


def _side(stage: Stage, name: str, endpoint: _Endpoint) -> Side:
    calls = iter(range(1_000))

    def run() -> float:
        cpu = endpoint.child.cpu_seconds()
        told = {
            "url": endpoint.url,
            "connections": stage.sizes.connections,
            "seconds": stage.sizes.seconds,
            "warm_up_seconds": stage.sizes.warm_up_seconds,
            "series": f"B{name}{next(calls)}x",
        }
        answer = run_load(stage, told, child=endpoint.child)
        endpoint.load_shares.append(answer["load_share"])
        used = endpoint.child.cpu_seconds() - cpu
        endpoint.cpu_microseconds.append(used / max(1, answer["all_requests"]) * 1e6)
        return float(answer["per_second"])

    return run


def run_load(stage: Stage, told: dict[str, Any], *, child: Child) -> dict[str, Any]:
    """Run the load as a process of its own; returns what it says."""
    answer_file = stage.folder / "load.json"
    answer_file.unlink(missing_ok=True)
    argv = [sys.executable, "-m", "bench.load", json.dumps({**told, "answer_file": str(answer_file)})]
    with running("load", argv, environment=product_environment({}), folder=stage.folder) as load:
        ended = lambda: answer_file.exists() or load.process.poll() is not None  # noqa: E731
        wait_for(ended, limit_seconds=LOAD_SECONDS_MAX, what="the load is done", child=child)
        if not answer_file.exists():
            load.check()
        answer: dict[str, Any] = json.loads(answer_file.read_text("utf-8"))
        return answer


if __name__ == "__main__":
    from bench.run import main

    sys.exit(main(sys.argv[1:], only=("bridge",)))
