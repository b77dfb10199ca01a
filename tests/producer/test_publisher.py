"""Publishing over a real broker, and with producers that fail."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from onceflow_producer.broker_watch import BrokerWatch
from onceflow_producer.metrics import BridgeMetrics
from onceflow_producer.publisher import Acknowledged, NotPublished, Publisher
from onceflow_schemas.event_record import OutgoingRecord
from onceflow_schemas.identity import Identity
from tests.conftest import create_topic
from tests.producer.fatal_error import make_fatal
from tests.producer.own_broker import own_broker

RENEWED_TRIES_MAX = 100

WAIT_SECONDS = 45.0


def record(value: bytes = b"x") -> OutgoingRecord:
    return OutgoingRecord(key=b"k", value=value, headers=[("a", b"b")], identity=Identity("acct_1", "test", "evt_1"))


async def until(what: Callable[[], object]) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while not what():  # noqa: ASYNC110 - what is waited for changes in other threads
            await asyncio.sleep(0.01)


def with_publisher(
    kafka: dict[str, object],
    topic: str,
    *,
    use: Callable[[Publisher, BrokerWatch, BridgeMetrics], Awaitable[None]],
    in_flight_max: int = 100,
    body_bytes_max: int = 1_000_000,
) -> None:
    async def run() -> None:
        metrics = BridgeMetrics()
        watch = BrokerWatch(
            kafka, topic=topic, body_bytes_max=body_bytes_max, message_timeout_ms=3_000, metrics=metrics
        )
        publisher = Publisher(watch, topic=topic, metrics=metrics, in_flight_max=in_flight_max)
        watch.start()
        try:
            await until(lambda: watch.closed is None)
            await use(publisher, watch, metrics)
        finally:
            await publisher.close(within_seconds=2.0)

    asyncio.run(run())


async def published(publisher: Publisher, value: bytes = b"x", *, seconds: float = 5.0) -> Acknowledged | NotPublished:
    pending = publisher.publish(record(value), deadline=asyncio.get_running_loop().time() + seconds)
    return pending if isinstance(pending, NotPublished) else await pending


def test_many_at_once_are_all_acknowledged(kafka_bootstrap: str, topic: str) -> None:
    async def use(publisher: Publisher, _watch: BrokerWatch, metrics: BridgeMetrics) -> None:
        found = await asyncio.gather(*(published(publisher) for _ in range(100)))
        assert all(isinstance(one, Acknowledged) for one in found)
        assert len(set(found)) == 100
        assert publisher.in_flight == 0
        assert metrics.registry.get_sample_value("onceflow_bridge_publish_seconds_count") == 100

    with_publisher({"bootstrap.servers": kafka_bootstrap}, topic, use=use)


def test_before_the_first_proof_nothing_is_tried(kafka_bootstrap: str, topic: str) -> None:
    async def run() -> None:
        kafka: dict[str, object] = {"bootstrap.servers": kafka_bootstrap}
        metrics = BridgeMetrics()
        watch = BrokerWatch(kafka, topic=topic, body_bytes_max=1, message_timeout_ms=1_000, metrics=metrics)
        publisher = Publisher(watch, topic=topic, metrics=metrics)
        found = await published(publisher)
        assert isinstance(found, NotPublished)
        assert found.code == "broker_unavailable"
        await publisher.close(within_seconds=1.0)

    asyncio.run(run())


def test_more_in_flight_than_allowed_are_refused_at_once(kafka_bootstrap: str, topic: str) -> None:
    async def use(publisher: Publisher, _watch: BrokerWatch, _metrics: BridgeMetrics) -> None:
        found = await asyncio.gather(*(published(publisher) for _ in range(10)))
        assert [one.code for one in found if isinstance(one, NotPublished)] == ["queue_full"] * 7

    with_publisher({"bootstrap.servers": kafka_bootstrap}, topic, use=use, in_flight_max=3)


def test_a_full_queue_of_the_client_is_refused_at_once(kafka_bootstrap: str, topic: str) -> None:
    async def use(publisher: Publisher, _watch: BrokerWatch, _metrics: BridgeMetrics) -> None:
        found = await asyncio.gather(*(published(publisher) for _ in range(10)))
        assert [one.code for one in found if isinstance(one, NotPublished)] == ["queue_full"] * 8

    kafka: dict[str, object] = {
        "bootstrap.servers": kafka_bootstrap,
        "queue.buffering.max.messages": 2,
        "linger.ms": 200,
    }
    with_publisher(kafka, topic, use=use)


def test_a_record_beyond_the_limit_is_refused_at_once(kafka_bootstrap: str, topic: str) -> None:
    async def use(publisher: Publisher, watch: BrokerWatch, _metrics: BridgeMetrics) -> None:
        found = await published(publisher, b"x" * 60_000)
        assert isinstance(found, NotPublished)
        assert found.code == "record_too_large"
        assert isinstance(await published(publisher, b"x" * 50_000), Acknowledged)
        assert watch.limits.smallest == "body"

    with_publisher({"bootstrap.servers": kafka_bootstrap}, topic, use=use, body_bytes_max=50_000)


def test_limit_that_was_raised_is_known_after_the_next_refusal(kafka_bootstrap: str) -> None:
    topic = create_topic(kafka_bootstrap, config={"max.message.bytes": "50000"})
    client = AdminClient({"bootstrap.servers": kafka_bootstrap})

    async def use(publisher: Publisher, watch: BrokerWatch, _metrics: BridgeMetrics) -> None:
        await until(lambda: watch.limits.topic == 50_000)
        raised = ConfigEntry("max.message.bytes", "100000", incremental_operation=AlterConfigOpType.SET)
        change = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[raised])
        client.incremental_alter_configs([change])[change].result(20)
        refused = await published(publisher, b"x" * 60_000)
        assert isinstance(refused, NotPublished)
        assert refused.code == "record_too_large"
        await until(lambda: watch.limits.topic == 100_000)
        for _ in range(RENEWED_TRIES_MAX):
            # The producer with the new limit comes a moment after it.
            if isinstance(await published(publisher, b"x" * 60_000), Acknowledged):
                return
            await asyncio.sleep(0.1)
        raise AssertionError("the larger record was never taken")

    with_publisher({"bootstrap.servers": kafka_bootstrap}, topic, use=use)


def test_the_batch_of_a_record_too_large_is_no_fault_of_its_neighbours(kafka_bootstrap: str) -> None:
    topic = create_topic(kafka_bootstrap, config={"max.message.bytes": "50000"})

    async def use(publisher: Publisher, watch: BrokerWatch, _metrics: BridgeMetrics) -> None:
        await until(lambda: watch.limits.topic == 50_000)
        assert watch.size_refused(50_001) is True
        assert watch.size_refused(50_000) is False
        assert isinstance(await published(publisher, b"x" * 40_000), Acknowledged)

    with_publisher({"bootstrap.servers": kafka_bootstrap}, topic, use=use)


def test_a_producer_that_failed_for_good_is_replaced_and_its_records_are_answered(
    kafka_bootstrap: str, topic: str
) -> None:
    async def use(publisher: Publisher, watch: BrokerWatch, metrics: BridgeMetrics) -> None:
        assert isinstance(await published(publisher), Acknowledged)
        failed = watch.producer
        waiting = [asyncio.create_task(published(publisher)) for _ in range(20)]
        await asyncio.sleep(0)
        make_fatal(failed._producer)
        found = await asyncio.gather(*waiting)
        assert {one.code for one in found if isinstance(one, NotPublished)} == {"broker_unavailable"}
        assert {type(one) for one in found} == {NotPublished}
        await until(lambda: watch.producer is not failed and watch.closed is None)
        assert isinstance(await published(publisher), Acknowledged)
        assert metrics.registry.get_sample_value("onceflow_bridge_producer_renewals_total") == 1
        assert publisher.in_flight == 0

    with_publisher({"bootstrap.servers": kafka_bootstrap, "linger.ms": 500}, topic, use=use)


def test_a_failed_producer_closes_the_road_at_once(kafka_bootstrap: str, topic: str) -> None:
    async def use(publisher: Publisher, watch: BrokerWatch, _metrics: BridgeMetrics) -> None:
        make_fatal(watch.producer._producer)
        found = await published(publisher)
        assert isinstance(found, NotPublished)
        assert found.code == "broker_unavailable"
        await until(lambda: watch.closed is None)
        assert isinstance(await published(publisher), Acknowledged)

    with_publisher({"bootstrap.servers": kafka_bootstrap}, topic, use=use)


def test_by_the_deadline_there_is_an_answer_and_a_late_report_is_counted(tmp_path: Path, cache_dir: Path) -> None:
    with own_broker(tmp_path, cache_dir=cache_dir) as broker:

        async def use(publisher: Publisher, _watch: BrokerWatch, metrics: BridgeMetrics) -> None:
            loop = asyncio.get_running_loop()
            started = loop.time()
            with broker.paused():
                found = await published(publisher, seconds=1.0)
            assert isinstance(found, NotPublished)
            assert found.code == "broker_timeout"
            assert 1.0 <= loop.time() - started < 2.0
            late = "onceflow_bridge_late_reports_total"
            await until(lambda: metrics.registry.get_sample_value(late) == 1 or publisher.in_flight)

        with_publisher({"bootstrap.servers": broker.bootstrap}, create_topic(broker.bootstrap), use=use)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (KafkaError._AUTHENTICATION, "broker_refused"),
        (KafkaError._SSL, "broker_refused"),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, "broker_refused"),
    ],
)
def test_what_the_client_says_becomes_a_visible_reason_and_heals(
    kafka_bootstrap: str, topic: str, *, error: int, code: str
) -> None:
    async def use(publisher: Publisher, watch: BrokerWatch, _metrics: BridgeMetrics) -> None:
        watch.note_client_error(KafkaError(error))
        assert code in [reason.code for reason in watch.reasons]
        assert isinstance(await published(publisher), Acknowledged)
        await until(lambda: not watch.reasons)

    with_publisher({"bootstrap.servers": kafka_bootstrap}, topic, use=use)
