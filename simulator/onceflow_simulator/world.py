"""Everything that the simulated Stripe knows: accounts with their objects, and what all accounts share.

Rule: objects of one account and mode are invisible to every other; only the truth ledger, the clock and the knobs are
shared.
"""

from __future__ import annotations

import random
import secrets
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from onceflow_simulator.agenda import Agenda
from onceflow_simulator.clock import Clock
from onceflow_simulator.event_log import EventLog
from onceflow_simulator.idempotency import Keys
from onceflow_simulator.ids import Ids
from onceflow_simulator.knobs import Knobs
from onceflow_simulator.ledger import Ledger
from onceflow_simulator.limits import Limits

if TYPE_CHECKING:
    from onceflow_simulator.books import Books
    from onceflow_simulator.delivery import Deliveries

Json = dict[str, Any]

API_VERSION = "2026-10-28.endive"


@dataclass
class Account:
    """One account in one mode.

    Args:
        id: ``acct_...``.
        livemode: live, or test.
        connected: it is reached with the platform's key and the header ``Stripe-Account``.
        objects: kind -> id -> object, in the order of their creation.
        index: id -> object, of every kind.
        methods: payment method -> the name of the test card or debit that it behaves as.
        confirms: intent -> how often it was confirmed.
        watchers: intent in processing -> what its end is told to: an invoice, a checkout session.
        lines: invoice -> all its lines.
    """

    id: str
    livemode: bool
    connected: bool = False
    objects: dict[str, dict[str, Json]] = field(default_factory=dict)
    index: dict[str, Json] = field(default_factory=dict)
    methods: dict[str, str] = field(default_factory=dict)
    confirms: Counter[str] = field(default_factory=Counter)
    watchers: dict[str, Callable[[Books, Json], object]] = field(default_factory=dict)
    lines: dict[str, list[Json]] = field(default_factory=dict)
    events: EventLog = field(default_factory=EventLog)
    keys: Keys = field(default_factory=Keys)
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True)
class ApiKey:
    """A key that somebody told the simulator about.

    Args:
        account: whose key it is.
        permissions: of a restricted key, such as ``charge_write``; None for all.
        revoked: every request with it is answered 401.
    """

    account: str
    permissions: frozenset[str] | None = None
    revoked: bool = False


@dataclass
class World:
    """The whole simulator.

    Args:
        platform: the account of every key that nobody said more about.
        seed: of ids, faults and deliveries.
        clock: None for the real one.
        reads: account and path -> how often it was read at Stripe's interface, whatever the answer was.
        begin: puts in place what was there from the start, after a reset too.
    """

    platform: str
    seed: int
    clock: Clock = field(default_factory=Clock)
    api_version: str = API_VERSION
    knobs: Knobs = field(default_factory=Knobs)
    ledger: Ledger = field(default_factory=Ledger)
    api_keys: dict[str, ApiKey] = field(default_factory=dict)
    connections: dict[str, str] = field(default_factory=dict)
    accounts: dict[tuple[str, bool], Account] = field(default_factory=dict)
    deliveries: Deliveries | None = None
    reads: Counter[tuple[str, str]] = field(default_factory=Counter)
    begin: Callable[[], object] = lambda: None

    def __post_init__(self) -> None:
        self.ids = Ids(self.seed)
        self.bugs: list[str] = []
        self.agenda = Agenda(self.clock, bugs=self.bugs)
        self._first_knobs = self.knobs.model_copy()
        self._random = random.Random(self.seed)

    def chance(self, share: float) -> bool:
        """True in a share of the cases, by the seed."""
        return share >= 1.0 or (share > 0.0 and self._random.random() < share)

    def between(self, low: float, high: float) -> float:
        """A number in between, by the seed."""
        return self._random.uniform(low, high)

    def account(self, id: str, *, livemode: bool) -> Account:
        """The account, which is made when it is first asked for."""
        found = self.accounts.get((id, livemode))
        if found is None:
            found = Account(id, livemode, connected=id != self.platform)
            self.accounts[id, livemode] = found
        return found

    def reset(self) -> None:
        """Forget all that happened; clock and knobs are as in the beginning, ids go on."""
        self.accounts.clear()
        self.api_keys.clear()
        self.connections.clear()
        self.agenda.clear()
        self.bugs.clear()
        self.ledger.clear()
        self.reads.clear()
        self.knobs = self._first_knobs.model_copy()
        self.clock.reset()
        self.begin()


def new_seed() -> int:
    """A seed that no other start has."""
    return secrets.randbits(48)
