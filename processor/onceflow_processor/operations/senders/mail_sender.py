"""Mail by SMTP: handed over, refused, or unknown from the moment its text was sent.

Rule: nothing is sent twice by itself.  Until the server has been given the text nothing has happened; once it has, only its
answer tells.  Texts of the server are never copied into evidence, since they repeat addresses: codes are.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal

import aiosmtplib

from onceflow_processor.operations.senders.mail_message import message_bytes, message_id
from onceflow_schemas.operations.evidence import Evidence, Proof
from onceflow_schemas.operations.operation import Operation, Step

QUIT_SECONDS_MAX = 1.0

_ENHANCED = re.compile(r"\b[245]\.\d{1,3}\.\d{1,3}\b")
_PERMANENT = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class MailServer:
    """The server that takes our mail.

    Attributes:
        security: ``tls`` from the first byte, ``starttls`` before anything else is said, ``none`` on a trusted host only.
        username, password: None for a server that asks for none.
        authorities: file with the certificates that are trusted; None takes the system's.
        local_name: what we call ourselves in EHLO.
    """

    host: str
    port: int
    security: Literal["tls", "starttls", "none"]
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    authorities: str | None = None
    local_name: str = "localhost"


class MailSender:
    """A ``Sender`` for steps of kind ``mail``; one connection per mail."""

    def __init__(self, server: MailServer, *, connect_seconds: float, total_seconds: float) -> None:
        assert 0 < connect_seconds <= total_seconds
        self.seconds_max = total_seconds + QUIT_SECONDS_MAX
        self._server = server
        self._connect_seconds = connect_seconds
        self._total_seconds = total_seconds

    async def send(self, step: Step, operation: Operation) -> Evidence:
        """Hand the mail over once."""
        try:
            data = message_bytes(step.request, key=step.key, date=operation.requested_at)
        except ValueError:
            return Evidence(
                proof=Proof.REFUSED, code="mail_unwritable", detail="the mail has a header that cannot be written"
            )
        handing = _Handing(self._server)
        try:
            async with asyncio.timeout(self._total_seconds):
                await handing.run(step, data, connect_seconds=self._connect_seconds)
        except Exception as error:  # noqa: BLE001  an odd server brings the client to failures of any class
            return handing.failed(error)
        finally:
            await handing.leave()
        return Evidence(
            proof=Proof.DONE,
            external_id=message_id(step.key, step.request["sender"]),
            detail="the mail server took it",
        )

    async def try_login(self) -> Evidence | None:
        """Connect and log in as for a mail, and hand nothing over; None when that works, else why it does not."""
        handing = _Handing(self._server)
        try:
            async with asyncio.timeout(self._total_seconds):
                await handing.open(self._connect_seconds)
        except Exception as error:  # noqa: BLE001  as above
            return handing.failed(error)
        finally:
            await handing.leave()
        return None

    async def look_up(self, step: Step, operation: Operation, *, how: Mapping[str, Any] | None = None) -> Evidence:
        """Nothing can be looked up: a mail step has no ``lookup``."""
        raise AssertionError(f"a mail is not looked up: {step.name} {operation.id} {how}")

    async def close(self) -> None:
        """Nothing is kept."""


class _Handing:
    """One mail on its way, and how far it is."""

    def __init__(self, server: MailServer) -> None:
        self._server = server
        self._stage = "connect"
        self._client: aiosmtplib.SMTP | None = None

    async def open(self, connect_seconds: float) -> aiosmtplib.SMTP:
        """Connect and log in; whatever fails raises, and the stage tells what that means."""
        server = self._server
        tls = None if server.security == "none" else ssl.create_default_context(cafile=server.authorities)
        self._client = client = aiosmtplib.SMTP(
            hostname=server.host,
            port=server.port,
            local_hostname=server.local_name,
            timeout=None,  # our own deadline bounds all of it
            use_tls=server.security == "tls",
            start_tls=server.security == "starttls",
            tls_context=tls,
        )
        await client.connect(timeout=connect_seconds)
        if server.username is not None:
            self._stage = "login"
            await client.login(server.username, server.password or "")
        return client

    async def run(self, step: Step, data: bytes, *, connect_seconds: float) -> None:
        """Go through all stages; raises as ``open`` does."""
        client, request = await self.open(connect_seconds), step.request
        self._stage = "sender"
        await client.mail(request["sender"])
        self._stage = "recipient"
        await client.rcpt(request["to"])
        self._stage = "text"
        await client.data(data)
        self._stage = "taken"

    async def leave(self) -> None:
        """Say goodbye where that is possible, and close."""
        if self._client is None:
            return
        if self._stage == "taken":
            with suppress(aiosmtplib.SMTPException, OSError):
                await self._client.quit(timeout=QUIT_SECONDS_MAX)
        self._client.close()

    def failed(self, error: Exception) -> Evidence:
        """What the failure proves at this stage: a negative answer (4xx for now, 5xx for good), or none."""
        if isinstance(error, aiosmtplib.SMTPResponseException) and error.code in range(400, 600):
            enhanced = _ENHANCED.search(str(error.message))
            detail = f"the mail server answered {error.code}{f' {enhanced[0]}' if enhanced else ''} at {self._stage}"
            return Evidence(proof=self._refusal(error.code), code=f"smtp_{error.code}", detail=detail)
        proof = Proof.UNKNOWN if self._stage == "text" else Proof.NOT_SENT
        detail = f"the mail server gave no answer at {self._stage} ({type(error).__name__})"
        return Evidence(proof=proof, code=f"smtp_{self._stage}", detail=detail)

    def _refusal(self, code: int) -> Proof:
        if self._stage == "connect":
            return Proof.NOT_SENT
        if code < _PERMANENT:
            return Proof.LIMITED
        return Proof.UNAUTHORISED if self._stage == "login" else Proof.REFUSED
