"""Bad bodies, bad handlers, strangers' records and a hanging transaction among good traffic: the good goes on.

What each bad thing ends as is tried one by one in tests/bad_input; here all of them come at once, under load, and the
checker judges that nothing else was touched.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Any, LiteralString

import psycopg
import pytest
from confluent_kafka import Message, Producer

from onceflow.demo.delivery import Attempt
from onceflow.demo.traffic import Request
from onceflow.settings import process_environment
from tests.chaos.sending import body_of, event
from tests.checker.waiting import wait_for
from tests.load.rig import Rig
from tests.load.steady_load import SteadyLoad, delivery_of

FLUSH_SECONDS = 20.0
PARTITIONS = 6
KEY_EVENTS = 50
POISONED = 24
POISONED_KEY = "acct_embedded/sub_poison"
COMMAND_SECONDS = 60.0
FOLLOW_SECONDS = 60.0
REPLAYS = 100
HANG_SECONDS = 30.0

NAME, EMAIL, CARD = "Canary Q. Feathers", "canary.feathers@example.com", "4000056655665556"
"""Nobody is called so; these texts must not be in any log, whoever stumbles over them."""


def failing(how: str, **subject: Any) -> bytes:
    return body_of(event(metadata={"handler": how}, **subject))


BROKEN = frozenset({"handler_failed", "handler_broke_transaction"})
"""The guard may stop such a handler at its call, or find out what it did afterwards."""


def bad_bodies() -> list[tuple[bytes, frozenset[str]]]:
    """Bodies, each with the codes that it may be quarantined with, none when it must be processed."""
    return [
        (failing("fails twice"), frozenset()),
        (failing("fails always"), frozenset({"handler_failed"})),
        (failing("swallows its own SQL error"), BROKEN),
        (failing("commits"), BROKEN),
        (failing("rolls back"), BROKEN),
        (failing("says what it saw", description=NAME), frozenset({"handler_failed"})),
        (failing("sends it to the database", description=NAME), frozenset({"handler_failed"})),
        (body_of(event(description=NAME, receipt_email=EMAIL, metadata={"card": CARD})), frozenset()),
        (body_of(event(amount=CARD, description=NAME)), frozenset({"bad_amount"})),
        (body_of(event() | {"id": f"evt_{NAME}"}), frozenset({"bad_event_id"})),
        (body_of(event() | {"type": f"{NAME} {CARD}"}), frozenset({"bad_type"})),
        (body_of({CARD: 1, "x": event()}).replace(b'"x"', b'"%s"' % CARD.encode()), frozenset({"duplicate_key"})),
        (body_of(event(metadata={"note": "a\x00b"})), frozenset()),
        (body_of(event(description="\ud83d")), frozenset()),
        (body_of(event(amount="100")), frozenset({"bad_amount"})),
        (body_of(event(amount=2**63)), frozenset({"bad_amount"})),
        (body_of(event() | {"id": "evt_x\x1b[2J"}), frozenset({"bad_event_id"})),
        (body_of(event() | {"livemode": True}), frozenset({"other_mode"})),
        (b"[" * 100_000, frozenset({"too_deep"})),
        (b"null", frozenset({"not_an_event"})),
    ]


def send(load: SteadyLoad, rig: Rig, body: bytes, codes: frozenset[str] = frozenset()) -> None:
    """Send a body as part of the load and note the codes that it may be quarantined with."""
    if codes:
        # A delivery of its own, without an answer: what the checker takes from it is only the expected end.
        rig.deliveries.append(delivery_of(Attempt(Request("odd", body), None), codes))
    load.sender.send(Request("odd", body))


def plant(rig: Rig, codes: set[str], **record: Any) -> None:
    """Put a record on the event topic as anybody with write access could; note the codes that it may end with."""
    producer = Producer({"bootstrap.servers": rig.ready.kafka_bootstrap, "message.max.bytes": 4_000_000})
    placed: list[tuple[int, int]] = []

    def report(error: object, message: Message) -> None:
        partition, offset = message.partition(), message.offset()
        assert error is None, error
        assert partition is not None
        assert offset is not None
        placed.append((partition, offset))

    producer.produce(rig.ready.event_topic, on_delivery=report, **record)
    assert producer.flush(FLUSH_SECONDS) == 0
    rig.planted[placed[0]] = frozenset(codes)


def test_bad_bodies_and_bad_handlers_take_only_themselves(rig: Rig) -> None:
    rig.canaries += [NAME, EMAIL, CARD]
    with rig.load() as load:
        for body, codes in bad_bodies():
            send(load, rig, body, codes)
            load.wait_for_answers(5)
        load.wait_for_answers(50)
    verdict = rig.verdict()
    assert verdict.violations == (), verdict


def test_poison_in_the_middle_of_a_key(rig: Rig) -> None:
    """Fifty events of one object, one poisonous: those before it are done, it and those behind wait, till it is skipped."""
    with rig.load() as load:
        for number in range(KEY_EVENTS):
            metadata = {"handler": "fails always"} if number == POISONED else {"number": number}
            subject: dict[str, Any] = {
                "id": "sub_poison",
                "object": "subscription",
                "status": "active",
                "metadata": metadata,
            }
            body = body_of(event("customer.subscription.updated", **subject))
            send(load, rig, body, frozenset({"handler_failed"}) if number == POISONED else frozenset())
        load.wait_for_answers(50)
    verdict = rig.verdict()
    assert verdict.violations == (), verdict
    done, behind = outcomes_of_key(rig), parked_of_key(rig)
    assert done + behind == KEY_EVENTS - 1, "all but the poisonous one are done or wait in their order"
    skip = [sys.executable, "-m", "onceflow", "quarantine", "skip", "--key", POISONED_KEY]
    subprocess.run(
        [*skip, "--execute", "--reason", "the test's own"],
        env={**process_environment(), **rig.ready.environment},
        cwd=rig.folder,
        check=True,
        timeout=COMMAND_SECONDS,
    )
    wait_for(lambda: parked_of_key(rig) == 0, limit_seconds=FOLLOW_SECONDS, what="those behind it follow")
    verdict = rig.verdict()
    assert verdict.violations == (), verdict
    assert outcomes_of_key(rig) == KEY_EVENTS - 1


def outcomes_of_key(rig: Rig) -> int:
    return count(rig, "SELECT count(*) FROM onceflow.outcome WHERE key = 'sub_poison'")


def parked_of_key(rig: Rig) -> int:
    return count(rig, "SELECT count(*) FROM onceflow.parked WHERE order_key = %s", POISONED_KEY)


def count(rig: Rig, query: LiteralString, *values: str) -> int:
    with psycopg.connect(rig.ready.database_url) as connection:
        row = connection.execute(query, values).fetchone()
        assert row is not None
        return int(row[0] or 0)


def test_replay_of_one_request_a_hundred_times(rig: Rig) -> None:
    body = body_of(event())
    with rig.load() as load:
        for _ in range(REPLAYS):
            send(load, rig, body)
    verdict = rig.verdict()
    assert verdict.violations == (), verdict


def test_strangers_on_every_partition(rig: Rig) -> None:
    with rig.load() as load:
        for partition in range(PARTITIONS):
            plant(rig, {"empty_record"}, value=None, key=b"k", partition=partition)
            plant(rig, {"unauthenticated"}, value=b"\xff" * 900_000, key=None, partition=partition)
            plant(rig, {"unauthenticated"}, value=body_of(event()), key=b"acct_embedded/pi_1", partition=partition)
            headers = [("h", b"v")] * 10_000
            plant(rig, {"too_many_headers"}, value=b"{}", key=b"k", headers=headers, partition=partition)
        load.wait_for_answers(100)
    verdict = rig.verdict()
    assert verdict.violations == (), verdict


@pytest.mark.parametrize("timestamp_ms", [1, -62_135_596_800_000])
def test_time_of_a_record_says_nothing(rig: Rig, timestamp_ms: int) -> None:
    """Records of 1970 and of the year 1 are taken like others; only the signed times count."""
    with rig.load() as load:
        plant(rig, {"unauthenticated"}, value=b"{}", key=b"k", partition=0, timestamp=timestamp_ms)
        load.wait_for_answers(50)
    verdict = rig.verdict()
    assert verdict.violations == (), verdict


def test_hanging_foreign_transaction_holds_up_nobody(rig: Rig) -> None:
    """R49: somebody's long transaction in the same database must neither hide outcomes nor stop them."""
    with psycopg.connect(rig.ready.database_url) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS shop.foreign_work (n int)")
        connection.commit()
        connection.execute("INSERT INTO shop.foreign_work VALUES (1)")
        with rig.load() as load:
            before = published(rig)
            load.wait_for_answers(50)
            wait_for(lambda: published(rig) > before, limit_seconds=HANG_SECONDS, what="outcomes are published")
        verdict = rig.verdict()
        assert verdict.violations == (), verdict
        connection.rollback()


def published(rig: Rig) -> int:
    return count(rig, "SELECT sum(published_seq) FROM onceflow.lane")
