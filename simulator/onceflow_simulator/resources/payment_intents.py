"""PaymentIntents: created, confirmed, captured, canceled.

Rule: ``intent_machine`` decides, this module does: charge, money, events, answer.  A decline is answered 402 and leaves
the intent to be confirmed by whoever holds it.
"""

from __future__ import annotations

from onceflow_simulator import intent_machine, money
from onceflow_simulator.books import Books
from onceflow_simulator.errors import StripeError, invalid
from onceflow_simulator.intent_machine import Action, Status
from onceflow_simulator.listing import lister
from onceflow_simulator.params import Params
from onceflow_simulator.resources import charges, payment_methods
from onceflow_simulator.resources.confirmation import cancel_intent, confirm
from onceflow_simulator.resources.plain import apply, fields_of, retriever
from onceflow_simulator.routes import Call, Routes
from onceflow_simulator.validation import FROM_ONE, FROM_ZERO, LIST, Spec, switch
from onceflow_simulator.world import Json

KIND = "payment_intent"
WHOLE = {"amount": FROM_ONE, "application_fee_amount": FROM_ZERO}
KEPT = (
    "application_fee_amount",
    "customer",
    "description",
    "on_behalf_of",
    "payment_method_options",
    "receipt_email",
    "setup_future_usage",
    "shipping",
    "statement_descriptor",
    "statement_descriptor_suffix",
    "transfer_data",
    "transfer_group",
)
CONFIRM_ONLY = ("off_session", "error_on_requires_action", "return_url", "mandate_data", "use_stripe_sdk")
REASONS = ("duplicate", "fraudulent", "requested_by_customer", "abandoned")
OLDER = ("payment_method_types",)
"""Names of older versions, which the command line of Stripe still sends."""
CAPTURE_METHODS = ("automatic", "automatic_async", "manual")


def add_routes(routes: Routes) -> None:
    """Add the resource's addresses."""
    base, one = "/v1/payment_intents", "/v1/payment_intents/{id}"
    create_spec = Spec(
        required=("amount", "currency"),
        whole=WHOLE,
        switches=("confirm", "error_on_requires_action"),
        choices={"capture_method": CAPTURE_METHODS, "confirmation_method": ("automatic", "manual")},
        rule=_creatable,
        more=OLDER,
    )
    confirm_spec = Spec(
        whole={"amount_to_confirm": FROM_ONE},
        switches=("error_on_requires_action",),
        choices={"capture_method": CAPTURE_METHODS},
    )
    routes.post(base, create, spec=create_spec)
    routes.get(base, lister(KIND, {"customer": "customer"}), spec=LIST)
    routes.get(one, retriever(KIND))
    routes.post(one, update, spec=Spec(whole=WHOLE, more=OLDER))
    routes.post(one + "/confirm", confirm_call, spec=confirm_spec)
    routes.post(one + "/capture", capture, spec=Spec(whole={"amount_to_capture": FROM_ONE}))
    routes.post(one + "/cancel", cancel, spec=Spec(choices={"cancellation_reason": REASONS}))


def create(call: Call) -> Json:
    """Make an intent, and confirm it at once when the request says so.

    Raises:
        StripeError: 402, it was confirmed and declined: the intent is there nevertheless.
    """
    books, params = call.books, call.params
    if params.get("customer"):
        books.get("customer", params["customer"], param="customer")
    body = put_new(books, params, method=method_of(books, params))
    books.emit("payment_intent.created", body)
    if switch(params, "confirm"):
        confirm(books, body, params=params)
    return body


def put_new(books: Books, params: Params, *, method: str | None) -> Json:
    """A new intent, without its event."""
    body = books.new(KIND, prefix="pi", fields=_fields(params, method=method))
    body["client_secret"] = f"{body['id']}_secret_{books.world.ids.text(25)}"
    books.record("intent", body, amount=body["amount"])
    return body


def update(call: Call) -> Json:
    """Change what may still be changed.

    Raises:
        StripeError: 400, its status does not allow it.
    """
    body = call.books.get(KIND, call.ids[0])
    if set(call.params) - {"metadata", "description", "expand"}:
        check_status(body, "update")
    params = dict(call.params)
    if "currency" in params:
        params["currency"] = money.check_currency(params["currency"])
    apply_with_method(call.books, body, params=params)
    return body


def apply_with_method(books: Books, body: Json, *, params: Params) -> None:
    """Change an intent, or a setup intent, as a request says; one that waits for a payment method has it by that."""
    method = method_of(books, params)
    named = {} if method is None else {"payment_method": method}
    given = {name: value for name, value in params.items() if name != "payment_method_data"}
    apply(body, given | named, whole=WHOLE)
    if method is not None and body["status"] == Status.REQUIRES_PAYMENT_METHOD:
        body["status"] = Status.REQUIRES_CONFIRMATION


def confirm_call(call: Call) -> Json:
    """Confirm an intent.

    Raises:
        StripeError: 402 declined; 400 its status or its amount does not allow it.
    """
    body = call.books.get(KIND, call.ids[0])
    check_status(body, "confirm")
    _check_amount_to_confirm(call, body)
    method = method_of(call.books, call.params)
    if method is not None:
        body["payment_method"] = method
    if "capture_method" in call.params:
        body["capture_method"] = call.params["capture_method"]
    confirm(call.books, body, params=call.params)
    return body


def capture(call: Call) -> Json:
    """Take the money of an authorization, all of it or a part.

    Raises:
        StripeError: 400, nothing is authorized, or not so much.
    """
    books, body = call.books, call.books.get(KIND, call.ids[0])
    check_status(body, "capture")
    capturable: int = body["amount_capturable"]
    amount = int(call.params["amount_to_capture"]) if "amount_to_capture" in call.params else capturable
    if amount > capturable:
        raise invalid(
            f"The amount to capture ({amount}) is more than is capturable ({capturable}).",
            code="amount_too_large",
            param="amount_to_capture",
        )
    charge = books.get("charge", body["latest_charge"])
    method = payment_methods.behaviour(books, body["payment_method"])
    charges.take(books, charge, intent=body, amount=amount, method=method)
    charge["amount_refunded"] = charge["amount"] - amount
    body |= {"status": Status.SUCCEEDED, "amount_capturable": 0}
    books.emit("charge.captured", charge)
    books.emit("payment_intent.succeeded", body)
    return body


def cancel(call: Call) -> Json:
    """Cancel an intent, which gives an authorization back.

    Raises:
        StripeError: 400, its status does not allow it.
    """
    body = call.books.get(KIND, call.ids[0])
    check_status(body, "cancel")
    return cancel_intent(call.books, body, reason=call.params.get("cancellation_reason"))


def check_status(body: Json, action: Action) -> None:
    """Refuse an action that the intent's status does not allow.

    Raises:
        StripeError: 400 ``payment_intent_unexpected_state``, with the intent.
    """
    if intent_machine.allowed(action, body["status"]):
        return
    raise StripeError(
        400,
        "invalid_request_error",
        message=f"You cannot {action} this PaymentIntent because it has a status of {body['status']}.",
        code="payment_intent_unexpected_state",
        extra={"payment_intent": body},
    )


def method_of(books: Books, params: Params) -> str | None:
    """The payment method that a request names or describes; None when it does neither.

    Raises:
        StripeError: 404, there is none of this name.
    """
    if isinstance(params.get("payment_method_data"), dict):
        return str(payment_methods.from_params(books, params["payment_method_data"])["id"])
    if params.get("payment_method"):
        return str(payment_methods.of_id(books, params["payment_method"])["id"])
    return None


def _creatable(params: Params) -> None:
    currency = money.check_currency(params["currency"])
    money.check_amount(int(params["amount"]), currency)
    if params.get("confirm") != "true":
        for name in CONFIRM_ONLY:
            if name in params:
                raise invalid(f"The parameter {name} can only be passed when confirm=true.", param=name)


def _check_amount_to_confirm(call: Call, body: Json) -> None:
    if "amount_to_confirm" not in call.params or call.books.world.knobs.amount_to_confirm == "ignored":
        return
    if int(call.params["amount_to_confirm"]) != body["amount"]:
        raise invalid(
            f"amount_to_confirm ({call.params['amount_to_confirm']}) is not the amount of this PaymentIntent"
            f" ({body['amount']}).",
            param="amount_to_confirm",
        )


def _fields(params: Params, *, method: str | None) -> Json:
    types = params.get("payment_method_types")
    given = {name: params[name] for name in KEPT if name in params}
    return {
        "amount": int(params["amount"]),
        "amount_capturable": 0,
        "amount_received": 0,
        "canceled_at": None,
        "cancellation_reason": None,
        "capture_method": params.get("capture_method", "automatic_async"),
        "client_secret": None,
        "confirmation_method": params.get("confirmation_method", "automatic"),
        "currency": params["currency"].lower(),
        "last_payment_error": None,
        "latest_charge": None,
        "metadata": dict(params.get("metadata") or {}),
        "next_action": None,
        "payment_method": method,
        "payment_method_types": types if isinstance(types, list) else ["card"],
        "processing": None,
        "status": intent_machine.after_create(has_method=method is not None),
        **dict.fromkeys(KEPT),
        **fields_of(given, whole=WHOLE),
    }
