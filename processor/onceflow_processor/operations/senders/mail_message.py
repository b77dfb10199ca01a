"""A mail as bytes: the same bytes on every try.

Rule: Message-ID, date and boundary are made of what is frozen, so that a mail that comes twice is one mail for every mailbox;
no text can become a header.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from email.message import EmailMessage
from email.policy import SMTP
from typing import Any
from uuid import NAMESPACE_OID, uuid5


def message_id(key: str, sender: str) -> str:
    """Return ``<key@the sender's domain>``."""
    return f"<{key}@{sender.rpartition('@')[2]}>"


def message_bytes(request: Mapping[str, Any], *, key: str, date: datetime) -> bytes:
    """Return the mail with its head, lines ended by CR LF.

    Args:
        request: as frozen: {"sender", "to", "subject", "text", "html"?}.
        key: the step's key.
        date: when the mail was asked for, aware.

    Raises:
        ValueError: a line break in a header, or an address that is not exactly one.
    """
    message = EmailMessage(policy=SMTP)
    for header, address in (("From", request["sender"]), ("To", request["to"])):
        message[header] = address
        if [one.addr_spec for one in message[header].addresses] != [address]:
            raise ValueError(f"{header} is not exactly one address")
    message["Subject"] = request["subject"]
    message["Date"] = date
    message["Message-ID"] = message_id(key, request["sender"])
    message.set_content(request["text"], cte="base64")
    if request.get("html") is not None:
        message.add_alternative(request["html"], subtype="html", cte="base64")
        message.set_boundary(f"={uuid5(NAMESPACE_OID, key).hex}")
    return message.as_bytes()
