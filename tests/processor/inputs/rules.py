"""Admission of foreign records in the tests: the rules of an input, and a record on its topic."""

from __future__ import annotations

import dataclasses
import json
from datetime import UTC, datetime
from typing import Any

from onceflow_processor.admission import Item, Rules, admit
from onceflow_processor.inputs.input_topic import Format, InputTopic, Trust
from onceflow_processor.records import Partition, Record
from onceflow_producer.endpoint_secrets import parse_secrets
from tests.processor.conftest import ACCOUNT, RULES, event_body
from tests.processor.inputs.foreign_records import OLD_SECRET, SECRET, WRAP, Headers

NOW = datetime(2026, 1, 2, tzinfo=UTC)
TOPIC = "shop.stripe"
INVOICE: dict[str, Any] = {"id": "in_1", "object": "invoice", "amount_paid": 5}
BODY = event_body("evt_1", "invoice.paid", INVOICE)


def given(name: str = "stripe-json", trust: str = "transport", **changes: Any) -> InputTopic:
    """An input of the test deployment."""
    format_: Format = name  # type: ignore[assignment]
    believed: Trust = trust  # type: ignore[assignment]
    secrets = parse_secrets(f"endpoint-1={SECRET},old={OLD_SECRET}") if trust == "stripe-signature" else ()
    made = InputTopic(
        topic=TOPIC, format=format_, trust=believed, key="object", default_account=ACCOUNT, secrets=secrets
    )
    return dataclasses.replace(made, **changes)


def rules_of(*inputs: InputTopic, **changes: Any) -> Rules:
    return dataclasses.replace(RULES, inputs={one.topic: one for one in inputs}, **changes)


def record(
    value: bytes | None,
    headers: Headers | None = None,
    *,
    key: bytes | None = None,
    **changes: Any,
) -> Record:
    made = Record(Partition(TOPIC, 0), 7, 1_700_000_000_000, key, value, headers or [], 1)
    return dataclasses.replace(made, **changes)


def take(
    body: bytes = BODY,
    name: str = "stripe-json",
    trust: str = "transport",
    *,
    rules: Rules | None = None,
    **changes: Any,
) -> Item:
    """Admit a body that is wrapped as the format wraps it."""
    wrapped = WRAP[name](body)
    return admit(record(*wrapped), rules=rules or rules_of(given(name, trust, **changes)), now=NOW)


def code_of(item: Item) -> str | None:
    return None if item.fault is None else item.fault.code


def changed(body: bytes = BODY, **changes: Any) -> bytes:
    """The body with other members; None takes one away."""
    event = {**json.loads(body), **changes}
    return json.dumps({name: value for name, value in event.items() if value is not ...}).encode()
