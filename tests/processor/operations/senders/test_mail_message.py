"""A mail's bytes: the same on every try, and nothing smuggled into its head."""

from __future__ import annotations

from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from typing import Any

import pytest

from onceflow_processor.operations.senders.mail_message import message_bytes, message_id
from tests.processor.operations.senders.operations import ASKED

MAIL = {"sender": "shop@example.com", "to": "jane@example.org", "subject": "Grüße", "text": "Hallo\n.\nSchöne Grüße\n"}


def written(**changes: Any) -> bytes:
    return message_bytes({**MAIL, **changes}, key="6d0a-1", date=ASKED)


def read(data: bytes) -> EmailMessage:
    message = message_from_bytes(data, policy=default)
    assert isinstance(message, EmailMessage)
    return message


def test_head_and_text_are_as_asked() -> None:
    message = read(written())
    assert (message["From"], message["To"], message["Subject"]) == ("shop@example.com", "jane@example.org", "Grüße")
    assert message["Message-ID"] == "<6d0a-1@example.com>" == message_id("6d0a-1", "shop@example.com")
    assert message["Date"] == "Thu, 01 Jan 2026 12:00:00 +0000"
    assert message.get_content().splitlines() == ["Hallo", ".", "Schöne Grüße"]


def test_html_stands_beside_the_text() -> None:
    message = read(written(html="<p>Hi</p>"))
    assert [part.get_content_type() for part in message.iter_parts()] == ["text/plain", "text/html"]


@pytest.mark.parametrize("html", [None, "<p>Hi</p>"])
def test_the_bytes_are_the_same_each_time_ascii_and_of_crlf_lines(html: str | None) -> None:
    data = written(html=html)
    assert data == written(html=html)
    assert data.isascii()
    assert b"\n" not in data.replace(b"\r\n", b"")


@pytest.mark.parametrize(
    "change",
    [
        {"subject": "hi\r\nBcc: x@example.com"},
        {"subject": "hi\nBcc: x@example.com"},
        {"to": "jane@example.org\r\nBcc: x@example.com"},
        {"to": "jane@example.org, x@example.com"},
        {"to": "a,b@example.org"},
        {"to": "Jane <jane@example.org>"},
        {"to": "group: jane@example.org;"},
        {"sender": "shop@example.com\nX: y"},
    ],
)
def test_what_would_become_another_header_or_address_is_not_written(change: dict[str, str]) -> None:
    with pytest.raises(ValueError):
        written(**change)
