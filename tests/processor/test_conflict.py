"""When a second delivery says something else than the first."""

from __future__ import annotations

import hashlib

import pytest

from onceflow_processor.conflict import PENDING_WEBHOOKS_MAX, is_conflict

FIRST = b'{"id":"evt_1","data":{"amount":1},"pending_webhooks":2,"type":"t"}'


def check(body: bytes, *, first: bytes = FIRST, version: str | None = "v1", first_version: str | None = "v1") -> bool:
    return is_conflict(
        body,
        digest=hashlib.sha256(body).digest(),
        api_version=version,
        first_digest=hashlib.sha256(first).digest(),
        first_api_version=first_version,
    )


def test_the_same_bytes_are_none() -> None:
    assert not check(FIRST)


@pytest.mark.parametrize("count", [0, 1, 9, 16, PENDING_WEBHOOKS_MAX])
def test_another_count_of_pending_deliveries_is_none(count: int) -> None:
    body = FIRST.replace(b'webhooks":2', b'webhooks":%d' % count)
    assert not check(body)
    assert not check(FIRST, first=body)


def test_the_count_stands_in_stripes_spelling_too() -> None:
    spaced = b'{\n  "id": "evt_1",\n  "pending_webhooks": 1\n}'
    assert not check(spaced.replace(b": 1", b": 3"), first=spaced)


def test_another_rendering_is_none() -> None:
    other = FIRST.replace(b'"amount":1', b'"amount_v2":1')
    assert not check(other, version="v2")
    assert not check(other, version=None)
    assert check(other)


@pytest.mark.parametrize(
    "body",
    [
        FIRST.replace(b'"amount":1', b'"amount":2'),
        FIRST.replace(b'"amount":1', b'"amount":2').replace(b'webhooks":2', b'webhooks":1'),
        FIRST.replace(b'"pending_webhooks":2,', b""),
        FIRST.replace(b'webhooks":2', b'webhooks":1000'),
        FIRST.replace(b'webhooks":2', b'webhooks":%d' % (PENDING_WEBHOOKS_MAX + 1)) + b" ",
        FIRST + b"\n",
        b"",
        b"\xff",
    ],
)
def test_anything_else_is_told_to_a_person(body: bytes) -> None:
    assert check(body)


def test_two_bodies_without_a_version_are_compared() -> None:
    assert check(b"{}", version=None, first_version=None)
