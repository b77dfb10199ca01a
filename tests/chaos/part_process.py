"""A part of the product as a process with failpoints: ``part_process.py <plan file> <fired file> <command> ...``.

Rule: the product's command runs unchanged.  The plan may change while it runs; each firing is written durably before
it acts, so that a process that was killed by it can prove it, and its successor does not fire again.

The plan: ``{"serial": 3, "armed": [{"point", "action", "at", "times"}], "clock_offset_seconds": 0, "group": ""}``.
Actions: ``kill9``, ``stop`` (SIGSTOP), ``sleep:<seconds>``, ``raise``, ``fatal`` (a fatal error in a Kafka client).
"""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


class FailpointRaised(RuntimeError):
    """The action ``raise``: a bug at this place, as far as the product can tell."""


class Failpoints:
    """The hook.  Hits are counted from the moment at which the plan was read."""

    def __init__(self, plan: Path, fired: Path) -> None:
        self._plan, self._fired = plan, fired
        self._lock = threading.Lock()
        self._stamp: tuple[int, int] | None = None
        self._armed: dict[str, dict[str, Any]] = {}
        self._hits: dict[str, int] = {}
        self._seen: set[str] = set()
        self._serial = 0

    def hit(self, name: str) -> None:
        """Count the hit, and do what the plan says."""
        with self._lock:
            self._follow_plan()
            if name not in self._seen:
                self._seen.add(name)
                self._write({"seen": name})
            hits = self._hits[name] = self._hits.get(name, 0) + 1
            entry = self._armed.get(name)
            if entry is None or not entry["at"] <= hits or entry["left"] <= 0:
                return
            entry["left"] -= 1
            self._write({"serial": self._serial, "point": name, "hit": hits, "action": entry["action"]})
        act(entry["action"])

    def _follow_plan(self) -> None:
        try:
            found = self._plan.stat()
        except FileNotFoundError:
            return
        stamp = (found.st_mtime_ns, found.st_ino)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        plan = json.loads(self._plan.read_text())
        self._serial = plan["serial"]
        self._hits.clear()
        self._armed = {entry["point"]: {**entry, "left": entry["times"]} for entry in plan["armed"]}
        if self._fired.exists():
            for line in self._fired.read_text().splitlines():
                past = json.loads(line)
                if past.get("serial") == self._serial and past.get("point") in self._armed:
                    self._armed[past["point"]]["left"] -= 1

    def _write(self, entry: dict[str, Any]) -> None:
        line = json.dumps({**entry, "pid": os.getpid(), "at": time.time()}) + "\n"
        file = os.open(self._fired, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, line.encode())
            os.fsync(file)
        finally:
            os.close(file)


def act(action: str) -> None:
    """Do what an action says."""
    kind, _, argument = action.partition(":")
    match kind:
        case "kill9":
            os.kill(os.getpid(), signal.SIGKILL)
        case "stop":
            # To this thread: one to the process stops this thread only once another has been woken up to take it.
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
        case "sleep":
            threading.Event().wait(float(argument))
        case "raise":
            raise FailpointRaised(action)
        case "fatal":
            make_client_fatal(argument)
        case _:
            raise ValueError(action)


def make_client_fatal(kind: str) -> None:
    """Break every Kafka client of a kind (``Producer``, ``Consumer``) of this process for good, by its test hook."""
    from confluent_kafka import Consumer, Producer  # noqa: PLC0415

    from tests.producer.fatal_error import make_fatal  # noqa: PLC0415

    wanted = {"Producer": Producer, "Consumer": Consumer}[kind]
    found: list[Any] = [thing for thing in gc.get_objects() if isinstance(thing, wanted)] or _frames_hold(wanted)
    # Among them are closed ones that nobody has collected yet.
    broken = [make_fatal(client) for client in found]
    assert any(broken), f"there is no {kind} to break"


def _frames_hold(wanted: type[Any]) -> list[Any]:
    """Search the local variables and attributes of all threads: clients may be invisible to the collector."""
    found: list[Any] = []
    for frame in sys._current_frames().values():
        current = frame
        while current is not None:
            for value in list(current.f_locals.values()):
                found += [held for held in (value, *_attributes(value)) if isinstance(held, wanted)]
            current = current.f_back  # type: ignore[assignment]  # None ends the loop
    return list({id(client): client for client in found}.values())


def _attributes(value: Any) -> list[Any]:
    found = list(getattr(value, "__dict__", {}).values())
    return found + [inner for one in found for inner in getattr(one, "__dict__", {}).values()]


def main() -> None:
    """Prepare what the plan says about the whole process, then run the command."""
    # A crash inside a library then says where, in the part's log.
    faulthandler.enable()
    plan_file, fired_file, *arguments = sys.argv[1:]
    sys.path.insert(0, str(ROOT))
    plan = json.loads(Path(plan_file).read_text())
    offset = plan.get("clock_offset_seconds", 0)
    if offset:
        real = time.time
        time.time = lambda: real() + offset
    if plan.get("group"):
        import onceflow.service_options  # noqa: PLC0415

        options: Any = onceflow.service_options
        options.processor_group = lambda deployment: f"{plan['group']}.{deployment}"
    from onceflow_producer import failpoint  # noqa: PLC0415

    failpoint.install(Failpoints(Path(plan_file), Path(fired_file)).hit)
    sys.argv = ["onceflow", *arguments]
    from onceflow.command_line import main as run_command  # noqa: PLC0415

    run_command()


if __name__ == "__main__":
    main()
