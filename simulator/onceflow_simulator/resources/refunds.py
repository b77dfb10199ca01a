"""Refunds: partial and whole, pending, succeeded, and failed even after that.

Rule: the sum of what was not failed or canceled never exceeds the charge; ``succeeded`` is not the end.
"""

from __future__ import annotations

from onceflow_simulator.books import Books
from onceflow_simulator.errors import invalid
from onceflow_simulator.listing import lister
from onceflow_simulator.params import Params
from onceflow_simulator.resources import payment_methods
from onceflow_simulator.resources.plain import merge_metadata, retriever
from onceflow_simulator.routes import Call, Routes
from onceflow_simulator.sample_methods import Method
from onceflow_simulator.validation import FROM_ONE, LIST, Spec
from onceflow_simulator.world import Json

KIND = "refund"
REASONS = ("duplicate", "fraudulent", "requested_by_customer")


def add_routes(routes: Routes) -> None:
    """Add the resource's addresses."""
    one = "/v1/refunds/{id}"
    spec = Spec(whole={"amount": FROM_ONE}, choices={"reason": REASONS}, rule=_creatable)
    filters = {"charge": "charge", "payment_intent": "payment_intent"}
    routes.post("/v1/refunds", create, spec=spec)
    routes.get("/v1/refunds", lister(KIND, filters), spec=LIST)
    routes.get(one, retriever(KIND))
    routes.post(one, update)
    routes.post(one + "/cancel", cancel)


def create(call: Call) -> Json:
    """Give money back.

    Raises:
        StripeError: 400, all is given back, or less is left than asked for; 404, there is no such charge.
    """
    books, params = call.books, call.params
    charge = _charge(books, params)
    left = charge["amount"] - charge["amount_refunded"]
    if not charge["captured"]:
        raise invalid(f"Charge {charge['id']} has not been captured.", code="charge_not_refundable")
    if left <= 0:
        raise invalid(f"Charge {charge['id']} has already been refunded.", code="charge_already_refunded")
    amount = int(params.get("amount", left))
    if amount > left:
        raise invalid(
            f"Refund amount ({amount}) is greater than unrefunded amount on charge ({left})",
            code=books.world.knobs.refund_too_large_code,
            param="amount",
        )
    method = payment_methods.behaviour(books, charge["payment_method"])
    return make(books, charge, amount=amount, params=params, method=method)


def make(books: Books, charge: Json, *, amount: int, params: Params, method: Method) -> Json:
    """Give an amount back that is known to be there."""
    wait = books.world.knobs.refund_pending_seconds
    pending = method.refund == "pending" or wait is not None
    body = books.new(
        KIND,
        prefix="re",
        fields={
            "amount": amount,
            "balance_transaction": books.world.ids.new("txn"),
            "charge": charge["id"],
            "currency": charge["currency"],
            "metadata": dict(params.get("metadata") or {}),
            "payment_intent": charge["payment_intent"],
            "reason": params.get("reason"),
            "status": "pending" if pending else "succeeded",
        },
    )
    del body["livemode"]  # Stripe's refunds do not have it.
    if pending:
        body["pending_reason"] = "processing"
    books.record("refund", body, amount=amount, parent=charge["id"])
    _add(charge, amount)
    books.emit("refund.created", body)
    books.emit("charge.refunded", charge)
    _schedule(books, body, method, wait_seconds=wait)
    return body


def update(call: Call) -> Json:
    """Change its metadata."""
    body = call.books.get(KIND, call.ids[0])
    _tell_update(call.books, body, merge_metadata(body, call.params))
    return body


def cancel(call: Call) -> Json:
    """Cancel a refund that waits for somebody.

    Raises:
        StripeError: 400, it does not.
    """
    body = call.books.get(KIND, call.ids[0])
    if body["status"] not in {"requires_action", "pending"}:
        raise invalid("This refund cannot be canceled: it has a status of " + body["status"])
    return failed(call.books, body, status="canceled", reason="merchant_request")


def succeeded(books: Books, body: Json) -> Json:
    """A pending refund has arrived."""
    if body["status"] == "pending":
        body["status"] = "succeeded"
        body.pop("pending_reason", None)
        _tell_update(books, body, {"status": "pending"})
    return body


def failed(books: Books, body: Json, *, status: str = "failed", reason: str = "unknown") -> Json:
    """The bank has sent the money back, possibly weeks after the refund had succeeded."""
    if body["status"] in {"failed", "canceled"}:
        return body
    previous = {"status": body["status"]}
    body |= {"status": status, "failure_reason": reason, "failure_balance_transaction": books.world.ids.new("txn")}
    books.record("refund_failed", body, amount=body["amount"], parent=body["charge"])
    _add(books.get("charge", body["charge"]), -body["amount"])
    if status == "failed":
        books.emit("refund.failed", body)
    _tell_update(books, body, previous)
    return body


def _schedule(books: Books, body: Json, method: Method, *, wait_seconds: float | None) -> None:
    knobs = books.world.knobs
    if body["status"] == "pending":
        seconds = wait_seconds if wait_seconds is not None else knobs.processing_seconds
        books.later(seconds, lambda later: succeeded(later, body))
    if method.refund == "fails":
        books.later(knobs.refund_fails_after_seconds, lambda later: failed(later, body))


def _tell_update(books: Books, body: Json, previous: Json) -> None:
    books.emit("refund.updated", body, previous=previous)
    books.emit("charge.refund.updated", body, previous=previous)


def _add(charge: Json, amount: int) -> None:
    charge["amount_refunded"] += amount
    charge["refunded"] = charge["amount_refunded"] >= charge["amount"]


def _charge(books: Books, params: Params) -> Json:
    if params.get("charge"):
        return books.get("charge", params["charge"], param="charge")
    intent = books.get("payment_intent", params["payment_intent"], param="payment_intent")
    if intent["latest_charge"] is None:
        raise invalid(
            f"This PaymentIntent ({intent['id']}) does not have a successful charge to refund.",
            code="payment_intent_unexpected_state",
            param="payment_intent",
        )
    return books.get("charge", intent["latest_charge"])


def _creatable(params: Params) -> None:
    if not params.get("charge") and not params.get("payment_intent"):
        raise invalid("One of the following params should be provided for this request: payment_intent or charge.")
