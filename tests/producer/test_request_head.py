"""What is refused by the headers alone."""

from __future__ import annotations

import pytest

from onceflow_producer.refusal import Refusal
from onceflow_producer.request_head import RequestHead, read_head


def test_the_wanted_headers_are_all_kept() -> None:
    head = read_head(
        [
            (b"host", b"x"),
            (b"stripe-signature", b"a"),
            (b"content-length", b"12"),
            (b"stripe-signature", b"b"),
            (b"traceparent", b"c"),
            (b"content-encoding", b" Identity "),
        ],
        body_bytes_max=12,
    )
    assert head == RequestHead(signatures=[b"a", b"b"], traceparents=[b"c"], declared_bytes=12)


def test_nothing_is_needed() -> None:
    assert read_head([], body_bytes_max=1) == RequestHead([], [], None)


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ([(b"content-encoding", b"gzip")], "content_encoding"),
        ([(b"content-encoding", b"identity"), (b"content-encoding", b"br")], "content_encoding"),
        ([(b"content-encoding", b"gzip"), (b"content-encoding", b"identity")], "content_encoding"),
        ([(b"content-encoding", b"identity, gzip")], "content_encoding"),
        ([(b"content-length", b"101")], "body_too_large"),
        ([(b"content-length", b"9" * 5_000)], "body_too_large"),
        ([(b"content-length", b"-1")], "body_incomplete"),
        ([(b"content-length", b"1x")], "body_incomplete"),
        ([(b"content-length", b"")], "body_incomplete"),
        ([(b"a", b"b")] * 101, "headers_too_large"),
        ([(b"a", b"b" * 40_000)], "headers_too_large"),
        ([(b"stripe-signature", b"b" * 40_000)], "headers_too_large"),
    ],
)
def test_refused_by_its_headers(headers: list[tuple[bytes, bytes]], code: str) -> None:
    found = read_head(headers, body_bytes_max=100)
    assert isinstance(found, Refusal)
    assert found.code == code


def test_the_limits_themselves_pass() -> None:
    assert isinstance(read_head([(b"a", b"b")] * 100, body_bytes_max=1), RequestHead)
    assert isinstance(read_head([(b"a", b"b" * 32_767)], body_bytes_max=1), RequestHead)
    assert isinstance(read_head([(b"content-length", b"1")], body_bytes_max=1), RequestHead)
