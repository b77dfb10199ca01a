"""A client of ``/_sim``, without dependencies: for commands, for tests, for whoever steers a running simulator.

Rule: one method per thing that a test wants; what the simulator refuses is an error that says why.
"""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast, get_args

from onceflow_simulator.ledger import Kind

TIMEOUT_SECONDS = 30.0
POLL_SECONDS = 0.02

Json = dict[str, Any]


class SimulatorRefused(Exception):
    """The simulator does not do what was asked: the status and its reason."""


class SimulatorClient:
    """Steers a simulator.

    Args:
        url: such as ``http://127.0.0.1:12111``, without a slash at its end.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.faults = FaultClient(self)

    def call(self, method: str, path: str, *, body: object = None) -> Json:
        """One request of ``/_sim``.

        Raises:
            SimulatorRefused: it was not done.
            OSError: nobody is there.
        """
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(  # noqa: S310 - the simulator's own address
            self.url + "/_sim" + path, data=data, method=method, headers={"content-type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer:  # noqa: S310
                return cast("Json", json.load(answer))
        except urllib.error.HTTPError as error:
            with error:
                raise SimulatorRefused(_reason(error.read()) or f"{method} {path}: {error.code}") from None

    def state(self) -> Json:
        """What is going on; ``bugs`` is a list that must be empty."""
        return self.call("GET", "/state")

    def ledger(self, *, by: str | None = None, kind: str | None = None, entries: bool = True) -> Ledger:
        """The truth about money."""
        query = {"by": by, "kind": kind, "entries": str(entries).lower()}
        text = urllib.parse.urlencode({name: value for name, value in query.items() if value is not None})
        return Ledger(self.call("GET", f"/ledger?{text}"))

    def reads(self, path: str, *, account: str | None = None) -> int:
        """How often a path such as ``/v1/invoices/in_1`` was read, of one account or of all; refused requests too."""
        found = self.call("GET", "/reads")["reads"]
        return sum(one["count"] for one in found if one["path"] == path and account in (None, one["account"]))

    def journal(self) -> list[Json]:
        """Each fault that fired."""
        return cast("list[Json]", self.call("GET", "/journal")["entries"])

    def deliveries(self) -> list[Json]:
        """Each attempt to deliver a webhook."""
        return cast("list[Json]", self.call("GET", "/deliveries")["attempts"])

    def advance(self, seconds: float) -> float:
        """Move the clock; what becomes due on the way happens before this returns. The new time."""
        return float(self.call("POST", "/clock", body={"advance_seconds": seconds})["now"])

    def stop_clock(self, at: float | None = None) -> float:
        """Let the clock stand, now or at a time; it is then moved by ``advance`` only."""
        return float(self.call("POST", "/clock", body={"mode": "fixed", "set": at})["now"])

    def set(self, **knobs: object) -> Json:
        """Change knobs."""
        return self.call("POST", "/knobs", body=knobs)

    def add_key(
        self, key: str, *, account: str | None = None, permissions: Sequence[str] | None = None, revoked: bool = False
    ) -> None:
        """Make an API key known: of another account, restricted, or revoked."""
        body = {"key": key, "account": account, "permissions": permissions, "revoked": revoked}
        self.call("POST", "/keys", body=body)

    def connect(self, account: str, *, state: str = "connected") -> None:
        """Connect an account with the platform; state "deauthorized" ends that."""
        self.call("POST", "/accounts", body={"account": account, "state": state})

    def tell_events(
        self, events: Sequence[Json], *, account: str | None = None, livemode: bool = False, deliver: bool = False
    ) -> int:
        """Have the list show whole events, oldest first; how many. Nobody delivers them unless that is asked for."""
        body = {"account": account, "livemode": livemode, "deliver": deliver, "events": list(events)}
        return int(self.call("POST", "/events", body=body)["told"])

    def add_webhook(self, url: str, *, secrets: Sequence[str], **knobs: object) -> str:
        """Send events to an address; its id."""
        return str(self.call("POST", "/webhooks", body={"url": url, "secrets": list(secrets), **knobs})["id"])

    def dropped(self, id: str) -> list[str]:
        """The events that were dropped on their way to an endpoint."""
        found = self.call("GET", "/webhooks")["endpoints"]
        return [event for one in found if one["id"] == id for event in one["dropped"]]

    def change_webhook(self, id: str, **knobs: object) -> None:
        """Roll its secret, disable it, drop more."""
        self.call("PATCH", f"/webhooks/{id}", body=knobs)

    def act(self, act: str, object: str, *, account: str | None = None) -> Json:
        """Let a bank, a customer or a card network do something; the object afterwards."""
        return self.call("POST", "/act", body={"act": act, "object": object, "account": account})

    def prune_keys(self) -> None:
        """Forget all idempotency keys now."""
        self.call("POST", "/prune_keys", body={})

    def reset(self) -> None:
        """Forget all that happened."""
        self.call("POST", "/reset", body={})

    def wait_delivered(self, *, timeout_seconds: float = 10.0) -> None:
        """Wait until nothing is on its way to a webhook.

        Raises:
            TimeoutError: something still is.
        """
        wait_until(
            lambda: self.call("GET", "/deliveries")["waiting"] == 0, "all is delivered", timeout_seconds=timeout_seconds
        )


class Ledger:
    """The truth, as it was when it was read.

    Args:
        report: ``counts``, ``totals`` and ``entries``.

    Its methods raise a ValueError for a kind that there is not: a typing error would look as if nothing had happened.
    """

    def __init__(self, report: Json) -> None:
        self.report = report
        self.entries: list[Json] = report["entries"]

    def count(self, kind: str, operation: str | None = None) -> int:
        """How often it happened, to one operation or in all."""
        return sum(int(group["count"]) for group in self._groups(kind, operation))

    def amount(self, kind: str, operation: str | None = None) -> int:
        """How much money that was."""
        return sum(int(group["amount"]) for group in self._groups(kind, operation))

    def doubled(self, kind: str) -> list[str]:
        """The operations to which it happened more than once."""
        return [one["operation"] for one in self._groups(kind) if one["count"] > 1]

    def _groups(self, kind: str, operation: str | None = None) -> list[Json]:
        if kind not in get_args(Kind):
            raise ValueError(f"no kind {kind!r}; there are {', '.join(get_args(Kind))}")
        groups = [group for group in self.report["counts"] if group["kind"] == kind]
        return [group for group in groups if operation in (None, group["operation"])]


def _reason(body: bytes) -> str | None:
    """The sentence in which the simulator refuses; None for a body that is none of its own."""
    try:
        detail = json.loads(body)["detail"]
    except (ValueError, KeyError, TypeError):
        return None
    return detail if isinstance(detail, str) else None


class FaultClient:
    """Scripts faults. Every method takes what a rule takes: ``times``, ``skip``, ``probability``, ``match``, ``name``."""

    def __init__(self, client: SimulatorClient) -> None:
        self._client = client

    def add(self, fault: str, *, match: Mapping[str, object] | None = None, **rule: object) -> str:
        """Put a rule in force; its id."""
        body = {"fault": fault, "match": dict(match or {}), **rule}
        return str(self._client.call("POST", "/faults", body=body)["ids"][0])

    def lose_request(self, **rule: Any) -> str:
        """The connection ends before anything was executed."""
        return self.add("lost_request", **rule)

    def lose_answer(self, how: str = "reset", **rule: Any) -> str:
        """Executed, and then the answer is lost: "reset", "truncated", "garbage" or "hang"."""
        return self.add("lost_answer", reply=how, **rule)

    def land_late(self, *, seconds: float | None = None, ms: float | None = None, **rule: Any) -> str:
        """The effect comes after the client gave up: in seconds of the simulator's clock, or in real milliseconds."""
        when = {"late_seconds": seconds} if ms is None else {"late_ms": ms}
        return self.add("slow_success", **when, **rule)

    def answer(self, status: int, *, effect: str = "none", **rule: Any) -> str:
        """Another answer than Stripe's, with or without the effect."""
        return self.add("server_error", status=status, effect=effect, **{"stored": False, **rule})

    def clear(self) -> None:
        """Take all rules out of force."""
        self._client.call("DELETE", "/faults")


def wait_until(holds: Callable[[], bool], what: str, *, timeout_seconds: float) -> None:
    """Look again and again until something holds.

    Raises:
        TimeoutError: it never did.
    """
    give_up_at = time.monotonic() + timeout_seconds
    while not holds():
        if time.monotonic() > give_up_at:
            raise TimeoutError(f"not within {timeout_seconds} s: {what}")
        time.sleep(POLL_SECONDS)
