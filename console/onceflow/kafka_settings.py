"""The Kafka properties of the settings: names, files, and the ones that may not be set.

Rule: everything that librdkafka knows passes through, except what would break a promise: those are refused with
one line why.  Names that only Java knows are answered with the name that librdkafka has.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Any

ROLES = ("consumer", "producer")

_UNSAFE: Mapping[str, tuple[tuple[str, ...], str]] = {
    "acks": (("all", "-1"), "a record that one broker confirmed is lost with that broker"),
    "request.required.acks": (("all", "-1"), "a record that one broker confirmed is lost with that broker"),
    "enable.idempotence": (("true",), "retries of the client would double or reorder records"),
    "enable.auto.commit": (("false",), "offsets would pass records that no transaction has taken"),
    "auto.commit.enable": (("false",), "offsets would pass records that no transaction has taken"),
    "enable.auto.offset.store": (("false",), "offsets would pass records that no transaction has taken"),
    "auto.offset.reset": (("error",), "a lost position would be skipped over in silence"),
    "isolation.level": (("read_committed",), "records of aborted transactions would be read"),
    "partitioner": (("murmur2_random",), "keys would land on other partitions than those of Java producers"),
    "partition.assignment.strategy": (
        ("cooperative-sticky",),
        "every partition would stop at each change of the members",
    ),
    "allow.auto.create.topics": (("false",), "a mistyped topic would be made instead of reported"),
}
"""The values that are allowed (ours), and what any other one would break."""

_OURS: Mapping[str, str] = {
    "group.id": "it is onceflow.<deployment.id>.<part>, so that two deployments never share a position",
    "group.protocol": "use the setting processor.group_protocol",
    "transactional.id": "it is onceflow.<deployment.id>.relay.<topic>, so that a new relay fences the old one",
    "message.timeout.ms": "it follows from bridge.answer_deadline_seconds",
    "delivery.timeout.ms": "it follows from bridge.answer_deadline_seconds",
    "message.max.bytes": "it follows from bridge.body_bytes_max and topics.message_bytes_max",
    "batch.size": "it follows from bridge.body_bytes_max and topics.message_bytes_max",
}

_JAVA: Mapping[str, str] = {
    "sasl.jaas.config": "sasl.username and sasl.password, with sasl.mechanism",
    "sasl.client.callback.handler.class": "sasl.mechanism = OAUTHBEARER with sasl.oauthbearer.method = oidc",
    "sasl.login.callback.handler.class": "sasl.mechanism = OAUTHBEARER with sasl.oauthbearer.method = oidc",
    "sasl.login.class": "sasl.mechanism",
    "ssl.truststore.location": "ssl.ca.location (a PEM file)",
    "ssl.truststore.password": "nothing: ssl.ca.location is a PEM file without password",
    "ssl.truststore.type": "nothing: ssl.ca.location is a PEM file",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.type": "nothing: ssl.keystore.location is PKCS#12; for PEM use ssl.certificate.location and ssl.key.location",
    "ssl.keystore.key": "ssl.key.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.enabled.protocols": "nothing: the newest common version is taken",
    "ssl.protocol": "nothing: the newest common version is taken",
    "key.serializer": "nothing: onceflow writes the bytes itself",
    "value.serializer": "nothing: onceflow writes the bytes itself",
    "key.deserializer": "nothing: onceflow reads the bytes itself",
    "value.deserializer": "nothing: onceflow reads the bytes itself",
    "partitioner.class": "partitioner",
    "max.poll.records": "processor.batch_records_max (a setting of ours)",
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "max.request.size": "topics.message_bytes_max (a setting of ours)",
    "buffer.memory": "queue.buffering.max.kbytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "request.timeout.ms": "socket.timeout.ms",
    "default.api.timeout.ms": "socket.timeout.ms",
    "interceptor.classes": "nothing: the client has no interceptors",
    "metric.reporters": "statistics.interval.ms; metrics are served by onceflow itself",
    "auto.include.jmx.reporter": "nothing: metrics are served by onceflow itself",
    "security.providers": "nothing: OpenSSL does the work",
    "exclude.internal.topics": "nothing: topics are named one by one",
}

_SECRET = re.compile(r"password|secret|key\.pem|oauthbearer\.config|jaas|private|token(?!\.endpoint)")

_FREQUENT = """
    bootstrap.servers client.id client.rack client.dns.lookup security.protocol sasl.mechanism sasl.mechanisms
    sasl.username sasl.password sasl.kerberos.service.name sasl.kerberos.principal sasl.kerberos.keytab
    sasl.oauthbearer.config sasl.oauthbearer.method sasl.oauthbearer.client.id sasl.oauthbearer.client.secret
    sasl.oauthbearer.scope sasl.oauthbearer.extensions sasl.oauthbearer.token.endpoint.url ssl.ca.location ssl.ca.pem
    ssl.certificate.location ssl.certificate.pem ssl.key.location ssl.key.password ssl.key.pem ssl.keystore.location
    ssl.keystore.password ssl.cipher.suites ssl.endpoint.identification.algorithm enable.ssl.certificate.verification
    socket.timeout.ms socket.keepalive.enable socket.nagle.disable socket.connection.setup.timeout.ms
    reconnect.backoff.ms reconnect.backoff.max.ms retry.backoff.ms metadata.max.age.ms broker.address.family
    topic.metadata.refresh.interval.ms api.version.request statistics.interval.ms log_level debug linger.ms
    compression.type compression.codec compression.level queue.buffering.max.messages queue.buffering.max.kbytes
    max.in.flight.requests.per.connection retries transaction.timeout.ms fetch.min.bytes fetch.wait.max.ms
    fetch.max.bytes max.partition.fetch.bytes queued.min.messages queued.max.messages.kbytes group.protocol
    group.instance.id group.remote.assignor session.timeout.ms heartbeat.interval.ms max.poll.interval.ms
    partition.assignment.strategy check.crcs
"""
"""Only for "did you mean"; librdkafka itself decides what exists."""

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def is_secret_property(name: str) -> bool:
    """Say whether a property's value must never be shown."""
    return _SECRET.search(name) is not None


def property_name(variable_rest: str) -> str:
    """Return the property that ``ONCEFLOW_KAFKA_<variable_rest>`` means: ``_`` is a dot, ``__`` an underscore."""
    return "_".join(part.replace("_", ".") for part in variable_rest.split("__")).lower()


def variable_rest(name: str) -> str:
    """Return the reverse of ``property_name``."""
    return name.replace("_", "__").replace(".", "_").upper()


def property_text(value: Any) -> str | None:
    """Return the value as librdkafka reads it; None for a list or table, which no property has."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value).strip() if isinstance(value, str | int | float) else None


def property_fault(name: str, value: str) -> str | None:
    """Return why this property may not be set so, as the end of a sentence that begins with its name."""
    bare = name.removeprefix("consumer.").removeprefix("producer.")
    unsafe = _UNSAFE.get(bare)
    if unsafe is not None and value.lower() not in unsafe[0]:
        return f"must stay {unsafe[0][0]}: {unsafe[1]}"
    if bare in _OURS:
        return f"is set by onceflow itself: {_OURS[bare]}"
    if bare in _JAVA:
        answer = _JAVA[bare]
        lead = "drop it, it needs " if answer.startswith("nothing") else "use "
        return f"is a name that only Java clients know; {lead}{answer}"
    return None


def likely_property(name: str) -> str | None:
    """Return a known property that looks like this unknown one."""
    found = difflib.get_close_matches(
        name.removeprefix("consumer.").removeprefix("producer."), _FREQUENT.split(), n=1, cutoff=0.7
    )
    return found[0] if found else None


def flat_properties(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return dotted names: TOML reads ``bootstrap.servers = 1`` without quotes as a table in a table."""
    flat: dict[str, Any] = {}
    for name, value in table.items():
        if isinstance(value, Mapping):
            flat |= flat_properties(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat


def read_properties(text: str) -> dict[str, str]:
    """Read a file in the form of ``java.util.Properties``, as Kafka's own tools take it with ``--command-config``.

    Comments begin with ``#`` or ``!``; a line that ends in an odd number of backslashes goes on in the next one;
    name and value are parted by the first ``=``, ``:`` or white space that no backslash precedes.
    """
    properties: dict[str, str] = {}
    lines = iter(text.splitlines())
    for first in lines:
        line = first.lstrip()
        if not line or line[0] in "#!":
            continue
        while _goes_on(line):
            line = line[:-1] + next(lines, "").lstrip()
        name, value = _parted(line)
        properties[_unescaped(name)] = _unescaped(value)
    return properties


def _goes_on(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _parted(line: str) -> tuple[str, str]:
    match = re.match(r"((?:\\.|[^\\=:\s])*)\s*[=:]?\s*(.*)", line, re.DOTALL)
    assert match is not None, "every line matches"
    return match[1], match[2]


def _unescaped(text: str) -> str:
    def character(match: re.Match[str]) -> str:
        code = match[1]
        if len(code) > 1:
            return chr(int(code[1:], 16))
        return _ESCAPES.get(code, code)

    return re.sub(r"\\(u[0-9a-fA-F]{4}|.)", character, text, flags=re.DOTALL).rstrip()
