"""Stripe's payment methods for tests, by the names of its documents, and how each behaves.

Rule: a name that is not in this table does not exist; the behaviour is data, and deciding is done elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Course = Literal["succeeds", "declined", "authenticates", "processing"]


@dataclass(frozen=True)
class Method:
    """How a payment method behaves when it is charged.

    Args:
        course: what a confirm leads to.
        code: of a refusal, now or (for a debit) when it comes back.
        decline_code: the bank's reason beside it.
        settles: what becomes of a debit in processing: "succeeds", "fails", "never".
        dispute: the money is disputed at once; "inquiry" is an early warning without it.
        refund: how a refund of it goes.
    """

    type: str = "card"
    brand: str = "visa"
    last4: str = "4242"
    course: Course = "succeeds"
    code: str = "card_declined"
    decline_code: str | None = None
    settles: Literal["succeeds", "fails", "never"] = "succeeds"
    dispute: Literal["", "fraudulent", "product_not_received", "inquiry"] = ""
    refund: Literal["succeeds", "pending", "fails"] = "succeeds"


def _declined(decline_code: str, *, code: str = "card_declined", last4: str = "0002") -> Method:
    return Method(course="declined", code=code, decline_code=decline_code, last4=last4)


def _debit(type: str, *, settles: Literal["succeeds", "fails", "never"], code: str = "", last4: str = "6789") -> Method:
    return Method(
        type=type,
        brand="",
        last4=last4,
        course="processing",
        settles=settles,
        code=code or "payment_method_provider_decline",
    )


AUTHENTICATES = Method(
    course="authenticates", code="authentication_required", decline_code="authentication_required", last4="3184"
)

METHODS: dict[str, Method] = {
    "card_visa": Method(),
    "card_visa_debit": Method(last4="5556"),
    "card_mastercard": Method(brand="mastercard", last4="4444"),
    "card_mastercard_debit": Method(brand="mastercard", last4="3222"),
    "card_amex": Method(brand="amex", last4="0005"),
    "card_discover": Method(brand="discover", last4="1117"),
    "card_jcb": Method(brand="jcb", last4="0505"),
    "card_bypassPending": Method(last4="0077"),
    "card_us": Method(),
    "card_chargeDeclined": _declined("generic_decline"),
    "card_visa_chargeDeclined": _declined("generic_decline"),
    "card_chargeCustomerFail": _declined("generic_decline", last4="0341"),
    "card_chargeDeclinedInsufficientFunds": _declined("insufficient_funds", last4="9995"),
    "card_visa_chargeDeclinedInsufficientFunds": _declined("insufficient_funds", last4="9995"),
    "card_visa_chargeDeclinedLostCard": _declined("lost_card", last4="9987"),
    "card_visa_chargeDeclinedStolenCard": _declined("stolen_card", last4="9979"),
    "card_chargeDeclinedExpiredCard": _declined("", code="expired_card", last4="0069"),
    "card_chargeDeclinedIncorrectCvc": _declined("", code="incorrect_cvc", last4="0127"),
    "card_chargeDeclinedProcessingError": _declined("", code="processing_error", last4="0119"),
    "card_visa_chargeDeclinedVelocityLimitExceeded": _declined("card_velocity_exceeded", last4="6975"),
    "card_chargeDeclinedFraudulent": _declined("fraudulent", last4="0019"),
    "card_authenticationRequired": AUTHENTICATES,
    "card_threeDSecure2Required": AUTHENTICATES,
    "card_threeDSecureRequired": AUTHENTICATES,
    "card_createDispute": Method(dispute="fraudulent", last4="0259"),
    "card_createDisputeProductNotReceived": Method(dispute="product_not_received", last4="2685"),
    "card_createDisputeInquiry": Method(dispute="inquiry", last4="1976"),
    "card_pendingRefund": Method(refund="pending", last4="7726"),
    "card_refundFail": Method(refund="fails", last4="5126"),
    "usBankAccount_success": _debit("us_bank_account", settles="succeeds"),
    "usBankAccount_insufficientFunds": _debit("us_bank_account", settles="fails", code="insufficient_funds"),
    "usBankAccount_accountClosed": _debit("us_bank_account", settles="fails", code="account_closed"),
    "usBankAccount_noAccount": _debit("us_bank_account", settles="fails", code="no_account"),
    "usBankAccount_debitNotAuthorized": _debit("us_bank_account", settles="fails", code="debit_not_authorized"),
    "usBankAccount_processing": _debit("us_bank_account", settles="never"),
    "sepaDebit_success": _debit("sepa_debit", settles="succeeds", last4="3201"),
    "sepaDebit_failed": _debit("sepa_debit", settles="fails", last4="3202"),
    "sepaDebit_processing": _debit("sepa_debit", settles="never", last4="3204"),
}
"""Without the ``pm_`` in front. Cards are also reached as ``tok_`` names; the names of SEPA debits are the simulator's own,
where Stripe has only account numbers."""

IBANS = {
    "AT611904300234573201": "sepaDebit_success",
    "AT321904300235473204": "sepaDebit_success",
    "AT861904300235473202": "sepaDebit_failed",
    "AT591904300235473203": "sepaDebit_failed",
    "IT60X0542811101000000123456": "sepaDebit_failed",
}
"""Account numbers of Stripe's documents and of its command line; every other one succeeds."""

NUMBERS = {
    "4242424242424242": "card_visa",
    "4000000000000077": "card_bypassPending",
    "4000000000000002": "card_chargeDeclined",
    "4000000000009995": "card_chargeDeclinedInsufficientFunds",
    "4000000000000341": "card_chargeCustomerFail",
    "4000002760003184": "card_authenticationRequired",
    "4000002500003155": "card_authenticationRequired",
    "4000000000000259": "card_createDispute",
    "4000000000007726": "card_pendingRefund",
    "4000000000005126": "card_refundFail",
    "5555555555554444": "card_mastercard",
}


def by_token(token: str) -> str | None:
    """The name of the method behind ``pm_...`` or ``tok_...``."""
    head, _, rest = token.partition("_")
    if head == "pm" and rest in METHODS:
        return rest
    if head == "tok" and f"card_{rest}" in METHODS:
        return f"card_{rest}"
    return None
