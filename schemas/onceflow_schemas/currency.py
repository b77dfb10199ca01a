"""Amounts and currencies of what we ask Stripe for: checked before anything is written, shown with the right decimals.

Rule: money is an integer of the currency's smallest unit, never a float and never a product with 100.
Source: Stripe's pages on currencies (lists, three-decimal rule, special cases), read 2026-11.
"""

from __future__ import annotations

from typing import Any

from onceflow_schemas.failure import Refused
from onceflow_schemas.quoting import quoted

ZERO_DECIMAL = frozenset(
    ["bif", "clp", "djf", "gnf", "jpy", "kmf", "krw", "mga", "pyg", "rwf", "vnd", "vuv", "xaf", "xof", "xpf"]
)
"""The amount counts whole units."""

THREE_DECIMAL = frozenset(["bhd", "jod", "kwd", "omr", "tnd"])
"""The amount counts thousandths, and its last digit must be 0."""

WHOLE_HUNDREDS = frozenset(["isk", "ugx"])
"""Without decimals in life, with two in the API: the amount must be divisible by 100."""

_TWO_DECIMAL = frozenset(
    [
        "aed",
        "afn",
        "all",
        "amd",
        "ang",
        "aoa",
        "ars",
        "aud",
        "awg",
        "azn",
        "bam",
        "bbd",
        "bdt",
        "bgn",
        "bmd",
        "bnd",
        "bob",
        "brl",
        "bsd",
        "bwp",
        "byn",
        "bzd",
        "cad",
        "cdf",
        "chf",
        "cny",
        "cop",
        "crc",
        "cve",
        "czk",
        "dkk",
        "dop",
        "dzd",
        "egp",
        "etb",
        "eur",
        "fjd",
        "fkp",
        "gbp",
        "gel",
        "ghs",
        "gip",
        "gmd",
        "gtq",
        "gyd",
        "hkd",
        "hnl",
        "hrk",
        "htg",
        "huf",
        "idr",
        "ils",
        "inr",
        "jmd",
        "kes",
        "kgs",
        "khr",
        "kyd",
        "kzt",
        "lak",
        "lbp",
        "lkr",
        "lrd",
        "lsl",
        "mad",
        "mdl",
        "mkd",
        "mmk",
        "mnt",
        "mop",
        "mur",
        "mvr",
        "mwk",
        "mxn",
        "myr",
        "mzn",
        "nad",
        "ngn",
        "nio",
        "nok",
        "npr",
        "nzd",
        "pab",
        "pen",
        "pgk",
        "php",
        "pkr",
        "pln",
        "qar",
        "ron",
        "rsd",
        "rub",
        "sar",
        "sbd",
        "scr",
        "sek",
        "sgd",
        "shp",
        "sle",
        "sos",
        "srd",
        "std",
        "svc",
        "szl",
        "thb",
        "tjs",
        "top",
        "try",
        "ttd",
        "twd",
        "tzs",
        "uah",
        "usd",
        "uyu",
        "uzs",
        "wst",
        "xcd",
        "xcg",
        "yer",
        "zar",
        "zmw",
    ]
)

CURRENCIES = ZERO_DECIMAL | THREE_DECIMAL | WHOLE_HUNDREDS | _TWO_DECIMAL

REQUEST_AMOUNT_MAX = 999_999_999_999
"""Twelve digits: the most that Stripe takes in any currency; most currencies end at eight, which Stripe itself says."""


def check_currency(currency: Any) -> str:
    """Return a currency that Stripe knows.

    Raises:
        Refused: ``currency_refused``.
    """
    if not isinstance(currency, str) or currency not in CURRENCIES:
        small = isinstance(currency, str) and currency.lower() in CURRENCIES
        raise Refused(
            "currency_refused", f"{quoted(currency, 20)} is {'not in small letters' if small else 'no currency'}"
        )
    return currency


def check_amount(amount: Any, currency: str | None, *, name: str = "amount", negative: bool = False) -> int:
    """Return an amount that may be asked for.

    Args:
        amount: minor units.
        currency: a checked currency, None when the other side knows it (a refund's is its charge's).
        name: what the amount is called in the call.
        negative: whether it may be zero or less (a credit).

    Raises:
        Refused: ``amount_refused``.
    """
    if type(amount) is not int:
        raise Refused("amount_refused", f"{name} is {quoted(amount, 40)}, not an integer of minor units")
    if abs(amount) > REQUEST_AMOUNT_MAX:
        raise Refused("amount_refused", f"{name} has more than twelve digits")
    if amount <= 0 and not negative:
        raise Refused("amount_refused", f"{name} is {amount}: it must be more than 0")
    step = 10 if currency in THREE_DECIMAL else 100 if currency in WHOLE_HUNDREDS else 1
    if amount % step:
        raise Refused("amount_refused", f"{name} is {amount}: in {currency} it must be divisible by {step}")
    return amount


def format_amount(amount: int, currency: str) -> str:
    """Return an amount for people: ``10.99 USD``, ``9899 JPY``, ``5.120 KWD``."""
    decimals = 0 if currency in ZERO_DECIMAL else 3 if currency in THREE_DECIMAL else 2
    if not decimals:
        return f"{amount} {currency.upper()}"
    whole, rest = divmod(abs(amount), 10**decimals)
    return f"{'-' if amount < 0 else ''}{whole}.{rest:0{decimals}} {currency.upper()}"
