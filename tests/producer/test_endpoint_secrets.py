"""Signing secrets: what is trimmed, what is refused with which words, and that nothing of them is shown."""

from __future__ import annotations

import pytest

from onceflow_producer.endpoint_secrets import EndpointSecret, parse_secrets
from onceflow_schemas.failure import Misconfigured


def test_named_and_unnamed_secrets() -> None:
    first, second, third = parse_secrets(" shop=whsec_A ,whsec_B\n,\tshop = whsec_C=")
    assert (first.id, first.secret) == ("shop", b"whsec_A")
    assert second.secret == b"whsec_B"
    assert (third.id, third.secret) == ("shop", b"whsec_C=")


def test_a_default_id_is_stable_one_way_and_not_by_position() -> None:
    (alone,) = parse_secrets("whsec_B")
    _, behind = parse_secrets("whsec_A,whsec_B")
    assert alone.id == behind.id == "ep_bcc83110cd0a"
    assert "whsec" not in alone.id


@pytest.mark.parametrize("text", ["whsec_A\n", " whsec_A", "\t whsec_A \r\n"])
def test_white_space_around_is_trimmed(text: str) -> None:
    assert parse_secrets(text)[0].secret == b"whsec_A"


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "entry 1 is empty"),
        ("   ", "entry 1 is empty"),
        ("whsec_A,", "entry 2 is empty"),
        ("shop=", "entry 1 is empty"),
        ("sk_test_51HXXXX", "sk_, which is an API key"),
        ("shop=sk_live_51HXXXX", "sk_, which is an API key"),
        ("rk_live_1", "restricted API key"),
        ("pk_test_1", "publishable key"),
        ("we_1NXXXX", "we_, which is the id of a webhook endpoint"),
        ("secret", "does not begin with whsec_"),
        ("whsec_", "nothing after whsec_"),
        ("whsec_A B", "white space"),
        ("whsec_A\nwhsec_B", "white space"),
        ("whsec_é", "other characters"),
        ("bad id=whsec_A", "endpoint id"),
        ("../x=whsec_A", "endpoint id"),
        ("=whsec_A", "endpoint id"),
        ("whsec_A,whsec_A", "entry 2 repeats"),
        ("a=whsec_A,b=whsec_A", "entry 2 repeats"),
        (",".join(f"whsec_{n}" for n in range(33)), "at most 32"),
    ],
)
def test_what_can_never_match_is_refused_at_start(text: str, word: str) -> None:
    with pytest.raises(Misconfigured, match="STRIPE_WEBHOOK_SECRET") as refused:
        parse_secrets(text)
    assert refused.value.code == "settings_invalid"
    assert word in refused.value.message
    for secret in text.replace(",", "\n").split("\n"):
        assert len(secret) < 8 or secret not in refused.value.message


def test_every_fault_is_named_at_once() -> None:
    with pytest.raises(Misconfigured) as refused:
        parse_secrets("sk_test_1,whsec_A,we_1")
    assert [fault.split("entry ")[1][0] for fault in refused.value.faults] == ["1", "3"]


def test_a_secret_is_not_shown() -> None:
    assert "whsec" not in repr(EndpointSecret("shop", b"whsec_A"))
    assert "whsec" not in str(parse_secrets("shop=whsec_A"))
