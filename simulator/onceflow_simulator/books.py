"""An account's objects as one request, or one automatic change, works on them.

Rule: every change of an object goes through here, so that it is dated by the simulator's clock, told by an event with
the request that caused it, and, where money moved, written to the truth ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from onceflow_simulator import emission
from onceflow_simulator.emission import Origin
from onceflow_simulator.errors import missing
from onceflow_simulator.ledger import Entry, Kind
from onceflow_simulator.world import Account, Json, World

AUTOMATIC = Origin(request_id=None, key=None)


@dataclass(frozen=True)
class Books:
    """One account, seen by whoever asked.

    Args:
        origin: the request that asks; AUTOMATIC for what Stripe does by itself.
    """

    world: World
    account: Account
    origin: Origin = AUTOMATIC

    @property
    def now(self) -> int:
        """Whole seconds of the simulator's clock."""
        return self.world.clock.seconds()

    def new(self, kind: str, *, prefix: str, fields: Mapping[str, Any]) -> Json:
        """A new object of this account."""
        body: Json = {
            "id": self.world.ids.new(prefix),
            "object": kind,
            "created": self.now,
            "livemode": self.account.livemode,
            **fields,
        }
        return self.put(body)

    def put(self, body: Json) -> Json:
        """Take an object in under its own id."""
        self.account.objects.setdefault(body["object"], {})[body["id"]] = body
        self.account.index[body["id"]] = body
        return body

    def drop(self, body: Json) -> None:
        """Remove an object."""
        self.account.objects.get(body["object"], {}).pop(body["id"], None)
        self.account.index.pop(body["id"], None)

    def get(self, kind: str, id: str, *, param: str = "id") -> Json:
        """The object.

        Raises:
            StripeError: 404.
        """
        found = self.account.objects.get(kind, {}).get(id)
        if found is None:
            raise missing(kind.rpartition(".")[2], id, param=param)
        return found

    def all(self, kind: str) -> Iterable[Json]:
        """All objects of a kind, oldest first."""
        return self.account.objects.get(kind, {}).values()

    def emit(self, type: str, body: Json, *, previous: Json | None = None) -> None:
        """Tell of a change."""
        emission.emit(self.world, self.account, origin=self.origin, type=type, body=body, previous=previous)

    def record(
        self,
        kind: Kind,
        body: Json,
        *,
        amount: int,
        parent: str | None = None,
        metadata: Mapping[str, str] | None = None,
        key: str | None = None,
    ) -> None:
        """Write down in the truth ledger that money moved.

        Args:
            metadata: says what it was for; by default that of the object.
            key: of the request that began it, for what happens by itself later.
        """
        self.world.ledger.record(
            Entry(
                at=self.world.clock.now(),
                account=self.account.id,
                livemode=self.account.livemode,
                kind=kind,
                object=body["id"],
                amount=amount,
                currency=body.get("currency") or "",
                metadata=dict(metadata if metadata is not None else body.get("metadata") or {}),
                parent=parent,
                key=self.origin.key or key,
                request_id=self.origin.request_id,
            )
        )

    def later(self, seconds: float, action: Callable[[Books], object]) -> None:
        """Do something later, by itself."""
        books = replace(self, origin=AUTOMATIC)
        self.world.agenda.after(seconds, lambda: action(books))
