"""A broker with TLS, SCRAM logins and ACLs, as a platform team runs it; certificates are made on the spot."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialUpsertion,
)

from onceflow.embedded.broker_properties import ExtraListener
from onceflow.embedded.data_folder import DataFolder
from onceflow.embedded.kafka_broker import KafkaBroker

LISTENER = "SECURE"
ITERATIONS = 4096
REQUEST_SECONDS = 20.0


def make_certificate(folder: Path, name: str) -> Path:
    """Make a certificate for 127.0.0.1 that is its own authority, ``<name>.pem`` with the key in ``<name>.key``."""
    assert shutil.which("openssl"), "this test needs the program openssl (Debian package openssl)"
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}"]
    words += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(words, check=True, capture_output=True, timeout=60)
    return certificate


class SecureBroker:
    """A broker whose listener ``SECURE`` asks for TLS and SCRAM; whoever uses its plain one may do everything.

    Args:
        folder: claimed.
        cache_dir: where the jars are.
    """

    def __init__(self, folder: DataFolder, *, cache_dir: Path) -> None:
        self.certificate = make_certificate(folder.root, "broker")
        self.foreign_certificate = make_certificate(folder.root, "foreign")
        keystore = folder.root / "broker.keystore.pem"
        keystore.write_text(self.certificate.with_suffix(".key").read_text() + self.certificate.read_text())
        prefix = f"listener.name.{LISTENER.lower()}"
        self._broker = KafkaBroker(
            folder,
            cache_dir=cache_dir,
            progress=lambda _line: None,
            listeners=[ExtraListener(LISTENER, protocol="SASL_SSL")],
            extra_properties={
                f"{prefix}.sasl.enabled.mechanisms": "SCRAM-SHA-512",
                f"{prefix}.scram-sha-512.sasl.jaas.config": (
                    "org.apache.kafka.common.security.scram.ScramLoginModule required;"
                ),
                f"{prefix}.ssl.keystore.type": "PEM",
                f"{prefix}.ssl.keystore.location": str(keystore),
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "super.users": "User:ANONYMOUS",
            },
        )

    def start(self) -> None:
        """Start it; returns when it answers."""
        self._broker.start()
        self._broker.wait_ready()

    def stop(self) -> None:
        """End it."""
        self._broker.stop()

    @property
    def owner(self) -> dict[str, Any]:
        """Properties of a client that may do everything."""
        return {"bootstrap.servers": self._broker.bootstrap}

    def client(self, user: str, *, password: str | None = None, authority: Path | None = None) -> dict[str, Any]:
        """Properties of a client that logs in."""
        return {
            "bootstrap.servers": self._broker.address(LISTENER),
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": user,
            "sasl.password": password or password_of(user),
            "ssl.ca.location": str(authority or self.certificate),
        }

    def add_users(self, *names: str) -> None:
        """Make logins."""
        how = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, ITERATIONS)
        wanted: list[UserScramCredentialAlteration] = [
            UserScramCredentialUpsertion(name, how, password_of(name).encode()) for name in names
        ]
        # The client is kept by name: one that is collected takes its pending requests with it.
        admin = AdminClient(self.owner)
        for answer in admin.alter_user_scram_credentials(wanted).values():
            answer.result(REQUEST_SECONDS)

    def grant(self, rules: Iterable[Mapping[str, Any]]) -> None:
        """Grant what lines of ``onceflow topics acls --json`` say."""
        bindings = [
            AclBinding(
                ResourceType[rule["resource_type"].upper()],
                rule["name"],
                ResourcePatternType[rule["pattern_type"].upper()],
                rule["principal"],
                "*",
                AclOperation[operation],
                AclPermissionType.ALLOW,
            )
            for rule in rules
            for operation in rule["operations"]
        ]
        admin = AdminClient(self.owner)
        for answer in (admin.create_acls(bindings) if bindings else {}).values():
            answer.result(REQUEST_SECONDS)


def password_of(user: str) -> str:
    """The password of a user."""
    return f"password-of-{user}"
