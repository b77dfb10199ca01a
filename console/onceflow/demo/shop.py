"""The demo's application: customers pay deposits at Stripe, and orders are confirmed in the database, all by one plan.

Rule: it behaves as an application should: an order and the wish for its charge are one transaction of its own, and what
it did not hear the end of it does again, in the same words.
"""

from __future__ import annotations

import base64
import queue
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

import psycopg

from onceflow.demo.running_system import Ready
from onceflow_schemas.failure import Unavailable
from onceflow_schemas.sql import queries

if TYPE_CHECKING:
    from onceflow_simulator import SimulatorClient

REFUNDS = 200
CHARGES = 50
DECLINED_SHARE = 0.2
SHARE_OF = 2_000
"""So many refunds and charges belong to so many requests."""

LOST_REQUESTS = 0.1
LOST_ANSWERS = LOST_REQUESTS / (1 - LOST_REQUESTS)
"""A tenth of all calls each: what was lost on its way there cannot be lost on its way back."""

LATENCY_MS = 60
"""Of the simulated Stripe, so that a worker that dies has calls on their way."""

OPERATIONS = {
    "ONCEFLOW_OPERATIONS_CONNECT_SECONDS": "2",
    "ONCEFLOW_OPERATIONS_CALL_SECONDS_MAX": "4",
    "ONCEFLOW_OPERATIONS_CALLBACK_DEADLINE_SECONDS": "2",
    "ONCEFLOW_OPERATIONS_LEASE_SECONDS": "16",
    "ONCEFLOW_OPERATIONS_REQUESTS_PER_SECOND": "100",
}
"""Settings of the demo: nobody wants to wait half a minute for the lease of a worker that was killed."""

GOOD_CARDS = ("pm_card_visa", "pm_card_mastercard", "pm_card_amex")
BAD_CARDS = ("pm_card_chargeDeclined", "pm_card_chargeDeclinedInsufficientFunds", "pm_card_chargeDeclinedExpiredCard")
CURRENCIES = ("usd", "eur", "jpy")
ANSWER_SECONDS = 10.0
CONNECT_SECONDS = 5
RETRY_SECONDS = 0.3
GIVE_UP_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Deposit:
    """A payment that the handler gives back."""

    name: str
    amount: int
    currency: str


@dataclass(frozen=True, slots=True)
class Order:
    """An order whose confirmation asks for its charge."""

    name: str
    amount: int
    currency: str
    payment_method: str


Deed = Deposit | Order


def plan_deeds(*, seed: int, requests: int) -> list[Deed]:
    """Return what the application does, in its order.

    Args:
        seed: of everything random.
        requests: how many webhooks the demo sends; 200 deposits and 50 orders belong to 2,000.
    """
    random = Random(seed)  # noqa: S311 - test data, must repeat
    charges = requests * CHARGES // SHARE_OF
    declined = round(charges * DECLINED_SHARE)
    deeds: list[Deed] = [
        Deposit(f"deposit-{seed}-{number}", random.randrange(500, 20_000), random.choice(CURRENCIES))
        for number in range(requests * REFUNDS // SHARE_OF)
    ]
    deeds += [
        Order(
            f"order-{seed}-{number}",
            random.randrange(500, 50_000),
            random.choice(CURRENCIES),
            random.choice(BAD_CARDS if number < declined else GOOD_CARDS),
        )
        for number in range(charges)
    ]
    random.shuffle(deeds)
    return deeds


def break_stripe(simulator: SimulatorClient) -> None:
    """Have the simulated Stripe lose a tenth of the requests and of the answers of operations, and be as slow as a real one."""
    ours = {"metadata": {"onceflow_operation": "?*"}}
    simulator.set(latency_ms=LATENCY_MS)
    simulator.faults.lose_request(probability=LOST_REQUESTS, times=None, match=ours)
    simulator.faults.lose_answer(probability=LOST_ANSWERS, times=None, match=ours)


class Shop:
    """Does the deeds in a thread of its own, spread over the traffic.

    Args:
        where: returns the addresses as they are now.
        deeds: all of them, in order.
    """

    def __init__(self, where: Callable[[], Ready], deeds: list[Deed]) -> None:
        self.done = 0
        self.planned = len(deeds)
        self._where = where
        self._deeds = deeds
        self._asked = 0
        self._queue: queue.Queue[Deed | None] = queue.Queue()
        self._stopping = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="shop", daemon=True)

    def open(self) -> None:
        """Make the application's table, and begin."""
        with psycopg.connect(self._where().database_url, connect_timeout=CONNECT_SECONDS) as connection:
            connection.execute(queries("demo_count")["shop_table"])
        self._thread.start()

    def keep_pace(self, sent: int, *, total: int) -> None:
        """Do as large a part of the deeds as of the requests is sent; returns at once."""
        due = len(self._deeds) * sent // total
        for deed in self._deeds[self._asked : due]:
            self._queue.put(deed)
        self._asked = max(self._asked, due)

    def finish(self) -> None:
        """Do the rest and wait for it.

        Raises:
            Unavailable: something could not be done.
        """
        self.keep_pace(1, total=1)
        self._queue.put(None)
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def abandon(self) -> None:
        """Do nothing more."""
        self._stopping.set()
        self._queue.put(None)

    def _work(self) -> None:
        try:
            while (deed := self._queue.get()) is not None and not self._stopping.is_set():
                self._insist(deed)
                self.done += 1
        except BaseException as failure:  # noqa: BLE001 - told to the thread that waits
            self._failure = failure

    def _insist(self, deed: Deed) -> None:
        give_up_at = time.monotonic() + GIVE_UP_SECONDS
        while True:
            try:
                return self._pay(deed) if isinstance(deed, Deposit) else self._confirm(deed)
            except (OSError, psycopg.OperationalError) as error:
                if time.monotonic() > give_up_at or self._stopping.wait(RETRY_SECONDS):
                    raise Unavailable("service_failed", f"{deed.name} could not be done: {error}") from error

    def _pay(self, deposit: Deposit) -> None:
        """Pay as a customer does; the key makes a repeat harmless."""
        ready = self._where()
        params = {
            "amount": deposit.amount, "currency": deposit.currency, "confirm": "true", "payment_method": GOOD_CARDS[0],
            "metadata[deposit]": deposit.name, "automatic_payment_methods[enabled]": "true",
            "automatic_payment_methods[allow_redirects]": "never",
        }  # fmt: skip
        login = base64.b64encode(f"{ready.stripe_api_key}:".encode()).decode()
        headers = {"Authorization": f"Basic {login}", "Idempotency-Key": deposit.name}
        data = urllib.parse.urlencode(params).encode()
        url = f"{ready.stripe_api_base}/v1/payment_intents"
        request = urllib.request.Request(url, data, headers)  # noqa: S310 - the simulator's own address
        with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as answer:  # noqa: S310
            answer.read()

    def _confirm(self, order: Order) -> None:
        """Confirm an order and ask for its charge, in one transaction of the application."""
        from onceflow import attach  # noqa: PLC0415 - only this thread needs it
        from onceflow.examples.payments import charge_order  # noqa: PLC0415

        given: Mapping[str, Any] = {"id": order.name, "amount": order.amount, "currency": order.currency}
        with psycopg.connect(self._where().database_url, connect_timeout=CONNECT_SECONDS) as connection:
            connection.execute(queries("demo_count")["shop_order"], given)
            tx = attach(connection, cause=f"demo:{order.name}")
            tx.outcome("order.confirmed", key=order.name, data={"order": order.name})
            tx.request(
                charge_order,
                subject=order.name,
                amount=order.amount,
                currency=order.currency,
                payment_method=order.payment_method,
                description=order.name,
            )
