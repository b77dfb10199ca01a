"""The doctor's look at the mail server: one that takes connections, one that is away, one that refuses, and none."""

from __future__ import annotations

import asyncio

import pytest
from aiosmtpd.smtp import SMTP

from onceflow.doctor.checked import Checked
from onceflow.doctor.mail import mail_line
from onceflow.settings import SettingSources, load_settings
from tests.processor.operations.senders.test_mail_sender import Mailbox, listening


def look(**given: str) -> Checked:
    environment = {"ONCEFLOW_CONFIG": "/dev/null", **{f"ONCEFLOW_MAIL_{name}": text for name, text in given.items()}}
    return mail_line(load_settings(SettingSources(), environment=environment).settings)


@pytest.mark.parametrize(("user", "said"), [("", "(none) takes connections"), ("shop", "at login")])
def test_a_server_is_asked_as_for_a_mail_and_gets_none(user: str, said: str) -> None:
    mailbox = Mailbox()

    async def scenario() -> Checked:
        async with listening(lambda: SMTP(mailbox)) as server:
            given = {"HOST": server.host, "PORT": str(server.port), "SECURITY": "none"}
            given |= {"USERNAME": user, "PASSWORD": "CANARY"} if user else {}
            return await asyncio.to_thread(look, **given)

    line = asyncio.run(scenario())
    # The server has no login to offer.
    assert (line.ok, line.status) == ((False, 5) if user else (True, 1))
    assert said in line.found
    assert "CANARY" not in line.found + line.fix
    assert mailbox.mails == []


def test_a_server_that_is_away_is_a_cross() -> None:
    line = look(HOST="127.0.0.1", PORT="1", SECURITY="none")
    assert (line.ok, line.status) == (False, 5)
    assert line.found.startswith("127.0.0.1:1 (none): smtp_connect: the mail server gave no answer at connect")


def test_without_a_server_mails_wait_which_is_no_fault() -> None:
    line = look()
    assert (line.ok, line.found) == (True, "no server is set (mail.host): operations that are mails would wait")
