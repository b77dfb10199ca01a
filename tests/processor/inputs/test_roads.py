"""Foreign topics through a real Kafka and a real PostgreSQL: each format with each trust rule, and several at once."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any, cast

import psycopg
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.conftest import create_topic
from tests.processor.conftest import ACCOUNT, KEY, event_body, record
from tests.processor.inputs.foreign_records import OLD_SECRET, ROADS, SECRET, WRAP, Headers, signature
from tests.processor.processor_process import CREATED, PARTITION_UA, MakeRoad, Road, end, wait_until

OTHER_ACCOUNT = "acct_other"


class Bus:
    """Topics that others write, beside the bridge's own."""

    def __init__(self, road: Road, *roads: tuple[str, str], config: dict[str, str] | None = None, **extra: Any) -> None:
        """One topic for each (format, trust); ``extra`` goes into each table."""
        self.road = road
        self.names = [name for name, _ in roads]
        self.topics = [create_topic(road.bootstrap, prefix="bus", partitions=2, config=config) for _ in roads]
        tables: list[dict[str, Any]] = [{"topic": road.events}]
        for topic, (name, trust) in zip(self.topics, roads, strict=True):
            secrets = {"secrets": [f"endpoint-1={SECRET}"]} if trust == "stripe-signature" else {}
            tables.append({"topic": topic, "format": name, "trust": trust, **secrets, **extra})
        self.settings = {"ONCEFLOW_INPUTS": json.dumps(tables)}
        self.producer = Producer({"bootstrap.servers": road.bootstrap, "message.max.bytes": 2_000_000})

    def put(
        self,
        value: bytes | None,
        headers: Headers,
        *,
        number: int = 0,
        key: bytes | None = None,
        partition: int = PARTITION_UA,
    ) -> None:
        told = cast("list[tuple[str, str | bytes | None]]", headers)
        self.producer.produce(self.topics[number], value, key, partition=partition, headers=told)
        self.producer.poll(0)

    def publish(self, body: bytes, *, number: int = 0, key: bytes | None = None, partition: int = PARTITION_UA) -> None:
        """Put an event on a topic in its format."""
        self.put(*WRAP[self.names[number]](body), number=number, key=key, partition=partition)

    def flush(self) -> None:
        assert self.producer.flush(20) == 0

    def quarantined(self, topic: str) -> list[str]:
        query = 'SELECT code FROM onceflow.quarantine WHERE topic = %s ORDER BY partition, "offset"'
        return [row["code"] for row in self.road.rows(query, topic)]

    def passed(self) -> int:
        """How many records all positions together have passed."""
        return sum(row["next_offset"] for row in self.road.rows("SELECT next_offset FROM onceflow.progress"))


def invoice_paid(event_id: str, **extra: Any) -> bytes:
    subject = {"id": f"in_{event_id}", "object": "invoice", "amount_paid": 1}
    return event_body(event_id, "invoice.paid", subject, **{"created": CREATED, **extra})


def seen(road: Road) -> list[str]:
    return sorted(row["event_id"] for row in road.rows("SELECT event_id FROM public.seen"))


@pytest.mark.parametrize(("name", "trust"), ROADS)
def test_events_of_a_foreign_topic_take_effect_once(make_road: MakeRoad, name: str, trust: str) -> None:
    """With null keys and keys that mean nothing to us, beside the bridge's topic, over a restart."""
    road = make_road(partitions=1)
    bus = Bus(road, (name, trust))
    ids = [f"evt_a{number}" for number in range(20)]
    for number, event_id in enumerate(ids):
        bus.publish(invoice_paid(event_id), key=None if number % 2 else b"tenant-7")
    bus.flush()
    road.publish(["evt_ours"])
    with road.processor(**bus.settings) as first:
        road.wait_for_events(21)
        assert end(first) == 0
    for event_id in [*ids, "evt_late"]:
        bus.publish(invoice_paid(event_id, pending_webhooks=3))
    bus.flush()
    with road.processor(**bus.settings):
        wait_until(lambda: bus.passed() == 42, "all records are passed")
    assert seen(road) == sorted([*ids, "evt_late", "evt_ours"])
    assert set(road.states().values()) == {"processed"}
    assert road.rows("SELECT code FROM onceflow.quarantine") == []
    assert len(set(road.outcome_ids())) == 22


def test_one_event_over_all_roads_has_one_effect_and_no_false_alarm(make_road: MakeRoad) -> None:
    """The webhook, a copy of it on a bus and EventBridge say the same in other bytes, in any order."""
    road = make_road(partitions=1)
    bus = Bus(road, *ROADS)
    ours = {"evt_first", "evt_last"}
    road.publish(["evt_first"], created=CREATED)
    with road.processor(**bus.settings):
        road.wait_for_events(1)
        for number in range(len(ROADS)):
            for event_id in ("evt_first", "evt_last", f"evt_{number}"):
                bus.publish(invoice_paid(event_id), number=number)
        bus.flush()
        road.wait_for_events(2 + len(ROADS))
        road.publish(["evt_last"], created=CREATED)
        wait_until(lambda: bus.passed() == 2 + 3 * len(ROADS), "all records are passed")
    assert seen(road) == sorted({*ours, *(f"evt_{number}" for number in range(len(ROADS)))})
    assert [row["code"] for row in road.rows("SELECT code FROM onceflow.quarantine")] == []


def test_other_content_under_a_known_id_is_told(make_road: MakeRoad) -> None:
    road = make_road(partitions=1)
    bus = Bus(road, ("eventbridge", "transport"), ("stripe-json", "stripe-signature"))
    bus.publish(invoice_paid("evt_a"))
    bus.flush()
    with road.processor(**bus.settings):
        road.wait_for_events(1)
        for number in (0, 1):
            bus.publish(invoice_paid("evt_a", created=CREATED - 1), number=number)
            bus.publish(invoice_paid("evt_a", request={"id": "req_other"}), number=number)
        bus.flush()
        wait_until(lambda: bus.passed() == 5, "all records are passed")
    assert len(seen(road)) == 1
    for topic in bus.topics:
        assert bus.quarantined(topic) == ["content_conflict", "content_conflict"]


def test_an_account_is_kept_to_its_topic(make_road: MakeRoad) -> None:
    """S10: a forged event of another tenant neither takes effect nor takes the marker of the real one."""
    road = make_road(partitions=1)
    bus = Bus(road, ("stripe-json", "transport"), accounts=[ACCOUNT])
    bus.publish(invoice_paid("evt_b", account=OTHER_ACCOUNT))
    bus.publish(invoice_paid("evt_a", account=ACCOUNT))
    bus.flush()
    with road.processor(**bus.settings, ONCEFLOW_STRIPE_ACCOUNTS=OTHER_ACCOUNT):
        road.wait_for_events(1)
        wait_until(lambda: bus.passed() == 2, "both records are passed")
        assert bus.quarantined(bus.topics[0]) == ["foreign_account"]
        road.publish(["evt_b"], account=OTHER_ACCOUNT)
        road.wait_for_events(2)
    assert set(road.states().values()) == {"processed"}


def test_a_live_deployment_says_loudly_that_it_believes_a_transport(make_road: MakeRoad) -> None:
    road = make_road(partitions=1)
    bus = Bus(road, ("eventbridge", "transport"))
    bus.publish(invoice_paid("evt_a", livemode=True))
    bus.flush()
    with road.processor(**bus.settings, ONCEFLOW_STRIPE_MODE="live"):
        road.wait_for_events(1)
    assert road.states() == {"evt_a": "processed"}
    [log] = road.folder.glob("processor-*.log")
    assert "live_input_trusts_transport" in log.read_text()


def position(road: Road, bus: Bus) -> dict[str, Any]:
    """What ``progress show`` says of the first partition of the first topic."""
    done = subprocess.run(
        [sys.executable, "-m", "onceflow", "progress", "show", "--json"],
        env={**road._environment, **bus.settings},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    return next(row for row in rows if (row["topic"], row["partition"]) == (bus.topics[0], 0))


def test_aborted_records_and_gaps_of_a_foreign_producers_transactions(make_road: MakeRoad) -> None:
    """K14: aborted records have no effect, markers and gaps stop nobody, an open transaction is waited for."""
    road = make_road(partitions=1)
    bus = Bus(road, ("stripe-json", "transport"))
    feeder = Producer({"bootstrap.servers": road.bootstrap, "transactional.id": f"feeder.{road.deployment}"})
    feeder.init_transactions(20)

    def feed(*event_ids: str, commit: bool) -> None:
        feeder.begin_transaction()
        for event_id in event_ids:
            feeder.produce(bus.topics[0], invoice_paid(event_id), partition=0)
        feeder.flush(20)
        if commit:
            feeder.commit_transaction(20)
        else:
            feeder.abort_transaction(20)

    feed("evt_a", "evt_b", commit=True)
    feed("evt_aborted", "evt_c", commit=False)
    with road.processor(**bus.settings) as first:
        feed("evt_c", commit=True)
        road.wait_for_events(3)
        feed("evt_aborted2", commit=False)
        assert end(first) == 0
    feed("evt_d", commit=True)
    with road.processor(**bus.settings):
        road.wait_for_events(4)
    # Marks of transactions at the log's end are no lag, or whoever waits for none would wait for ever.
    shown = position(road, bus)
    assert (shown["lag"], shown["log_end"] > shown["next_offset"]) == (0, True)
    feed("evt_aborted3", commit=False)
    assert position(road, bus)["lag"] == 0
    feed("evt_e", commit=True)
    assert position(road, bus)["lag"] > 0
    assert set(road.states()) == {"evt_a", "evt_b", "evt_c", "evt_d"}
    assert seen(road) == ["evt_a", "evt_b", "evt_c", "evt_d"]
    assert road.stopped() == {}


def test_a_compacted_topic_with_tombstones(make_road: MakeRoad) -> None:
    """Compaction takes the record that the position names, and tombstones are kept as what they are: no event."""
    road = make_road(partitions=1)
    config = {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.001",
        "segment.ms": "100",
        "delete.retention.ms": "100",
        "max.compaction.lag.ms": "100",
    }
    bus = Bus(road, ("stripe-json", "transport"), config=config)
    for number in range(5):
        bus.publish(invoice_paid(f"evt_a{number}"), key=b"in_1")
    bus.put(None, [], key=b"in_2")
    bus.publish(invoice_paid("evt_last"), key=b"in_1")
    bus.flush()
    with road.processor(**bus.settings) as first:
        road.wait_for_events(6)
        wait_until(lambda: bus.passed() == 7, "all records are passed")
        assert end(first) == 0
    assert bus.quarantined(bus.topics[0]) == ["empty_record"]
    # A later record of the same key, in a segment of its own, makes the one before the position go.
    rolled = 0

    def compacted() -> bool:
        nonlocal rolled
        rolled += 1
        bus.publish(invoice_paid(f"evt_b{rolled}"), key=b"in_1")
        bus.flush()
        return first_offset_at(bus, 6) > 6

    # Kafka's cleaner looks for work every 15 s, in turn with the logs of other tests.
    wait_until(compacted, "the log is compacted", limit_seconds=90.0)
    with road.processor(**bus.settings):
        wait_until(lambda: f"evt_b{rolled}" in road.states(), "the last event has a state")
    assert road.stopped() == {}


def first_offset_at(bus: Bus, offset: int) -> int:
    """The offset of the first record at or after one, looked for after a moment."""
    consumer = Consumer(
        {"bootstrap.servers": bus.road.bootstrap, "group.id": "unused", "auto.offset.reset": "earliest"}
    )
    try:
        for partition in range(2):
            consumer.assign([TopicPartition(bus.topics[0], partition, offset)])
            message = consumer.poll(1.0)
            if message is not None and message.error() is None:
                found = message.offset()
                assert found is not None
                return found
        return offset
    finally:
        consumer.close()


@pytest.mark.long
def test_two_processors_are_killed_over_several_inputs(make_road: MakeRoad) -> None:
    """K6 to K9 over topics of several formats at once: partitions wander, members die, every event takes effect once."""
    road = make_road(partitions=2)
    bus = Bus(road, ("eventbridge", "transport"), ("stripe-json", "stripe-signature"))
    wanted: list[str] = []

    def feed(round_number: int) -> None:
        for number in range(40):
            event_id = f"evt_{round_number}x{number}"
            wanted.append(event_id)
            for topic in (0, 1) if number % 4 == 0 else (number % 2,):
                bus.publish(invoice_paid(event_id), number=topic)
            if number % 5 == 0:
                road.publish([event_id], created=CREATED)
        bus.flush()

    with road.processor(**bus.settings):
        for round_number in range(3):
            with road.processor(**bus.settings) as doomed:
                feed(round_number)
                road.wait_for_events(len(wanted) - 20)
                doomed.kill()
                doomed.wait(10)
        road.wait_for_events(len(wanted))
    assert seen(road) == sorted(wanted)
    assert len(road.outcome_ids()) == len(wanted)
    assert road.rows("SELECT code FROM onceflow.quarantine") == []


def test_secrets_of_an_endpoint_and_keys_of_the_bridge_are_rotated(make_road: MakeRoad) -> None:
    """While both are known both are believed; what only the old one signed is kept once it is gone, and comes back."""
    road = make_road(partitions=1)
    bus = Bus(road, ("stripe-json", "stripe-signature"))

    def settings(*secrets: str, keys: str) -> dict[str, str]:
        tables = json.loads(bus.settings["ONCEFLOW_INPUTS"])
        tables[1]["secrets"] = list(secrets)
        return {"ONCEFLOW_INPUTS": json.dumps(tables), "ONCEFLOW_ATTESTATION_KEYS": keys}

    def publish(event_id: str, secret: str) -> None:
        body = invoice_paid(event_id)
        bus.put(body, [("Stripe-Signature", signature(body, secret=secret))])
        bus.flush()

    old_key, new_key = f"{KEY.id}={KEY.secret.decode()}", "k2=" + "n" * 40
    publish("evt_old", OLD_SECRET)
    publish("evt_new", SECRET)
    road.publish(["evt_ours"])
    with road.processor(**settings(OLD_SECRET, SECRET, keys=f"{new_key},{old_key}")) as first:
        road.wait_for_events(3)
        assert end(first) == 0
    publish("evt_old_again", OLD_SECRET)
    road.publish(["evt_ours_again"])
    with road.processor(**settings(SECRET, keys=new_key)):
        wait_until(lambda: bus.passed() == 5, "all records are passed")
    assert set(road.states()) == {"evt_old", "evt_new", "evt_ours"}
    assert bus.quarantined(bus.topics[0]) == ["unauthenticated"]
    assert bus.quarantined(road.events) == ["unknown_key_id"]


def test_the_bridges_records_on_another_topic_are_not_believed(make_road: MakeRoad) -> None:
    """Row 38: an attestation is for one topic, and proves nothing on a topic that wants Stripe's signature."""
    road = make_road(partitions=1)
    bus = Bus(road, ("stripe-json", "stripe-signature"), ("cloudevents-binary", "stripe-signature"))
    tables = json.loads(bus.settings["ONCEFLOW_INPUTS"])
    mirror = create_topic(road.bootstrap, prefix="mirror", partitions=1)
    settings = {"ONCEFLOW_INPUTS": json.dumps([*tables, {"topic": mirror}])}
    made = record(invoice_paid("evt_a"), 0, topic=road.events, deployment=road.deployment)
    assert made.value is not None
    for number in range(2):
        bus.put(made.value, made.headers, number=number, key=made.key)
    bus.topics.append(mirror)
    bus.put(made.value, made.headers, number=2, key=made.key)
    bus.flush()
    with road.processor(**settings):
        wait_until(lambda: bus.passed() == 3, "all records are passed")
        assert road.states() == {}
        assert [bus.quarantined(topic) for topic in bus.topics] == [["unauthenticated"]] * 3
        road.publish(["evt_a"], created=CREATED)
        road.wait_for_events(1)
    assert seen(road) == ["evt_a"]


def test_a_start_is_refused_with_all_faults_of_the_inputs(make_road: MakeRoad) -> None:
    road = make_road(partitions=1)
    tables = [
        {"topic": road.events},
        {"topic": "a", "format": "eventbridge"},
        {"topic": "b", "format": "eventbridge", "trust": "stripe-signature"},
        {"topic": road.outcomes, "format": "stripe-json", "trust": "attested", "mode": "live"},
    ]
    with pytest.raises(AssertionError) as refused, road.processor(ONCEFLOW_INPUTS=json.dumps(tables)):
        pass
    said = str(refused.value)
    for part in (
        "inputs[2].trust",
        "inputs[3].trust",
        "inputs[3].secrets",
        "inputs[4].trust",
        "inputs[4].topic",
        "inputs[4].mode",
    ):
        assert part in said


def test_wrapped_events_wait_in_order_over_topics_and_are_redriven(make_road: MakeRoad) -> None:
    """What is about one object waits behind its head, whatever topic and key it came by; a redrive reads it unwrapped."""
    road = make_road(partitions=1)
    bus = Bus(road, ("eventbridge", "transport"), ("cloudevents-structured", "transport"))
    with psycopg.connect(road.database_url, autocommit=True) as shop:
        shop.execute("CREATE TABLE public.shut (reason text)")
        shop.execute("INSERT INTO public.shut VALUES ('holiday')")
        handlers = "tests.processor.inputs.waiting_handlers:handlers"
        with road.processor(**bus.settings, ONCEFLOW_PROCESSOR_HANDLERS=handlers):
            subject = {"id": "in_same", "object": "invoice", "amount_paid": 1}
            ids = [f"evt_{number}" for number in range(4)]
            for number, event_id in enumerate(ids):
                bus.publish(event_body(event_id, "invoice.paid", subject, created=CREATED), number=number % 2)
                bus.flush()
                road.wait_for_events(number + 1)
            keys = road.rows("SELECT DISTINCT order_key FROM onceflow.parked")
            assert [row["order_key"] for row in keys] == [f"{ACCOUNT}/in_same"]
            assert set(road.states().values()) == {"parked"}
            shop.execute("DELETE FROM public.shut")
            wait_until(lambda: set(road.states().values()) == {"processed"}, "all are redriven")
    done = road.rows("SELECT event_id FROM public.seen ORDER BY ctid")
    assert [row["event_id"] for row in done] == ids
