"""The running system with a reconciler and a simulator as its Stripe, which lists whatever was sent.

Rule: what the list shows is told by the faults, or is what the load has sent, and each of these events is one that was sent: the
verdict knows it by the bytes that the list makes of it.  The world has settled only when ``onceflow verify`` has said what the
checker finds by itself, number by number.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import orjson

from onceflow.demo.proof_count import listable
from onceflow_simulator import Simulator
from tests.chaos.topics import topic_id
from tests.chaos.world import COMMANDS, SETTLE_SECONDS, World
from tests.checker.reading import take_snapshot
from tests.checker.snapshot import ANSWERED, Delivery, Identity
from tests.checker.truth import Truth, compare, truth_of

API_KEY = "sk_test_chaos"
CHECKERS_KEY = "sk_test_checker"
ACCOUNT = "acct_embedded"
MODE = "test"
CYCLE_SECONDS = 1
LEASE_SECONDS = 5
TELL_EVENTS = 5_000
PAGE_EVENTS = 100
PAGES_MAX = 2_000
ANSWER_SECONDS = 30.0
VERIFY_SECONDS = 180.0
QUIET_SECONDS = 10.0
PICTURES_MAX = 3


class ReconcilerWorld(World):
    """See the module; arguments as those of ``World``, settings as overrides by ``section.name``."""

    commands: Mapping[str, str] = {**COMMANDS, "reconciler": "reconcile"}

    def __init__(self, folder: Path, *, seed: int, settings: Mapping[str, Any] | None = None) -> None:
        own = {
            "reconciler.cycle_seconds": CYCLE_SECONDS,
            "reconciler.grace_seconds": 1,
            "reconciler.lease_seconds": LEASE_SECONDS,
            "reconciler.requests_per_second": 200,
            "reconciler.first_hours": 1,
        }
        super().__init__(folder, seed=seed, settings={**own, **(settings or {})})
        self.simulator = Simulator(seed=seed)
        self.expected: frozenset[str] = frozenset()
        """Kinds of differences that a fault leaves for good; each must be told, as often as the checker counts it."""
        self._told_ids: set[str] = set()
        self._too_old: set[Identity] = set()
        self._said = ""

    # Life

    def start(self) -> None:
        """Start the simulator, then everything; returns when all are ready."""
        if not self.simulator.pid:
            self.simulator.__enter__()
        self._settings |= {"stripe.api_base": self.simulator.url, "stripe.api_key": API_KEY}
        super().start()

    def stop(self) -> None:
        """End everything."""
        try:
            super().stop()
        finally:
            if self.simulator.pid:
                self.simulator.stop()

    def heal(self) -> None:
        """Bring everything back; the simulator does nothing wrong any more."""
        self.simulator.faults.clear()
        self.simulator.set(account_per_second=None, endpoint_per_second=None)
        super().heal()

    # Stripe's list

    def tell(self, events: Sequence[dict[str, Any]], *, surely: bool = True, deliver: bool = False) -> None:
        """Have Stripe list events, in the order of their times; not ``surely`` are they brought where webhooks come too.

        ``deliver``: their webhooks come, as the simulator's endpoints let them.
        """
        fresh = [event for event in events if event["id"] not in self._told_ids]
        ordered = sorted(fresh, key=lambda event: int(event["created"]))
        self._told_ids |= {event["id"] for event in ordered}
        for start in range(0, len(ordered), TELL_EVENTS):
            self.simulator.tell_events(ordered[start : start + TELL_EVENTS], deliver=deliver)
        for event in ordered:
            shown = orjson.dumps({"object": "event", **event, "pending_webhooks": 0})
            self.deliveries.append(Delivery(hashlib.sha256(shown).digest(), ANSWERED if surely else None))

    def note_bodies(self, bodies: Sequence[bytes]) -> None:
        """Whatever was sent is listed."""
        self.tell(listable(bodies), surely=False)

    def let_pass(self, seconds: float) -> None:
        """Move Stripe's clock; what is listed now may be too old for the list afterwards."""
        self._too_old |= {(ACCOUNT, MODE, event["id"]) for event in self.listed()}
        self.simulator.advance(seconds)

    def listed(self) -> Iterator[dict[str, Any]]:
        """The events that Stripe lists now, as any other client sees them."""
        asked: dict[str, Any] = {"limit": PAGE_EVENTS}
        for _ in range(PAGES_MAX):
            request = urllib.request.Request(
                f"{self.simulator.url}/v1/events?{urlencode(asked)}",
                headers={"Authorization": f"Bearer {CHECKERS_KEY}"},
            )
            with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as answer:
                page = json.load(answer)
            yield from page["data"]
            if not page["has_more"]:
                return
            asked["starting_after"] = page["data"][-1]["id"]
        raise AssertionError(f"the list has more than {PAGES_MAX} pages")

    # Findings

    def findings(self, kind: str = "missed_event") -> dict[str, str]:
        """Findings of a kind with their states: missed events by their ids, others by what they are about."""
        rows = self.rows(
            "SELECT coalesce(facts ->> 'event_id', subject), state FROM onceflow.finding WHERE kind = %s", kind
        )
        return dict(rows)

    # Proof

    def settle(self, limit_seconds: float = SETTLE_SECONDS) -> str | None:
        """Wait until everything is done, then have it proved; return why not, or where the proof is not the truth."""
        reason = super().settle(limit_seconds)
        return reason if reason is not None else self._prove()

    def proved(self) -> str:
        """The last line of the last proof."""
        return self._said

    def verify(self) -> dict[str, Any]:
        """What ``onceflow verify --json`` says."""
        done = subprocess.run(
            [sys.executable, "-m", "onceflow", "verify", "--json"],
            env=self._environment("verify", "reconciler", {}),
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=VERIFY_SECONDS,
            check=False,
        )
        assert done.returncode in {0, 1}, (
            f"verify ended with {done.returncode}: {done.stdout[-500:]}{done.stderr[-2_000:]}"
        )
        told: dict[str, Any] = json.loads(done.stdout)
        assert done.returncode == int(told["unexplained"] > 0), "the status says something else than the count"
        return told

    def truth(self) -> Truth:
        """What the checker finds by itself, in the raw ledgers and in Stripe's list."""
        snapshot = take_snapshot(self.checker_system(), (), limit_seconds=QUIET_SECONDS)
        assert snapshot.not_quiet is None or self.expected, snapshot.not_quiet
        now = topic_id(self, self.topics.events[0])
        rows = self.rows("SELECT account, mode, event_id FROM onceflow.inbox WHERE topic_id <> %s", now)
        elsewhere: set[Identity] = {(account, mode, event_id) for account, mode, event_id in rows}
        listed = {(ACCOUNT, MODE, event["id"]) for event in self.listed()}
        return truth_of(snapshot, listed, too_old=self._too_old - listed, elsewhere=elsewhere)

    def _prove(self) -> str | None:
        told, truth = self.verify(), self.truth()
        for _ in range(PICTURES_MAX):
            if not compare(told, truth):
                break
            # Both pictures were taken one after the other: where nothing has moved from before to after the proof, the proof is wrong.
            before, told, truth = truth, self.verify(), self.truth()
            if before == truth:
                break
        self._said = f"verify: {told['events']} events, {told['unexplained']} unexplained"
        wrong = compare(told, truth)
        if left := set(truth.differences) - self.expected:
            wrong += [f"{kind} is left, {truth.differences[kind]} times" for kind in sorted(left)]
        if wrong:
            return f"{self._said}; {'; '.join(wrong)}; {told['differences'][:3]}"
        self._said += ", as the checker counts"
        return None
