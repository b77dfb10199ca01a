"""What an effect returns: the call that an operation makes, checked the moment it is written down.

Rule: a call says everything; no user code runs when it is sent.  What would charge twice if an answer got lost cannot be
said at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import orjson

from onceflow_schemas.currency import check_amount, check_currency
from onceflow_schemas.failure import Refused
from onceflow_schemas.operations.evidence import Proof
from onceflow_schemas.operations.operation import Policy
from onceflow_schemas.operations.request_checks import (
    BODY_BYTES_MAX,
    check_address,
    check_credential,
    check_flag,
    check_headers,
    check_json,
    check_line,
    check_lookup_url,
    check_mapping,
    check_metadata,
    check_object_id,
    check_params,
    check_path,
    check_text,
    check_url,
)
from onceflow_schemas.operations.resources import INTENTS, MADE, charges_at_once, check_named
from onceflow_schemas.quoting import quoted

HTTP_POLICIES = frozenset({Policy.IDEMPOTENT, Policy.AT_LEAST_ONCE, Policy.AT_MOST_ONCE, Policy.RECONCILE_FIRST})


@dataclass(frozen=True, slots=True)
class StripeCall:
    """One POST to Stripe's v1 API; make it with ``StripeCall.post``, or with the ready-made ones below.

    Attributes:
        path, params: what is sent.
        lookup: how to find out what became of it, for paths that are not in ``resources.MADE``: {"retrieve": path, "statuses":
            {status: "done" | "processing" | "open" | "ended"}}.
        expect: what the object must say beside what was sent.
    """

    path: str
    params: Mapping[str, Any]
    lookup: Mapping[str, Any] | None = None
    expect: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        made = MADE.get(check_path(self.path))
        object.__setattr__(self, "params", check_params(self.params, negative=made is not None and made.negative))
        check_named(self.path, self.params)
        check_mapping(self.expect, "expect")
        if charges_at_once(self.path, self.params):
            raise Refused("charge_without_fence", f"POST {self.path} would charge at once")
        if self.lookup is not None:
            _check_lookup(self.lookup)

    @classmethod
    def post(cls, path: str, /, *, lookup: Mapping[str, Any] | None = None, **params: Any) -> Self:
        """Return the call ``POST path`` with these parameters; those that are None are left out.

        Raises:
            Refused: ``operation_refused``, or a more special code, with what to change.
        """
        return cls(path, params, lookup)

    @classmethod
    def refund(
        cls,
        *,
        charge: str | None = None,
        payment_intent: str | None = None,
        amount: int | None = None,
        currency: str | None = None,
        **params: Any,
    ) -> Self:
        """Return the refund of a charge or payment intent: all that is left of it, or ``amount`` minor units.

        ``currency`` is not sent (the charge has it); with it the amount is checked, and what Stripe answers is compared.
        """
        if (charge is None) == (payment_intent is None):
            raise Refused("operation_refused", "a refund names a charge or a payment_intent, one of them")
        named = {"charge": charge, "payment_intent": payment_intent}
        for name, value in named.items():
            if value is not None:
                check_object_id(value, name)
        expect = {} if currency is None else {"currency": check_currency(currency)}
        if amount is not None:
            check_amount(amount, currency)
        given = {**named, "amount": amount, **params}
        return cls("/v1/refunds", given, None, expect)

    @classmethod
    def capture(cls, payment_intent: str, *, amount_to_capture: int | None = None, **params: Any) -> Self:
        """Return the capture of an authorised payment intent."""
        intent = check_object_id(payment_intent, "payment_intent")
        return cls(f"{INTENTS}/{intent}/capture", {"amount_to_capture": amount_to_capture, **params})

    @classmethod
    def cancel(cls, payment_intent: str, *, cancellation_reason: str | None = None) -> Self:
        """Return the cancel of a payment intent."""
        intent = check_object_id(payment_intent, "payment_intent")
        return cls(f"{INTENTS}/{intent}/cancel", {"cancellation_reason": cancellation_reason})


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """A charge in two steps: the intent is created unconfirmed, then exactly that intent is confirmed.

    Attributes:
        amount: minor units.
        currency: lower-case code.
        payment_method: ``pm_...``; stands in the confirm.
        customer: ``cus_...``; with it a lost intent is found faster.
        off_session: the customer is not there: an action that the bank requires is not waited for.
        error_on_requires_action: the confirm is declined instead of asking for an action.
        capture: False authorises only; it succeeds when it can be captured.
        description, metadata: of the intent.
        create, confirm: further parameters of the two calls.
    """

    amount: int
    currency: str
    payment_method: str
    customer: str | None = None
    off_session: bool = False
    error_on_requires_action: bool = False
    capture: bool = True
    description: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    create: Mapping[str, Any] = field(default_factory=dict)
    confirm: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_amount(self.amount, check_currency(self.currency))
        check_metadata(self.metadata)
        for name in ("capture", "off_session", "error_on_requires_action"):
            check_flag(getattr(self, name), name)
        for name in ("create", "confirm"):
            check_mapping(getattr(self, name), name)
        if self.description is not None:
            check_text(self.description, "description")
        for name in ("payment_method", "customer"):
            text = getattr(self, name)
            if text is not None or name == "payment_method":
                check_object_id(text, name)
        if taken := _CREATE_TAKEN & set(self.create) | _CONFIRM_TAKEN & set(self.confirm):
            raise Refused("operation_refused", f"{', '.join(sorted(taken))}: say this with Charge's own arguments")
        check_params(self.create)
        if check_params(self.confirm).get("amount_to_confirm", self.amount) != self.amount:
            raise Refused("amount_refused", "amount_to_confirm is not the amount")


_CREATE_TAKEN = frozenset(
    [
        "amount",
        "currency",
        "customer",
        "metadata",
        "description",
        "confirm",
        "capture_method",
        "off_session",
        "error_on_requires_action",
    ]
)
_CONFIRM_TAKEN = frozenset(["payment_method", "off_session", "error_on_requires_action", "capture_method"])


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpCall:
    """One POST to another service.

    Attributes:
        url: where to.
        json, body: what is sent: an object, or text.  One of them, or none.
        headers: plain ones; secrets are named by ``credential``, and the Idempotency-Key is set by onceflow.
        credential: name of a credential in the settings, sent as ``Authorization: Bearer``.
        policy: what may be done when it is unknown whether it arrived: a ``Policy``, or its text such as ``"at_most_once"``.
        lookup: an address whose GET answers 200 when the effect is there and 404 when it is not; {key} is the operation's key.
    """

    url: str
    json: Any = None
    body: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    credential: str | None = None
    policy: Policy | str = Policy.IDEMPOTENT
    lookup: str | None = None

    def __post_init__(self) -> None:
        check_url(self.url)
        check_headers(self.headers)
        check_text(self.text, "the body")
        if self.credential is not None:
            check_credential(self.credential)
        object.__setattr__(self, "policy", _http_policy(self.policy))
        if self.lookup is not None:
            check_lookup_url(self.lookup)
        elif self.policy is Policy.RECONCILE_FIRST:
            raise Refused("operation_refused", "reconcile_first needs a lookup")

    @property
    def text(self) -> str:
        """The body as text.

        Raises:
            Refused: both are given, or ``json`` is not JSON.
        """
        if self.json is None:
            return "" if self.body is None else self.body
        if self.body is not None:
            raise Refused("operation_refused", "json and body cannot both be given")
        check_json(self.json, "json")
        try:
            encoded = orjson.dumps(self.json, option=orjson.OPT_SORT_KEYS)
        except orjson.JSONEncodeError as error:
            raise Refused("operation_refused", f"the body is not JSON: {error}") from error
        if len(encoded) > BODY_BYTES_MAX:
            raise Refused("operation_refused", f"the body has more than {BODY_BYTES_MAX} bytes")
        return encoded.decode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Mail:
    """One mail to one address.  It is sent again until the server has taken it, always with the same Message-ID."""

    sender: str
    to: str
    subject: str
    text: str
    html: str | None = None

    def __post_init__(self) -> None:
        check_address(self.sender, "sender")
        check_address(self.to, "to")
        check_line(self.subject, "subject")
        check_text(self.text, "text")
        if self.html is not None:
            check_text(self.html, "html")


Call = StripeCall | Charge | HttpCall | Mail


def _http_policy(given: object) -> Policy:
    """Return the policy itself, since its text is equal to it and still not it."""
    for policy in HTTP_POLICIES:
        if isinstance(given, str) and policy == given:
            return policy
    known = ", ".join(sorted(HTTP_POLICIES))
    raise Refused("operation_refused", f"an HTTP call has one of the policies {known}, not {quoted(given, 40)}")


def _check_lookup(lookup: Mapping[str, Any]) -> None:
    statuses = check_mapping(lookup, "lookup").get("statuses")
    if set(lookup) != {"retrieve", "statuses"} or not isinstance(statuses, Mapping) or not statuses:
        raise Refused("operation_refused", "a lookup is {'retrieve': path, 'statuses': {status: proof}}")
    check_path(lookup["retrieve"])
    known = {Proof.DONE, Proof.PROCESSING, Proof.OPEN, Proof.ENDED}
    for status, proof in statuses.items():
        if not isinstance(status, str) or not isinstance(proof, str) or proof not in known:
            raise Refused("operation_refused", f"the lookup's status {quoted(status, 40)} proves nothing that is known")
