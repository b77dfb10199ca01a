"""The doctor's look at the server that takes mail.

Rule: it connects and logs in as a worker does, and hands nothing over.
"""

from __future__ import annotations

import asyncio

from onceflow.doctor.checked import Checked, cross, tick
from onceflow.exit_codes import DEPENDENCY
from onceflow.service_options import mail_server
from onceflow.settings_model import Settings
from onceflow_processor.operations.senders.mail_sender import MailSender

ASK_SECONDS_MAX = 10.0


def mail_line(settings: Settings) -> Checked:
    """Return whether mails can be handed over; without a server they wait, which is no fault where none are asked for."""
    server = mail_server(settings)
    if server is None:
        return tick("mail", "no server is set (mail.host): operations that are mails would wait")
    sender = MailSender(server, connect_seconds=ASK_SECONDS_MAX, total_seconds=ASK_SECONDS_MAX)
    where = f"{server.host}:{server.port} ({server.security})"
    failed = asyncio.run(sender.try_login())
    if failed is None:
        return tick("mail", f"{where} {'takes connections' if server.username is None else 'takes the login'}")
    fix = "Mend the mail.* settings (mail.security fits the port: tls 465, starttls 587), or the server."
    return cross("mail", f"{where}: {failed.code}: {failed.detail}", fix=fix, status=DEPENDENCY)
