"""K12 to K14: what strangers put on the event topic.

Rule: only what the bridge attested is believed; everything else is kept apart and never touches the markers, and the
road goes on behind it.
"""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from confluent_kafka import Producer

from onceflow.attestation_settings import parse_keys
from onceflow_schemas.envelope import read_envelope
from onceflow_schemas.event_record import OutgoingRecord, build_event
from tests.chaos.fault import fault, fired
from tests.chaos.sending import body_of, event, note_sent, plant, produce_all
from tests.chaos.waits import wait_processed
from tests.chaos.world import World
from tests.checker.topics import read_topic

PARTITIONS = 6
COPIES = 40
YEARS_DAYS = 800
UNTRUSTED = {"unauthenticated"}


def attested(
    world: World, body: bytes, *, received_at: datetime | None = None, topic: str | None = None
) -> OutgoingRecord:
    """Return the record as the bridge itself would write it, at another time or for another topic."""
    assert world.identity is not None
    [key] = parse_keys(f"local={world.identity.attestation_secret}")
    return build_event(
        body,
        envelope=read_envelope(body),
        default_account="acct_embedded",
        default_mode="test",
        received_at=received_at or datetime.now(UTC),
        endpoint="local",
        source="webhook",
        deployment=world.identity.deployment,
        topic=topic or world.topics.events[0],
        key=key,
        traceparent=None,
    )


def record_of(made: OutgoingRecord, **changes: Any) -> dict[str, Any]:
    """Return the arguments of ``Producer.produce``."""
    return {"key": made.key, "value": made.value, "headers": list(made.headers)} | changes


@fault("K12/copies", "records of the bridge copied by another bus, out of order, to any partition", soak="planted")
def copies(world: World, dice: Random) -> str:
    """An attested copy is the event itself: a duplicate, wherever it lands."""
    world.load.wait_for_answers(COPIES)
    wait_processed(world, 5)
    records = list(read_topic(world.bootstrap, world.topics.events[0], isolation="read_committed"))
    known = [record for record in records if (record.partition(), record.offset()) not in world.planted]
    chosen = dice.sample(known, min(COPIES, len(known)))
    producer = Producer({"bootstrap.servers": world.bootstrap})
    again = [
        {
            "key": record.key(),
            "value": record.value(),
            "headers": record.headers(),
            "partition": dice.choice([record.partition(), dice.randrange(PARTITIONS)]),
        }
        for record in chosen
        if _is_attested(record.headers())
    ]
    placed = produce_all(producer, world.topics.events[0], again)
    wait_processed(world)
    return fired(placed, f"{len(placed)} copies out of order, some on other partitions")


def _is_attested(headers: Any) -> bool:
    return any(name == "onceflow_attestation" for name, _ in headers or [])


@fault("K12/strange", "tombstones, garbage, wrong topic, years old, from the future", soak="planted")
def strange(world: World, dice: Random) -> str:
    """Each is kept with its code; the ones behind them go on."""
    old, elsewhere = body_of(event()), body_of(event())
    past = datetime.now(UTC) - timedelta(days=YEARS_DAYS)
    note_sent(world, old)
    note_sent(world, elsewhere)
    partition = dice.randrange(PARTITIONS)
    planted = [
        plant(world, {"empty_record"}, value=None, key=b"k", partition=partition),
        plant(world, {"empty_record"}, value=b"", key=b"k", partition=partition),
        plant(world, UNTRUSTED, value=b"\x00Avro\xff" * 100, key=None, partition=partition),
        plant(world, UNTRUSTED, value=b'{"id": "evt_cut', key=b"k", partition=partition),
        plant(world, UNTRUSTED, value=b"{}", key=b"k", timestamp=1, partition=partition),
        plant(world, {"too_many_headers"}, value=b"{}", key=b"k", headers=[("h", b"v")] * 10_000, partition=partition),
        plant(world, {"too_old"}, **record_of(attested(world, old, received_at=past))),
        plant(world, UNTRUSTED, **record_of(attested(world, elsewhere, topic="another.topic"))),
    ]
    wait_processed(world)
    return fired(len(planted), f"{len(planted)} records on partition {partition} and others")


@fault("K13", "forged records of someone with write access", soak="planted")
def forged(world: World, dice: Random) -> str:
    """No attestation, a guessed one, one of another event, one whose body was changed, one of another deployment."""
    good = attested(world, body_of(event()))
    other = attested(world, body_of(event()))
    names = dict(good.headers)
    key_id = names["onceflow_attestation"].split()[1].decode()
    guessed = f"v1 {key_id} {base64.urlsafe_b64encode(bytes(32)).decode().rstrip('=')}".encode()
    unknown = f"v1 nobody {base64.urlsafe_b64encode(bytes(32)).decode().rstrip('=')}".encode()

    def with_header(name: str, value: bytes) -> list[tuple[str, bytes]]:
        return [(key, value if key == name else text) for key, text in good.headers]

    changed = json.loads(good.value)
    changed["data"]["object"]["amount"] = 1
    bare = [(name, value) for name, value in good.headers if name != "onceflow_attestation"]
    forgeries: list[tuple[set[str], dict[str, Any]]] = [
        (UNTRUSTED, record_of(good, headers=bare)),
        (UNTRUSTED, record_of(good, headers=with_header("onceflow_attestation", guessed))),
        ({"unknown_key_id"}, record_of(good, headers=with_header("onceflow_attestation", unknown))),
        (UNTRUSTED, record_of(good, headers=list(other.headers))),
        (UNTRUSTED, record_of(good, value=body_of(changed))),
        (UNTRUSTED, record_of(good, headers=with_header("ce_id", b"evt_somebodyElse"))),
        (UNTRUSTED, record_of(good, headers=with_header("ce_type", b"com.stripe.charge.refunded"))),
        ({"bad_key"}, record_of(good, key=b"acct_embedded/pi_somebodyElse")),
        ({"bad_headers"} | UNTRUSTED, record_of(good, headers=[*good.headers, good.headers[0]])),
    ]
    for codes, record in forgeries:
        plant(world, codes, **record)
    wait_processed(world)
    return f"{len(forgeries)} forgeries, none may touch a marker"


@fault("K14", "transactions on the event topic: markers, aborted records, gaps", soak="planted")
def transactional_feeder(world: World, dice: Random) -> str:
    """Offsets are not dense: control records stand between, and aborted records are never seen."""
    feeder = Producer({"bootstrap.servers": world.bootstrap, "transactional.id": f"chaos-feeder-{dice.random()}"})
    feeder.init_transactions(20)
    aborted = committed = 0
    for number in range(6):
        feeder.begin_transaction()
        body = body_of(event())
        made = [record_of(attested(world, body), partition=partition) for partition in range(PARTITIONS)]
        placed = produce_all(feeder, world.topics.events[0], made)
        if number % 2:
            feeder.abort_transaction(20)
            aborted += len(placed)
        else:
            note_sent(world, body)
            feeder.commit_transaction(20)
            committed += len(placed)
    wait_processed(world)
    return f"{committed} records committed (6 copies of 3 events), {aborted} aborted, {6 * PARTITIONS} markers between"
