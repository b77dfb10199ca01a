"""Rules between settings, and the form of every fault."""

from __future__ import annotations

import pytest

from onceflow.settings import SettingSources, read_settings


def faults(**flags: object) -> list[str]:
    given = {name.replace("__", "."): ("--set", value) for name, value in flags.items()}
    return list(read_settings(SettingSources(flags=given), environment={"ONCEFLOW_CONFIG": "/dev/null"}).faults)


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        ({"topics__retention_days": 7}, "topics.retention_days is 7, shorter than processor.horizon_days = 35"),
        ({"processor__horizon_days": 90}, "a good value is 90"),
        ({"bridge__body_bytes_max": 1_048_588}, "a good value is 1040396"),
        ({"topics__outcomes": "stripe.events.v1"}, "which is an event topic too"),
        ({"topics__dead_letters": "stripe.events.v1"}, "dead letters need a topic of their own"),
        ({"topics__dead_letters": "stripe.outcomes.v1"}, "dead letters need a topic of their own"),
        ({"topics__events": "a,b,a"}, "names a topic twice"),
        (
            {"processor__retry_wait_seconds_min": 60, "processor__retry_wait_seconds_max": 10},
            "processor.retry_wait_seconds_min is 60, more than processor.retry_wait_seconds_max = 10",
        ),
        ({"topics__replication_factor": 2, "topics__min_insync_replicas": 3}, "nothing could ever be written"),
        ({"bridge__read_deadline_seconds": 8}, "nothing would be left for Kafka"),
        ({"relay__lease_ttl_seconds": 2, "relay__poll_seconds": 1}, "would run out between two looks"),
        (
            {"attestation__keys": [{"id": "a", "secret": "s" * 43, "retired_at": "2020-01-01T00:00:00Z"}]},
            "no key is in its lifetime",
        ),
    ],
)
def test_what_does_not_fit_together(flags: dict[str, object], text: str) -> None:
    (fault,) = faults(**flags)
    assert text in fault


def test_a_rule_is_silent_where_one_of_its_settings_is_wrong_by_itself() -> None:
    found = faults(topics__retention_days="x", processor__horizon_days=90)
    assert [fault.split(" ")[0] for fault in found] == ["topics.retention_days"]


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("bridge.port", 65_536, "less than or equal to 65535"),
        ("bridge.tolerance_seconds", -5, "greater than 0"),
        ("bridge.answer_deadline_seconds", 30, "less than or equal to 9.5"),
        ("relay.poll_seconds", "inf", "finite"),
        ("relay.batch_records_max", 0, "greater than or equal to 1"),
        ("deployment.id", "Ümlaut", "match pattern"),
        ("stripe.account", "acct", "is not acct_ and letters"),
        ("stripe.mode", "life", "'test' or 'live'"),
        ("stripe.api_key", "pk_test_1", "is not an API key"),
        ("topics.events", "a b", "match pattern"),
        ("topics.events", [], "at least 1 item"),
        ("processor.start", "yesterday", "neither earliest nor an RFC 3339 time"),
        ("processor.start", "2026-01-01T00:00:00", "with its zone"),
        ("processor.handlers", "shop", "module:attribute"),
        ("database.prepared", "perhaps", "valid boolean"),
        ("stripe.webhook_secret", ["whsec_A"], "one text"),
        ("kafka.acks", "0", "must stay all"),
        ("kafka.retries", [1], "must be a text, a number or true or false"),
    ],
)
def test_a_value_that_cannot_be_used(name: str, value: object, text: str) -> None:
    (fault,) = faults(**{name.replace(".", "__"): value})
    assert fault.startswith(name)
    assert "(flag --set)" in fault
    assert text in fault


def test_times_and_lists_are_read_as_people_write_them() -> None:
    sources = SettingSources(
        flags={
            "processor.start": ("--set", "2026-01-02T03:04:05+02:00"),
            "stripe.accounts": ("--set", "acct_A, acct_B"),
        }
    )
    settings = read_settings(sources, environment={}).settings
    assert settings.processor.start == "2026-01-02T01:04:05.000000Z"
    assert settings.stripe.accounts == ("acct_A", "acct_B")
