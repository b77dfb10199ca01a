"""Handing mail over: to a real server, and to one that breaks off or refuses at each stage."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from email import message_from_bytes
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.smtp import SMTP, AuthResult, Envelope

from onceflow_processor.operations.senders.mail_sender import MailSender, MailServer
from onceflow_schemas.operations.calls import Mail
from onceflow_schemas.operations.evidence import Evidence, Proof
from tests.processor.operations.senders import operations
from tests.processor.operations.senders.operations import ID

MAIL = Mail(sender="shop@example.com", to="jane@example.org", subject="Your refund", text="It is on its way.\n")
STEP, OPERATION = operations.operation(MAIL)


class Mailbox:
    """What a genuine server has taken."""

    def __init__(self) -> None:
        self.mails: list[bytes] = []

    async def handle_DATA(self, _server: object, _session: object, envelope: Envelope) -> str:  # noqa: N802
        assert isinstance(envelope.content, bytes)
        self.mails.append(envelope.content)
        return "250 OK"


@asynccontextmanager
async def listening(protocol: Callable[[], asyncio.BaseProtocol]) -> AsyncIterator[MailServer]:
    listener = await asyncio.get_running_loop().create_server(protocol, "127.0.0.1", 0)
    try:
        yield MailServer(host="127.0.0.1", port=listener.sockets[0].getsockname()[1], security="none")
    finally:
        listener.close()


async def hand_over(server: MailServer, *, total_seconds: float = 5.0) -> Evidence:
    sender = MailSender(server, connect_seconds=min(2.0, total_seconds), total_seconds=total_seconds)
    evidence = await sender.send(STEP, OPERATION)
    await sender.close()
    return evidence


def test_a_server_that_takes_the_mail_twice_has_one_message_id() -> None:
    mailbox = Mailbox()

    async def scenario() -> None:
        async with listening(lambda: SMTP(mailbox)) as server:
            for _ in range(2):
                evidence = await hand_over(server)
                assert (evidence.proof, evidence.external_id) == (Proof.DONE, f"<{ID}@example.com>")

    asyncio.run(scenario())
    first, second = mailbox.mails
    assert first == second
    assert message_from_bytes(first)["Message-ID"] == f"<{ID}@example.com>"


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    made = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=x -addext subjectAltName=IP:127.0.0.1"
    subprocess.run(
        ["openssl", *made.split(), "-keyout", str(key), "-out", str(certificate)],
        check=True,
        capture_output=True,
        timeout=30,
    )
    return key, certificate


@pytest.mark.parametrize("password", ["right", "wrong"])
def test_starttls_and_login(certificate: tuple[Path, Path], password: str) -> None:
    key, authority = certificate
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(authority, key)
    mailbox = Mailbox()

    def check(_server: object, _session: object, _envelope: object, _mechanism: str, given: Any) -> AuthResult:
        return AuthResult(success=(given.login, given.password) == (b"shop", b"right"), handled=False)

    async def scenario() -> Evidence:
        async with listening(
            lambda: SMTP(mailbox, tls_context=context, require_starttls=True, auth_required=True, authenticator=check)
        ) as server:
            secured = replace(
                server, security="starttls", username="shop", password=password, authorities=str(authority)
            )
            beforehand = await MailSender(secured, connect_seconds=2.0, total_seconds=5.0).try_login()
            evidence = await hand_over(secured)
            assert beforehand == (None if password == "right" else evidence), "a trial says what a mail would meet"
            return evidence

    evidence = asyncio.run(scenario())
    expected = (Proof.DONE, 1) if password == "right" else (Proof.UNAUTHORISED, 0)
    assert (evidence.proof, len(mailbox.mails)) == expected
    assert password not in repr(evidence)


def test_nothing_is_said_to_a_server_whose_certificate_is_not_trusted(certificate: tuple[Path, Path]) -> None:
    key, authority = certificate
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(authority, key)
    mailbox = Mailbox()

    async def scenario() -> Evidence:
        async with listening(lambda: SMTP(mailbox, tls_context=context)) as server:
            return await hand_over(replace(server, security="starttls"))

    assert asyncio.run(scenario()).proof is Proof.NOT_SENT
    assert mailbox.mails == []


def test_a_server_without_starttls_gets_no_mail_when_it_is_asked_for() -> None:
    mailbox = Mailbox()

    async def scenario() -> Evidence:
        async with listening(lambda: SMTP(mailbox)) as server:
            return await hand_over(replace(server, security="starttls"))

    assert asyncio.run(scenario()).proof is Proof.NOT_SENT
    assert mailbox.mails == []


POLITE = {"": "220 hi", "EHLO": "250 hi", "MAIL": "250 ok", "RCPT": "250 ok", "DATA": "354 go", ".": "250 taken"}


class Scripted(asyncio.Protocol):
    """Answers by the first word; None breaks off, "" says nothing."""

    def __init__(self, script: Mapping[str, str | None]) -> None:
        self._script = {**POLITE, **script}
        self._in_text = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._answer("")

    def data_received(self, data: bytes) -> None:
        if self._in_text:
            if data.endswith(b"\r\n.\r\n"):
                self._in_text = False
                self._answer(".")
            return
        word = data.split()[0].decode().upper()
        self._in_text = word == "DATA" and str(self._script["DATA"]).startswith("354")
        self._answer(word)

    def _answer(self, word: str) -> None:
        text = self._script.get(word, "250 ok")
        if text is None:
            self._transport.abort()
        elif text:
            self._transport.write(text.encode() + b"\r\n")


@pytest.mark.parametrize(
    ("script", "proof", "code"),
    [
        ({}, Proof.DONE, None),
        ({"QUIT": None}, Proof.DONE, None),
        ({"": None}, Proof.NOT_SENT, "smtp_connect"),
        ({"": "554 no"}, Proof.NOT_SENT, "smtp_554"),
        ({"": "421 later"}, Proof.NOT_SENT, "smtp_421"),
        ({"": "what"}, Proof.NOT_SENT, "smtp_connect"),
        ({"": ""}, Proof.NOT_SENT, "smtp_connect"),
        ({"EHLO": None}, Proof.NOT_SENT, "smtp_sender"),
        ({"MAIL": None}, Proof.NOT_SENT, "smtp_sender"),
        ({"MAIL": "550 5.7.1 <shop@example.com> no"}, Proof.REFUSED, "smtp_550"),
        ({"MAIL": "451 4.3.0 later"}, Proof.LIMITED, "smtp_451"),
        ({"RCPT": None}, Proof.NOT_SENT, "smtp_recipient"),
        ({"RCPT": ""}, Proof.NOT_SENT, "smtp_recipient"),
        ({"RCPT": "550 5.1.1 <jane@example.org> unknown"}, Proof.REFUSED, "smtp_550"),
        ({"RCPT": "450 4.2.1 <jane@example.org> later"}, Proof.LIMITED, "smtp_450"),
        ({"RCPT": "what"}, Proof.NOT_SENT, "smtp_recipient"),
        ({"DATA": "554 5.5.1 no"}, Proof.REFUSED, "smtp_554"),
        ({"DATA": "452 4.3.1 full"}, Proof.LIMITED, "smtp_452"),
        ({"DATA": None}, Proof.UNKNOWN, "smtp_text"),
        ({".": "554 5.6.0 no"}, Proof.REFUSED, "smtp_554"),
        ({".": "451 4.3.0 later"}, Proof.LIMITED, "smtp_451"),
        ({".": "421 closing"}, Proof.LIMITED, "smtp_421"),
        ({".": None}, Proof.UNKNOWN, "smtp_text"),
        ({".": ""}, Proof.UNKNOWN, "smtp_text"),
        ({".": "what"}, Proof.UNKNOWN, "smtp_text"),
        ({".": "251 perhaps"}, Proof.UNKNOWN, "smtp_text"),
        ({".": "250 " + "x" * 100_000}, Proof.UNKNOWN, "smtp_text"),
    ],
)
def test_what_each_stage_proves(script: Mapping[str, str | None], proof: Proof, code: str | None) -> None:
    async def scenario() -> Evidence:
        async with listening(lambda: Scripted(script)) as server:
            return await hand_over(server, total_seconds=0.5 if "" in script.values() else 5.0)

    evidence = asyncio.run(scenario())
    assert (evidence.proof, evidence.code) == (proof, code), evidence
    assert "@example.org" not in repr(evidence)
    assert evidence.detail


def test_a_refusal_keeps_its_code_and_not_its_text() -> None:
    async def scenario() -> Evidence:
        async with listening(lambda: Scripted({"RCPT": "550 5.1.1 <jane@example.org> unknown"})) as server:
            return await hand_over(server)

    assert asyncio.run(scenario()).detail == "the mail server answered 550 5.1.1 at recipient"


def test_nobody_listens() -> None:
    async def scenario() -> Evidence:
        async with listening(lambda: Scripted({})) as server:
            pass
        return await hand_over(server)

    evidence = asyncio.run(scenario())
    assert (evidence.proof, evidence.code) == (Proof.NOT_SENT, "smtp_connect")


def test_a_mail_that_cannot_be_written_is_refused() -> None:
    async def scenario() -> Evidence:
        sender = MailSender(MailServer(host="x", port=1, security="none"), connect_seconds=1, total_seconds=1)
        step = replace(STEP, request={**STEP.request, "subject": "a\nBcc: b@example.com"})
        return await sender.send(step, OPERATION)

    evidence = asyncio.run(scenario())
    assert (evidence.proof, evidence.code) == (Proof.REFUSED, "mail_unwritable")


def test_mail_is_not_looked_up() -> None:
    sender = MailSender(MailServer(host="x", port=1, security="none"), connect_seconds=1, total_seconds=1)
    with pytest.raises(AssertionError):
        asyncio.run(sender.look_up(STEP, OPERATION))
    assert sender.seconds_max == 2.0
    assert "secret" not in repr(MailServer(host="x", port=1, security="tls", username="u", password="secret"))
