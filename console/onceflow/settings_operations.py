"""The settings of operations: how they are carried out, and the server that takes mail."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, SecretStr

from onceflow.settings_section import Port, Seconds, Section, table

CREDENTIAL_NAME = r"^[A-Za-z0-9_.-]{1,100}$"


class OperationsSettings(Section):
    """Operations: calls to Stripe and others."""

    concurrency: int = Field(32, ge=1, le=1_000, description="Calls of one worker that are on their way at a time.")
    connect_seconds: Seconds = Field(5.0, le=60, description="For name, connection and TLS of a call.")
    call_seconds_max: Seconds = Field(20.0, le=120, description="A call that takes longer is unknown.")
    lease_seconds: Seconds = Field(
        35.0, le=600, description="A worker that died is waited for as long as this; longer than the longest call."
    )
    requests_per_second: int | None = Field(
        None,
        ge=1,
        le=10_000,
        examples=[80],
        description="Calls to Stripe for each account, of all workers together; unset: 80 in live mode, 20 in test mode.",
    )
    burst: int = Field(20, ge=1, le=10_000, description="Calls that may be made at once after a pause.")
    safe_window_hours: int = Field(
        20, ge=1, le=23, description="So long after its reason an operation's key may be sent again without a look."
    )
    absence_wait_minutes: int = Field(
        15, ge=1, le=1_440, description="After the last possible send, before it counts that nothing is found."
    )
    action_minutes: int = Field(
        1_440, ge=1, le=43_200, description="A customer who is there may take so long to act (3-D Secure)."
    )
    action_off_session_minutes: int = Field(
        60, ge=1, le=43_200, description="The same when nobody is there; then the charge is given up."
    )
    poll_seconds: Seconds = Field(1.0, le=60, description="So often an idle worker looks by itself.")
    callback_deadline_seconds: Seconds = Field(
        10.0, le=240, description="A settled callback that runs longer has failed."
    )
    credentials: Annotated[dict[Annotated[str, Field(pattern=CREDENTIAL_NAME)], SecretStr], BeforeValidator(table)] = (
        Field(
            default_factory=dict,
            examples=["resend=re_..."],
            description="Bearer tokens that HTTP calls name: `name=token,name2=token2`, or a table in the file.",
            json_schema_extra={"secret": True},
        )
    )


class MailSettings(Section):
    """The server that takes mail; without a host no mail is sent here."""

    host: str | None = Field(None, min_length=1, examples=["smtp.example.com"], description="Address of the server.")
    port: Port = Field(465, description="Its port: 465 for `tls`, 587 for `starttls`.")
    security: Literal["tls", "starttls", "none"] = Field(
        "tls", description="Encrypted from the first byte, before anything else is said, or not at all."
    )
    username: str | None = Field(None, examples=["onceflow"], description="For a server that asks for one.")
    password: SecretStr | None = Field(
        None, examples=["..."], description="Its password.", json_schema_extra={"secret": True}
    )
    authorities: Path | None = Field(
        None, examples=["/etc/ssl/mail-ca.pem"], description="Certificates that are trusted; unset: the system's."
    )
    local_name: str = Field("localhost", min_length=1, description="What we call ourselves to the server.")
