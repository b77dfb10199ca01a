"""Events by the words of Stripe's command line: the calls that make each of them happen.

Rule: a word is made of ordinary requests at Stripe's interface, so that every object, event and entry of the ledger is one
that a customer could have caused.
"""

from __future__ import annotations

import base64
import http.client
import json
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from onceflow_simulator.client import TIMEOUT_SECONDS, Json, SimulatorRefused

_FIELD = re.compile(r"\{(\w+)\.(\w+)\}")
_DECLINED = 402
_CHANGE = re.compile(r"(\w+):([\w.\[\]-]+)=(.*)", re.DOTALL)


@dataclass(frozen=True)
class Call:
    """One request; ``{name.field}`` stands for what an earlier one was answered.

    Args:
        name: of the object, by which others and ``changes`` name it.
        path: of the request.
        params: its parameters.
        method: ``POST`` or ``DELETE``.
    """

    name: str
    path: str
    params: Mapping[str, Any] = field(default_factory=dict)
    method: str = "POST"


def _intent(payment_method: str | None = "pm_card_visa", **more: Any) -> Call:
    confirmed = {} if payment_method is None else {"payment_method": payment_method, "confirm": True}
    by_itself = {} if "payment_method_types" in more else {"automatic_payment_methods": _NO_REDIRECT}
    params = {"amount": 2000, "currency": "usd", "description": "a trigger", **by_itself, **confirmed, **more}
    return Call("payment_intent", "/v1/payment_intents", params)


_NO_REDIRECT = {"enabled": True, "allow_redirects": "never"}
_ON_INTENT = "/v1/payment_intents/{payment_intent.id}"
_CUSTOMER = Call("customer", "/v1/customers", {"description": "a trigger"})
_METHOD = Call("payment_method", "/v1/payment_methods/pm_card_visa/attach", {"customer": "{customer.id}"})
_PAYER = (
    _CUSTOMER,
    _METHOD,
    Call(
        "customer",
        "/v1/customers/{customer.id}",
        {"invoice_settings": {"default_payment_method": "{payment_method.id}"}},
    ),
)
_MANUAL = _intent(capture_method="manual")
_PRODUCT = Call("product", "/v1/products", {"name": "a trigger"})
_PRICE = Call(
    "price",
    "/v1/prices",
    {"product": "{product.id}", "unit_amount": 1500, "currency": "usd", "recurring": {"interval": "month"}},
)
_SUBSCRIPTION = Call(
    "subscription", "/v1/subscriptions", {"customer": "{customer.id}", "items": [{"price": "{price.id}"}]}
)
_SUBSCRIBED = (*_PAYER, _PRODUCT, _PRICE, _SUBSCRIPTION)
_ITEM = Call("invoiceitem", "/v1/invoiceitems", {"customer": "{customer.id}", "amount": 2000, "currency": "usd"})
_INVOICE = Call("invoice", "/v1/invoices", {"customer": "{customer.id}", "pending_invoice_items_behavior": "include"})
_FINALIZED = Call("invoice", "/v1/invoices/{invoice.id}/finalize")
_BILLED = (*_PAYER, _ITEM, _INVOICE, _FINALIZED)
_PAID = (*_BILLED, Call("invoice", "/v1/invoices/{invoice.id}/pay"))
_REFUND = Call("refund", "/v1/refunds", {"payment_intent": "{payment_intent.id}"})
_SETUP = Call("setup_intent", "/v1/setup_intents", {"automatic_payment_methods": _NO_REDIRECT})

TRIGGERS: Mapping[str, tuple[Call, ...]] = {
    "charge.captured": (_MANUAL, Call("payment_intent", f"{_ON_INTENT}/capture")),
    "charge.dispute.created": (_intent("pm_card_createDispute"),),
    "charge.failed": (_intent("pm_card_chargeDeclined"),),
    "charge.refunded": (_intent(), _REFUND),
    "charge.succeeded": (_intent(),),
    "customer.created": (_CUSTOMER,),
    "customer.deleted": (_CUSTOMER, Call("customer", "/v1/customers/{customer.id}", method="DELETE")),
    "customer.subscription.created": _SUBSCRIBED,
    "customer.subscription.deleted": (
        *_SUBSCRIBED,
        Call("subscription", "/v1/subscriptions/{subscription.id}", method="DELETE"),
    ),
    "customer.subscription.updated": (
        *_SUBSCRIBED,
        Call("subscription", "/v1/subscriptions/{subscription.id}", {"metadata": {"a": "trigger"}}),
    ),
    "customer.updated": (_CUSTOMER, Call("customer", "/v1/customers/{customer.id}", {"metadata": {"a": "trigger"}})),
    "invoice.created": (*_PAYER, _ITEM, _INVOICE),
    "invoice.finalized": _BILLED,
    "invoice.paid": _PAID,
    "invoice.payment_failed": (
        _CUSTOMER,
        _ITEM,
        _INVOICE,
        _FINALIZED,
        Call("invoice", "/v1/invoices/{invoice.id}/pay", {"payment_method": "pm_card_chargeDeclined"}),
    ),
    "invoice.payment_succeeded": _PAID,
    "payment_intent.amount_capturable_updated": (_MANUAL,),
    "payment_intent.canceled": (_intent(None), Call("payment_intent", f"{_ON_INTENT}/cancel")),
    "payment_intent.created": (_intent(None),),
    "payment_intent.payment_failed": (_intent("pm_card_chargeDeclined"),),
    "payment_intent.processing": (_intent("pm_usBankAccount_processing", payment_method_types=["us_bank_account"]),),
    "payment_intent.requires_action": (_intent("pm_card_authenticationRequired"),),
    "payment_intent.succeeded": (_intent(),),
    "payment_method.attached": (_CUSTOMER, _METHOD),
    "price.created": (_PRODUCT, _PRICE),
    "product.created": (_PRODUCT,),
    "refund.created": (_intent(), _REFUND),
    "setup_intent.created": (_SETUP,),
    "setup_intent.succeeded": (
        Call("setup_intent", _SETUP.path, {**_SETUP.params, "payment_method": "pm_card_visa", "confirm": True}),
    ),
}


def trigger(url: str, word: str, *, api_key: str, changes: Sequence[str] = ()) -> dict[str, Json]:
    """Make an event happen; the objects behind it by name, as they were answered last.

    Args:
        url: of the simulator.
        word: an event type of ``TRIGGERS``.
        api_key: of the account in which it happens.
        changes: ``name:field=text`` sets a parameter of the call that makes that object, as Stripe's command line takes
            them: ``payment_intent:metadata.order=7``.

    Raises:
        SimulatorRefused: there is no such word, object or parameter.
        OSError: nobody is there.
    """
    if word not in TRIGGERS:
        raise SimulatorRefused(f"no trigger {word!r}; there are {', '.join(TRIGGERS)}")
    changed = [_parsed(change) for change in changes]
    names = {call.name for call in TRIGGERS[word]}
    if unknown := [name for name, _, _ in changed if name not in names]:
        raise SimulatorRefused(f"{word} makes no {', '.join(unknown)}; it makes {', '.join(sorted(names))}")
    found: dict[str, Json] = {}
    for call in TRIGGERS[word]:
        made_first = call.name not in found
        pairs = [(name, _filled(text, found)) for name, text in _flat(call.params)]
        if made_first:
            own = {field: text for name, field, text in changed if name == call.name}
            pairs = [pair for pair in pairs if pair[0] not in own] + list(own.items())
        found[call.name] = _request(url + _filled(call.path, found), pairs, method=call.method, api_key=api_key)
    return found


def _parsed(change: str) -> tuple[str, str, str]:
    match = _CHANGE.fullmatch(change)
    if match is None:
        raise SimulatorRefused(f"a change is name:field=text, such as payment_intent:amount=500, and not {change!r}")
    name, path, text = match.groups()
    first, *rest = path.split(".")
    return name, first + "".join(f"[{part}]" for part in rest), text


def _filled(text: str, found: Mapping[str, Json]) -> str:
    return _FIELD.sub(lambda match: str(found[match[1]][match[2]]), text)


def _flat(params: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in params.items():
        full = f"{prefix}[{name}]" if prefix else name
        if isinstance(value, Mapping):
            yield from _flat(value, full)
        elif isinstance(value, list):
            yield from _flat({str(place): inner for place, inner in enumerate(value)}, full)
        else:
            yield full, str(value).lower() if isinstance(value, bool) else str(value)


def _request(url: str, pairs: Sequence[tuple[str, str]], *, method: str, api_key: str) -> Json:
    """One request; a declined payment is what some words are about, and so no fault."""
    login = base64.b64encode(f"{api_key}:".encode()).decode()
    data = urllib.parse.urlencode(pairs).encode() if pairs else None
    request = urllib.request.Request(url, data, {"Authorization": f"Basic {login}"}, method=method)  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer:  # noqa: S310
            made: Json = json.load(answer)
            return made
    except urllib.error.HTTPError as error:
        with error:
            said = _error(error.read())
        if error.code == _DECLINED:
            return said.get("payment_intent") or said
        reason = said.get("message", "an answer that is none of Stripe's")
        raise SimulatorRefused(f"{method} {urllib.parse.urlsplit(url).path}: {error.code} {reason}") from None
    except (http.client.IncompleteRead, ValueError):
        raise SimulatorRefused(f"{method} {urllib.parse.urlsplit(url).path}: an answer that cannot be read") from None


def _error(body: bytes) -> Json:
    try:
        found = json.loads(body)["error"]
    except (ValueError, KeyError, TypeError):
        return {}
    return found if isinstance(found, dict) else {}
