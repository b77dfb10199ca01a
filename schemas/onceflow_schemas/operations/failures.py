"""Codes of operations: what is refused when one is asked for, and why one waits for a person.

Rule: as in ``onceflow_schemas.failure``, which takes these tables in.
"""

from __future__ import annotations

from onceflow_schemas.failure_kind import kinds

_ASK_AGAIN = "Nothing was sent; mend what the message names and ask again."

ASKED_FAILURES = kinds(
    "developer",
    ("operation_refused", "An operation cannot be asked for like this.", _ASK_AGAIN),
    (
        "operation_conflict",
        "An operation of this effect, subject and occurrence was asked for with other arguments or another order key.",
        "Another wish needs another subject or occurrence; a frozen call is never changed.",
    ),
    (
        "arguments_refused",
        "The arguments are not those that the effect's function takes.",
        "Give every argument of the function by its name, and no other.",
    ),
    (
        "account_not_served",
        "The operation is to act on an account that this deployment does not serve.",
        "Add the account to stripe.accounts, or name another one with account=.",
    ),
    (
        "effect_not_registered",
        "What is asked for is no effect that is registered here.",
        "Register it with handlers.effect or handlers.use, and ask with what that gave back.",
    ),
    (
        "tx_ended",
        "What attach gave back was used after its transaction had ended.",
        "Call attach in each transaction, and use what it gives back only there.",
    ),
    (
        "amount_refused",
        "The amount is not a whole number of minor units that the currency allows.",
        "Give an integer of the smallest unit: 1099 for 10.99 usd, 500 for 500 jpy, 5120 for 5.120 kwd.",
    ),
    ("currency_refused", "No such currency.", "Give a three-letter code in small letters that Stripe lists."),
    (
        "metadata_refused",
        "The metadata breaks Stripe's limits.",
        "49 keys of 40 characters without brackets, values are text of 500; onceflow_operation and onceflow_deployment are ours.",
    ),
    (
        "charge_without_fence",
        "A call that would charge at once, so that a lost answer could charge twice.",
        "Use Charge: it confirms exactly one intent. A subscription: payment_behavior='default_incomplete', then pay its invoice.",
    ),
) | kinds(
    "operator",
    (
        "ruling_refused",
        "The operation is in a state in which this cannot be decided.",
        "`onceflow operations show` says what happens next by itself and what may be decided.",
    ),
    (
        "operation_unreadable",
        "This release cannot read the operation's row; workers leave it alone, and the others go on.",
        "Use the release that asked for it. If that is this one, report the message.",
    ),
    ("operation_missing", "There is no such operation.", "`onceflow operations list` shows those there are."),
)

_SHOW = "Compare with the object at Stripe, then `onceflow operations resolve`."

REVIEW_FAILURES = kinds(
    "operator",
    (
        "operation_unproved",
        "It may have been sent, the safe window is over, and nothing can be looked up.",
        "Ask the other side, then `onceflow operations resolve`.",
    ),
    (
        "operation_not_found",
        "It may have been sent, the safe window is over, and nothing of it is found.",
        _SHOW,
    ),
    ("several_objects", "More than one object carries the operation's id: it may have acted twice.", _SHOW),
    ("answer_strange", "An answer says something that no rule covers, such as another amount.", _SHOW),
    ("key_mismatch", "The idempotency key was used with other parameters: an earlier request ran.", _SHOW),
    (
        "refusal_unproved",
        "The request is refused now, yet an earlier try may have acted, and nothing can be looked up.",
        "Ask the other side, then `onceflow operations resolve`.",
    ),
    ("cancel_refused", "The payment intent is open and its cancel is refused.", _SHOW),
    (
        "operation_undecided",
        "No rule could be applied to what its row holds; the others go on.",
        "Report the detail of the review; look at the other side, then `onceflow operations resolve`.",
    ),
    ("settled_otherwise", "It was settled without an effect, and now the effect is there.", _SHOW),
)
