"""What happens when an intent is confirmed, and later by itself: the debit settles, the customer authenticates.

Rule: every end of a confirmation passes here once: money counted, charge and intent changed, events told, in this order.
"""

from __future__ import annotations

from onceflow_simulator import intent_machine
from onceflow_simulator.books import Books
from onceflow_simulator.errors import StripeError, invalid
from onceflow_simulator.intent_machine import Status, Verdict
from onceflow_simulator.params import Params
from onceflow_simulator.resources import charges, payment_methods
from onceflow_simulator.sample_methods import Method
from onceflow_simulator.world import Json

MESSAGES = {
    "authentication_required": "Your card was declined. This transaction requires authentication.",
    "expired_card": "Your card has expired.",
    "incorrect_cvc": "Your card's security code is incorrect.",
    "processing_error": "An error occurred while processing your card. Try again in a little bit.",
    "insufficient_funds": "Your card has insufficient funds.",
}
_DECLINED = "Your card was declined."


def confirm(books: Books, intent: Json, *, params: Params) -> None:
    """Confirm an intent with its payment method.

    Raises:
        StripeError: 400, it has no payment method; 402, declined.
    """
    if intent["payment_method"] is None:
        raise invalid(
            "You cannot confirm this PaymentIntent because it's missing a payment method.",
            code="payment_intent_unexpected_state",
        )
    books.account.confirms[intent["id"]] += 1
    if books.account.confirms[intent["id"]] > books.world.knobs.confirms_max:
        cancel_intent(books, intent, reason="automatic")
        return
    method = payment_methods.behaviour(books, intent["payment_method"])
    off_session = params.get("off_session") not in (None, "", "false")
    if books.world.knobs.off_session_authentication == "requires_action":
        off_session = False
    manual = intent["capture_method"] == "manual"
    error_on_action = params.get("error_on_requires_action") == "true"
    verdict = intent_machine.after_confirm(
        method, manual_capture=manual, off_session=off_session, error_on_action=error_on_action
    )
    intent |= {"last_payment_error": None, "next_action": None}
    if verdict.refused:
        refuse(books, intent, method=method, verdict=verdict)
    elif verdict.status == Status.REQUIRES_ACTION:
        _ask(books, intent, params)
    elif verdict.status == Status.PROCESSING:
        _process(books, intent, method)
    else:
        approve(books, intent, method=method, manual=manual)


def approve(books: Books, intent: Json, *, method: Method, manual: bool) -> None:
    """The bank says yes: money taken, or only authorized."""
    charge = charges.make(books, intent, method=method, status="succeeded", manual=manual)
    if manual:
        books.record("authorization", charge, amount=intent["amount"], parent=intent["id"], metadata=intent["metadata"])
        intent |= {"status": Status.REQUIRES_CAPTURE, "amount_capturable": intent["amount"]}
        books.emit("charge.succeeded", charge)
        books.emit("payment_intent.amount_capturable_updated", intent)
        return
    charges.take(books, charge, intent=intent, amount=intent["amount"], method=method)
    intent["status"] = Status.SUCCEEDED
    books.emit("charge.succeeded", charge)
    books.emit("payment_intent.succeeded", intent)


def refuse(books: Books, intent: Json, *, method: Method, verdict: Verdict) -> None:
    """The bank says no: a failed charge, an intent that may be confirmed again, and 402.

    Raises:
        StripeError: always.
    """
    charge = None
    message = MESSAGES.get(method.decline_code or method.code) or MESSAGES.get(method.code, _DECLINED)
    if verdict.charge is not None:
        charge = charges.make(books, intent, method=method, status="failed", manual=False)
        charges.fail(charge, code=method.code, message=message)
    error = {
        "code": method.code,
        "message": message,
        "type": "card_error",
        "payment_method": books.account.index[intent["payment_method"]],
    }
    extra = {} if charge is None else {"charge": charge["id"]}
    if method.decline_code:
        extra["decline_code"] = method.decline_code
    intent |= {"status": verdict.status, "last_payment_error": {**error, **extra}, "payment_method": None}
    if charge is not None:
        books.emit("charge.failed", charge)
    books.emit("payment_intent.payment_failed", intent)
    raise StripeError(
        402,
        "card_error",
        message=message,
        code=method.code,
        extra={**extra, "payment_intent": intent, "payment_method": error["payment_method"]},
    )


def settle(books: Books, intent: Json, *, succeeds: bool, key: str | None = None) -> None:
    """A debit in processing comes to its end; nothing when it has had one."""
    if intent["status"] != Status.PROCESSING:
        return
    _settle(books, intent, succeeds=succeeds, key=key)
    watcher = books.account.watchers.pop(intent["id"], None)
    if watcher is not None:
        watcher(books, intent)


def _settle(books: Books, intent: Json, *, succeeds: bool, key: str | None) -> None:
    charge = books.get("charge", intent["latest_charge"])
    method = payment_methods.behaviour(books, charge["payment_method"])
    if succeeds:
        charges.take(books, charge, intent=intent, amount=intent["amount"], method=method, key=key)
        intent |= {"status": Status.SUCCEEDED, "processing": None}
        books.emit("charge.succeeded", charge)
        books.emit("payment_intent.succeeded", intent)
        return
    message = MESSAGES.get(method.code, "The customer's bank did not make the payment.")
    charges.fail(charge, code=method.code, message=message)
    error = {"code": method.code, "message": message, "type": "card_error", "charge": charge["id"]}
    intent |= {"status": Status.REQUIRES_PAYMENT_METHOD, "processing": None, "last_payment_error": error}
    intent["payment_method"] = None
    books.emit("charge.failed", charge)
    books.emit("payment_intent.payment_failed", intent)


def authenticate(books: Books, intent: Json, *, succeeds: bool) -> None:
    """The customer has answered the bank's question; nothing when none is open."""
    if intent["status"] != Status.REQUIRES_ACTION:
        return
    intent["next_action"] = None
    if succeeds:
        method = payment_methods.behaviour(books, intent["payment_method"])
        approve(books, intent, method=method, manual=intent["capture_method"] == "manual")
        return
    message = "The provided PaymentMethod has failed authentication."
    intent |= {
        "status": Status.REQUIRES_PAYMENT_METHOD,
        "payment_method": None,
        "last_payment_error": {
            "code": "payment_intent_authentication_failure",
            "message": message,
            "type": "invalid_request_error",
        },
    }
    books.emit("payment_intent.payment_failed", intent)


def cancel_intent(books: Books, intent: Json, *, reason: str | None) -> Json:
    """Cancel, and give an authorization back."""
    books.record("cancel", intent, amount=intent["amount_capturable"])
    intent |= {
        "status": Status.CANCELED,
        "canceled_at": books.now,
        "cancellation_reason": reason,
        "amount_capturable": 0,
        "next_action": None,
    }
    books.emit("payment_intent.canceled", intent)
    return intent


def _ask(books: Books, intent: Json, params: Params) -> None:
    intent["status"] = Status.REQUIRES_ACTION
    if params.get("return_url"):
        intent["next_action"] = {
            "type": "redirect_to_url",
            "redirect_to_url": {"return_url": params["return_url"], "url": f"/authenticate/{intent['id']}"},
        }
    else:
        intent["next_action"] = {"type": "use_stripe_sdk", "use_stripe_sdk": {"type": "three_d_secure_redirect"}}
    books.emit("payment_intent.requires_action", intent)


def _process(books: Books, intent: Json, method: Method) -> None:
    charge = charges.make(books, intent, method=method, status="pending", manual=False)
    intent |= {"status": Status.PROCESSING, "processing": {"type": method.type}}
    books.emit("charge.pending", charge)
    books.emit("payment_intent.processing", intent)
    if method.settles == "never":
        return
    key, succeeds = books.origin.key, method.settles == "succeeds"
    books.later(books.world.knobs.processing_seconds, lambda later: settle(later, intent, succeeds=succeeds, key=key))
