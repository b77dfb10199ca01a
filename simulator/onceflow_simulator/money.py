"""Currencies and amounts, as Stripe checks them.

Rule: an amount is a whole number of the currency's smallest unit; zero- and three-decimal currencies have rules of
their own.
"""

from __future__ import annotations

from onceflow_simulator.errors import StripeError, invalid

AMOUNT_MAX = 99_999_999
ZERO_DECIMAL = frozenset(
    ["bif", "clp", "djf", "gnf", "jpy", "kmf", "krw", "mga", "pyg", "rwf", "ugx", "vnd", "vuv", "xaf", "xof", "xpf"]
)
THREE_DECIMAL = frozenset(["bhd", "jod", "kwd", "omr", "tnd"])
OTHERS = frozenset(
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
        "gip",
        "gmd",
        "gtq",
        "gyd",
        "hkd",
        "hnl",
        "htg",
        "huf",
        "idr",
        "ils",
        "inr",
        "isk",
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
        "yer",
        "zar",
        "zmw",
    ]
)
CURRENCIES = ZERO_DECIMAL | THREE_DECIMAL | OTHERS
SMALLEST = {
    "usd": 50,
    "eur": 50,
    "gbp": 30,
    "chf": 50,
    "jpy": 50,
    "cad": 50,
    "aud": 50,
    "sek": 300,
    "nok": 300,
    "dkk": 250,
}


def check_currency(text: object, *, param: str = "currency") -> str:
    """The currency in small letters.

    Raises:
        StripeError: 400, there is no such currency.
    """
    currency = str(text).lower()
    if currency not in CURRENCIES:
        raise invalid(
            f"Invalid currency: {text}. Stripe currently supports these currencies: usd, eur, ...", param=param
        )
    return currency


def check_amount(amount: int, currency: str, *, param: str = "amount") -> None:
    """Refuse what cannot be charged.

    Raises:
        StripeError: 400, too small, too large, or a third decimal that no card network takes.
    """
    if amount < SMALLEST.get(currency, 1):
        raise _refused("amount_too_small", f"Amount must be at least {SMALLEST.get(currency, 1)} {currency}", param)
    if amount > AMOUNT_MAX:
        raise _refused("amount_too_large", f"Amount must be no more than {AMOUNT_MAX} {currency}", param)
    if currency in THREE_DECIMAL and amount % 10:
        raise _refused(
            "invalid_charge_amount",
            f"The last digit of an amount in {currency} must be 0, and {amount} has another",
            param,
        )


def _refused(code: str, message: str, param: str) -> StripeError:
    return invalid(message, code=code, param=param)
