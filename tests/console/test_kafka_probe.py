"""librdkafka's own opinion on properties, in terms of our settings."""

from __future__ import annotations

from onceflow.kafka_probe import probe_faults
from onceflow.settings_model import KafkaSettings
from onceflow.settings_sources import Given, Origin


def faults(
    properties: dict[str, str], *, consumer: dict[str, str] | None = None, producer: dict[str, str] | None = None
) -> list[str]:
    kafka = KafkaSettings(properties=properties, consumer=consumer or {}, producer=producer or {})
    names = [
        *properties,
        *(f"consumer.{name}" for name in consumer or {}),
        *(f"producer.{name}" for name in producer or {}),
    ]
    return probe_faults(kafka, {f"kafka.{name}": Given("", Origin("flag", "f")) for name in names})


def test_good_properties_need_no_broker() -> None:
    assert faults({"bootstrap.servers": "127.0.0.1:9", "linger.ms": "5"}, consumer={"fetch.min.bytes": "1"}) == []


def test_each_bad_property_is_named() -> None:
    found = faults(
        {"sasl.pasword": "CANARY", "zzz": "1"}, consumer={"fetch.min.bytes": "-1"}, producer={"compression.type": "rar"}
    )
    assert found[0] == "kafka.sasl.pasword (flag f): is not a property of librdkafka; did you mean sasl.password?"
    assert found[1] == "kafka.zzz (flag f): is not a property of librdkafka"
    assert found[2].startswith("kafka.consumer.fetch.min.bytes (flag f): ")
    assert 'Invalid value "rar"' in found[3]
    assert "CANARY" not in str(found)


def test_a_combination_that_cannot_work_is_told_once() -> None:
    (fault,) = faults({"security.protocol": "sasl_ssl", "sasl.mechanism": "SCRAM-SHA-512"})
    assert fault == "[kafka]: sasl.username and sasl.password must be set"
    (missing,) = faults({"security.protocol": "ssl", "ssl.ca.location": "/does/not/exist"})
    assert "ssl.ca.location failed" in missing
