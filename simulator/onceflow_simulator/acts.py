"""What the world does to an object when a test says so: banks, customers and card networks, by name.

Rule: an act goes through the same code as when it happens by itself, so its events and ledger entries are the same.
"""

from __future__ import annotations

from collections.abc import Callable

from onceflow_simulator.books import Books
from onceflow_simulator.errors import invalid
from onceflow_simulator.resources import confirmation, disputes, payment_intents, refunds
from onceflow_simulator.world import Json

Act = Callable[[Books, Json], object]


def _cancel(books: Books, body: Json) -> None:
    payment_intents.check_status(body, "cancel")
    confirmation.cancel_intent(books, body, reason="automatic")


ACTS: dict[str, tuple[str, Act]] = {
    "settle": ("payment_intent", lambda books, body: confirmation.settle(books, body, succeeds=True)),
    "fail": ("payment_intent", lambda books, body: confirmation.settle(books, body, succeeds=False)),
    "authenticate": ("payment_intent", lambda books, body: confirmation.authenticate(books, body, succeeds=True)),
    "fail_authentication": (
        "payment_intent",
        lambda books, body: confirmation.authenticate(books, body, succeeds=False),
    ),
    "cancel": ("payment_intent", _cancel),
    "refund_succeeds": ("refund", refunds.succeeded),
    "refund_fails": ("refund", refunds.failed),
    "dispute": ("charge", lambda books, body: disputes.open_dispute(books, body, reason="fraudulent")),
    "inquire": ("charge", lambda books, body: disputes.open_dispute(books, body, reason="inquiry")),
    "dispute_won": ("dispute", lambda books, body: disputes.ended(books, body, won=True)),
    "dispute_lost": ("dispute", lambda books, body: disputes.ended(books, body, won=False)),
}
"""Name -> the kind of object, and what is done to it."""


def act(books: Books, name: str, *, body: Json) -> Json:
    """Do it; the object afterwards.

    Raises:
        StripeError: the object is of another kind, or its status does not allow it.
    """
    kind, do = ACTS[name]
    if body["object"] != kind:
        raise invalid(f"{name} is done to a {kind}; {body['id']} is a {body['object']}")
    do(books, body)
    return body
