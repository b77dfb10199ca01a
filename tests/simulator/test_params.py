"""Stripe's form encoding, by hand."""

from __future__ import annotations

from typing import Any

import pytest

from onceflow_simulator.errors import StripeError
from onceflow_simulator.params import decode


@pytest.mark.parametrize(
    ("text", "params"),
    [
        ("", {}),
        ("a=1&b=", {"a": "1", "b": ""}),
        ("a=1&a=2", {"a": "2"}),
        ("a=x+y%20z%26", {"a": "x y z&"}),
        ("a=%C3%A9", {"a": "é"}),
        ("a[b]=1&a[c][d]=2", {"a": {"b": "1", "c": {"d": "2"}}}),
        ("a[]=1&a[]=2", {"a": ["1", "2"]}),
        ("a[1]=y&a[0]=x&a[10]=z", {"a": ["x", "y", "z"]}),
        ("a[0][p]=1&a[1][p]=2", {"a": [{"p": "1"}, {"p": "2"}]}),
        ("metadata[7]=x&metadata[k]=y", {"metadata": {"7": "x", "k": "y"}}),
        ("a%5Bb%5D=1", {"a": {"b": "1"}}),
        ("&a=1&", {"a": "1"}),
    ],
)
def test_decoded(text: str, params: dict[str, Any]) -> None:
    assert decode(text) == params


@pytest.mark.parametrize("text", ["a[b=1", "[a]=1", "a]b=1", "a=1&a[b]=2", "a" + "[b]" * 11 + "=1"])
def test_refused(text: str) -> None:
    with pytest.raises(StripeError):
        decode(text)
