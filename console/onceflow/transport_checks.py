"""Whether what leaves this machine is encrypted: values in, faults out.

Rule: a production service refuses a connection that anybody on the way could read, unless it stays on this machine.
Which server it is, is the certificates' to prove; ``prefer``, libpq's default, is left to the server.  Pure.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit

from onceflow.settings_model import KafkaSettings

_PLAIN_PROTOCOLS = ("PLAINTEXT", "SASL_PLAINTEXT")
_PLAIN_MODES = ("disable", "allow")
_WAY_OUT = "or set deployment.profile to dev where nothing is at stake"


def broker_faults(kafka: KafkaSettings) -> list[str]:
    """Return what is wrong with the way to the brokers, for consumers and producers apart where they differ."""
    faults = []
    for properties in (kafka.for_producer(), kafka.for_consumer()):
        protocol = str(properties.get("security.protocol", "PLAINTEXT")).upper()
        hosts = [_host_of(broker) for broker in str(properties.get("bootstrap.servers", "")).split(",") if broker]
        away = [host for host in hosts if not is_local(host)]
        if protocol in _PLAIN_PROTOCOLS and away:
            faults.append(
                f"kafka.security.protocol is {protocol} and {away[0]} is not this machine: everybody on the way could "
                f"read and change events; a good value is SASL_SSL, {_WAY_OUT}"
            )
    return list(dict.fromkeys(faults))


def database_faults(address: Mapping[str, object], *, environment: Mapping[str, str]) -> list[str]:
    """Return what is wrong with the way to the database.

    Args:
        address: what libpq reads in ``database.url``.
        environment: for libpq's own variables, which stand in where the address says nothing.
    """
    mode = str(address.get("sslmode") or environment.get("PGSSLMODE") or "prefer")
    named = address.get("host") or address.get("hostaddr") or environment.get("PGHOST") or environment.get("PGHOSTADDR")
    away = [host for host in str(named or "").split(",") if not is_local(host)]
    if mode not in _PLAIN_MODES or not away:
        return []
    where = f"database.url has sslmode={mode} and {away[0]} is not this machine"
    return [f"{where}: everybody on the way could read the ledger; a good value is sslmode=verify-full, {_WAY_OUT}"]


def call_faults(*, api_base: str, mail_host: str | None, mail_security: str) -> list[str]:
    """Return what is wrong with the way of calls to Stripe and of mail."""
    faults = []
    address = urlsplit(api_base)
    if address.scheme != "https" and not is_local(address.hostname or ""):
        faults.append(
            f"stripe.api_base is {api_base} and {address.hostname} is not this machine: everybody on the way could read the "
            f"API key; a good value is https://api.stripe.com, {_WAY_OUT}"
        )
    if mail_host is not None and mail_security == "none" and not is_local(mail_host):
        faults.append(
            f"mail.security is none and {mail_host} is not this machine: everybody on the way could read mail and password; "
            f"a good value is tls, {_WAY_OUT}"
        )
    return faults


def is_local(host: str) -> bool:
    """Say whether a host is surely this machine: no name, a socket's folder, ``localhost`` or a loopback address."""
    if host == "" or host.startswith(("/", "@")) or host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _host_of(broker: str) -> str:
    """Return the host of ``[protocol://]host[:port]``."""
    address = broker.strip().rpartition("://")[2]
    if address.startswith("["):
        return address[1:].partition("]")[0]
    return address if address.count(":") > 1 else address.partition(":")[0]
