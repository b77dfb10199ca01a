"""SetupIntents: a payment method is kept for later, without money.

Rule: the same table of test methods decides; what would be declined when charged is declined here.
"""

from __future__ import annotations

from onceflow_simulator.books import Books
from onceflow_simulator.errors import StripeError, invalid
from onceflow_simulator.listing import lister
from onceflow_simulator.resources import payment_methods
from onceflow_simulator.resources.payment_intents import OLDER, apply_with_method, method_of
from onceflow_simulator.resources.plain import retriever
from onceflow_simulator.routes import Call, Routes
from onceflow_simulator.validation import LIST, Spec, switch
from onceflow_simulator.world import Json

KIND = "setup_intent"
_ENDED = frozenset({"succeeded", "canceled"})


def add_routes(routes: Routes) -> None:
    """Add the resource's addresses."""
    one = "/v1/setup_intents/{id}"
    routes.post("/v1/setup_intents", create, spec=Spec(switches=("confirm",), more=OLDER))
    routes.get("/v1/setup_intents", lister(KIND, {"customer": "customer"}), spec=LIST)
    routes.get(one, retriever(KIND))
    routes.post(one, update)
    routes.post(one + "/confirm", confirm)
    routes.post(one + "/cancel", cancel)


def create(call: Call) -> Json:
    """Make one, and confirm it at once when the request says so.

    Raises:
        StripeError: 402, it was confirmed and declined.
    """
    books, params = call.books, call.params
    method = method_of(books, params)
    body = books.new(
        KIND,
        prefix="seti",
        fields={
            "cancellation_reason": None,
            "customer": params.get("customer"),
            "description": params.get("description"),
            "last_setup_error": None,
            "metadata": dict(params.get("metadata") or {}),
            "next_action": None,
            "payment_method": method,
            "status": "requires_payment_method" if method is None else "requires_confirmation",
            "usage": params.get("usage", "off_session"),
        },
    )
    books.emit("setup_intent.created", body)
    if switch(params, "confirm"):
        _confirm(books, body)
    return body


def update(call: Call) -> Json:
    """Change it."""
    body = call.books.get(KIND, call.ids[0])
    apply_with_method(call.books, body, params=call.params)
    return body


def confirm(call: Call) -> Json:
    """Confirm it.

    Raises:
        StripeError: 400, it has ended; 402, declined.
    """
    body = call.books.get(KIND, call.ids[0])
    _check_open(body, "confirm")
    body["payment_method"] = method_of(call.books, call.params) or body["payment_method"]
    _confirm(call.books, body)
    return body


def cancel(call: Call) -> Json:
    """Cancel it.

    Raises:
        StripeError: 400, it has ended.
    """
    body = call.books.get(KIND, call.ids[0])
    _check_open(body, "cancel")
    body |= {"status": "canceled", "cancellation_reason": call.params.get("cancellation_reason")}
    call.books.emit("setup_intent.canceled", body)
    return body


def _check_open(body: Json, action: str) -> None:
    if body["status"] in _ENDED:
        message = f"You cannot {action} this SetupIntent because it has a status of {body['status']}."
        raise invalid(message, code="setup_intent_unexpected_state")


def _confirm(books: Books, body: Json) -> None:
    if body["payment_method"] is None:
        raise invalid("You cannot confirm this SetupIntent without a payment method.", param="payment_method")
    method = payment_methods.behaviour(books, body["payment_method"])
    if method.course == "authenticates":
        body |= {"status": "requires_action", "next_action": {"type": "use_stripe_sdk", "use_stripe_sdk": {}}}
        books.emit("setup_intent.requires_action", body)
        return
    if method.course == "declined":
        error = {"code": method.code, "message": "Your card was declined.", "type": "card_error"}
        body |= {"status": "requires_payment_method", "payment_method": None, "last_setup_error": error}
        books.emit("setup_intent.setup_failed", body)
        raise StripeError(402, "card_error", message=error["message"], code=method.code, extra={"setup_intent": body})
    body["status"] = "succeeded"
    if body["customer"]:
        payment_methods.attached(books, body["payment_method"], customer=body["customer"])
    books.emit("setup_intent.succeeded", body)
