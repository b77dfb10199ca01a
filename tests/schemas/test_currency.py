"""Money at request time: integers of minor units, each currency's own rule, and how a sum is shown."""

from __future__ import annotations

from typing import Any

import pytest

from onceflow_schemas.currency import CURRENCIES, check_amount, check_currency, format_amount
from onceflow_schemas.failure import Refused


@pytest.mark.parametrize(
    ("amount", "currency"),
    [
        (1, "usd"),
        (1099, "usd"),
        (9899, "jpy"),
        (5800, "jpy"),
        (5120, "kwd"),
        (5130, "kwd"),
        (500, "isk"),
        (500, "ugx"),
        (1, "krw"),
        (999_999_999_999, "idr"),
        (7, None),
    ],
)
def test_amounts_that_may_be_asked_for(amount: int, currency: str | None) -> None:
    assert check_amount(amount, currency) == amount


@pytest.mark.parametrize(
    ("amount", "currency"),
    [
        (0, "usd"),
        (-1, "usd"),
        (5124, "kwd"),
        (5121, "bhd"),
        (5125, "jod"),
        (1, "omr"),
        (11, "tnd"),
        (550, "isk"),
        (5, "ugx"),
        (1_000_000_000_000, "usd"),
        (2**63, "usd"),
        (10.99, "usd"),
        (5800.0, "jpy"),
        (78.4 * 100, "usd"),
        (float("nan"), "usd"),
        ("1099", "usd"),
        (True, "usd"),
        (None, "usd"),
    ],
)
def test_amounts_that_are_refused(amount: Any, currency: str) -> None:
    with pytest.raises(Refused) as refused:
        check_amount(amount, currency)
    assert refused.value.code == "amount_refused"


def test_a_credit_may_be_negative_and_keeps_its_currencys_rule() -> None:
    assert check_amount(-500, "usd", negative=True) == -500
    with pytest.raises(Refused):
        check_amount(-5124, "kwd", negative=True)
    with pytest.raises(Refused):
        check_amount(-1_000_000_000_000, "usd", negative=True)


@pytest.mark.parametrize("currency", ["USD", "usd\n", "xxx", "us", "", "usdt", "ＵＳＤ", None, 840, b"usd"])
def test_currencies_that_are_refused(currency: Any) -> None:
    with pytest.raises(Refused) as refused:
        check_currency(currency)
    assert refused.value.code == "currency_refused"


def test_known_currencies() -> None:
    assert check_currency("usd") == "usd"
    assert len(CURRENCIES) > 135
    assert all(len(currency) == 3 and currency.islower() for currency in CURRENCIES)


@pytest.mark.parametrize(
    ("amount", "currency", "shown"),
    [
        (1099, "usd", "10.99 USD"),
        (5, "usd", "0.05 USD"),
        (0, "usd", "0.00 USD"),
        (-1, "eur", "-0.01 EUR"),
        (-1234, "eur", "-12.34 EUR"),
        (9899, "jpy", "9899 JPY"),
        (-3, "jpy", "-3 JPY"),
        (5120, "kwd", "5.120 KWD"),
        (500, "isk", "5.00 ISK"),
        (2**63 - 1, "usd", "92233720368547758.07 USD"),
    ],
)
def test_how_a_sum_is_shown(amount: int, currency: str, shown: str) -> None:
    assert format_amount(amount, currency) == shown


def test_the_words_say_what_it_must_be() -> None:
    with pytest.raises(Refused, match="amount is -1: it must be more than 0"):
        check_amount(-1, "usd")
