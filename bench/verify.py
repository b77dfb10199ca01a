"""The proof, against a bare scan of the same topics.

Rule: both sides read the same topics in one run and take turns, each time in a new process, so that the memory is the proof's own;
the proof must find nothing unexplained, or its time says nothing.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.children import SideFailed, product_environment, running, wait_for
from bench.figures import Figure, Measured
from bench.measuring import Side, alternate, median_ratio
from bench.stage import Road, Stage
from bench.verify_road import fill_road, scan, settle_road
from onceflow.settings import SettingSources, load_settings
from onceflow.verifying import answer_of
from onceflow_producer.lifetime import write_state

SIDE_SECONDS_MAX = 1_200.0

FIGURES = (
    Figure("verify_events_per_second", "events proved per second, Stripe's side left out", 20_000.0, unit="/s"),
    Figure("verify_vs_scan", "the proof / a consumer that reads the same topics and does nothing", 0.5),
    Figure("verify_memory_mib", "the most memory that the processes of the proof had", 300.0, unit="MiB", at_most=True),
)


@dataclass(frozen=True, slots=True)
class _Runs:
    stage: Stage
    road: Road
    url: str
    peak_mib: list[float] = field(default_factory=list)

    def prove(self) -> float:
        """Prove once; events per second."""
        told = self._run("proof")
        if told["unexplained"] or told["events"] != self.stage.sizes.verify_events:
            raise SideFailed(f"the proof counts {told['events']} events and leaves {told['unexplained']} unexplained")
        self.peak_mib.append(told["peak_mib"])
        return float(told["events"] / told["seconds"])

    def scan(self) -> float:
        """Read both topics and do nothing with them."""
        return float(self.stage.sizes.verify_events / self._run("scan")["seconds"])

    def _run(self, side: str) -> dict[str, Any]:
        answer_file = self.stage.folder / f"{side}.json"
        answer_file.unlink(missing_ok=True)
        topics = [self.road.events, self.road.outcomes]
        told = {"side": side, "bootstrap": self.stage.bootstrap, "topics": topics, "answer_file": str(answer_file)}
        argv = [sys.executable, "-c", _CHILD, json.dumps(told)]
        environment = product_environment(self.stage.settings(self.road, database_url=self.url))
        with running(side, argv, environment=environment, folder=self.stage.folder) as child:
            ended = lambda: answer_file.exists() or child.process.poll() is not None  # noqa: E731
            wait_for(ended, limit_seconds=SIDE_SECONDS_MAX, what=f"the {side} is done")
            if not answer_file.exists():
                raise SideFailed(child.words())
        found: dict[str, Any] = json.loads(answer_file.read_text("utf-8"))
        return found


def run_side(told: dict[str, Any]) -> None:
    """Run one side and write what it took; in a process of its own."""
    settings = load_settings(SettingSources()).settings
    found: dict[str, Any] = {}
    begun = time.monotonic()
    if told["side"] == "proof":
        answer = answer_of(settings, since=None, until=None, account=None, former=None, with_stripe=False)
        found = {"events": answer.events, "unexplained": answer.unexplained_count}
    else:
        for topic in told["topics"]:
            for _ in scan(told["bootstrap"], topic):
                pass
    seconds = time.monotonic() - begun
    write_state(Path(told["answer_file"]), {**found, "seconds": seconds, "peak_mib": _peak_mib()})


def _peak_mib() -> float:
    """Return the most memory that this process had and its largest child; what ``getrusage`` says of oneself begins with one's parent's."""
    status = Path("/proc/self/status").read_text("ascii")
    line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return (int(line.split()[1]) + resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss) / 1024


def measure(stage: Stage) -> list[Measured]:
    """Measure the figures of this module, each side once per round."""
    road = stage.road()
    fill_road(stage, road)
    with stage.database(road) as url:
        settle_road(stage, road, url)
        runs = _Runs(stage, road, url)
        runs.scan()
        sides: dict[str, Side] = {"proof": runs.prove, "scan": runs.scan}
        rates = alternate(sides, rounds=stage.sizes.rounds, say=stage.say)
    per_second, ratio, memory = FIGURES
    notes = {"events": float(stage.sizes.verify_events)}
    return [
        Measured(per_second, sorted(rates["proof"])[len(rates["proof"]) // 2], {"proof": rates["proof"]}, notes),
        Measured(ratio, median_ratio(rates["proof"], rates["scan"]), rates),
        Measured(memory, max(runs.peak_mib), {"proof": runs.peak_mib}),
    ]


_CHILD = "import json, sys; from bench.verify import run_side; run_side(json.loads(sys.argv[1]))"

if __name__ == "__main__":
    from bench.run import main

    sys.exit(main(sys.argv[1:], only=("verify",)))
