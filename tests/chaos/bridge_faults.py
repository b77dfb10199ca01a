"""P1 to P7 and P11: the bridge dies, its broker is away or slow, its clients hang up.

Rule: 200 only for what the topic has, an answer within the deadline whatever Kafka does, and a repeat has one effect.
"""

from __future__ import annotations

import hashlib
import signal
import socket
import threading
import time
from random import Random
from urllib.parse import urlsplit

from onceflow.demo.delivery import signature_header
from tests.chaos.fault import fault, fired
from tests.chaos.points import POINTS
from tests.chaos.sending import body_of, code_of, event, note_sent, post
from tests.chaos.world import ANSWER_DEADLINE_SECONDS, World
from tests.checker.topics import read_topic
from tests.checker.waiting import wait_for

ANSWER_MARGIN_SECONDS = 1.5
HANG_UPS = 6
QUIET_SECONDS = 15.0
NOT_TAKEN = 503


def _register_kills() -> None:
    for place in POINTS["bridge"]:
        point = f"bridge.{place}"

        def act(world: World, dice: Random, point: str = point) -> str:
            bridge = world.parts["bridge"]
            bridge.arm(point, "kill9", at=dice.randrange(1, 40))
            firing = bridge.wait_fired()
            assert bridge.wait_ended() == -signal.SIGKILL
            world.restart("bridge")
            return str(firing)

        fault(f"P1/{place}", f"bridge killed at {place}", soak="bridge", points=(point,))(act)


_register_kills()


@fault("P1/raise", "a bug in the bridge between broker and answer", soak="bridge", points=("bridge.after_produce",))
def bug_in_bridge(world: World, dice: Random) -> str:
    """An exception costs one request, not the bridge."""
    bridge = world.parts["bridge"]
    bridge.arm("bridge.after_produce", "raise", at=dice.randrange(1, 30), times=3)
    firing = bridge.wait_fired(3)
    world.load.wait_for_answers(20)
    assert bridge.alive, "the bridge survived"
    return f"3 x {firing}"


@fault("P2/down", "broker cut off: 503 in time", soak="bridge")
def broker_cut_off(world: World, dice: Random) -> str:
    """No answer of 200, and none too late, while the bridge cannot reach Kafka."""
    world.brokers["bridge"].cut()
    answers = [post(world, body_of(event())) for _ in range(3)]
    return _in_time(answers, f"{world.brokers['bridge'].sessions_cut} connections cut")


@fault("P2/paused", "broker stopped: 503 in time", soak="bridge")
def broker_paused(world: World, dice: Random) -> str:
    """The broker stands still, its connections stay open."""
    pid = world.service_signal("kafka", signal.SIGSTOP)
    answers = [post(world, body_of(event())) for _ in range(2)]
    world.service_signal("kafka", signal.SIGCONT)
    return _in_time(answers, f"SIGSTOP to the broker ({pid})")


@fault("P2/slow", "broker 200 ms away", soak="bridge")
def broker_slow(world: World, dice: Random) -> str:
    """A slow broker makes answers slow, not wrong."""
    proxy = world.brokers["bridge"]
    proxy.delay(0.1)
    answers = [post(world, body_of(event())) for _ in range(4)]
    assert all(status == 200 for status, _, _ in answers), answers
    slowest = max(seconds for _, _, seconds in answers)
    return fired(slowest > 0.2, f"{proxy.bytes_delayed} bytes delayed, slowest answer {slowest:.2f} s, all 200")


def _in_time(answers: list[tuple[int | None, dict[str, object], float]], evidence: str) -> str:
    statuses = [status for status, _, _ in answers]
    slowest = max(seconds for _, _, seconds in answers)
    assert statuses == [NOT_TAKEN] * len(answers), f"answers {statuses}"
    assert slowest < ANSWER_DEADLINE_SECONDS + ANSWER_MARGIN_SECONDS, f"an answer took {slowest:.1f} s"
    codes = sorted({code_of(answer) for _, answer, _ in answers})
    return f"{evidence}; {len(answers)} x 503 {codes}, slowest {slowest:.1f} s"


@fault("P3", "report timed out, record written later", soak="bridge")
def written_later(world: World, dice: Random) -> str:
    """The answer is lost until the bridge gave the record up; it is in the topic all the same, and comes again."""
    proxy, body = world.brokers["bridge"], body_of(event())
    digest = hashlib.sha256(body).digest()
    proxy.hold()
    status, answer, _ = post(world, body)
    proxy.restore()
    assert status == NOT_TAKEN, status
    held = sum(proxy.bytes_held.values())
    again = wait_for(lambda: post(world, body)[0] == 200, limit_seconds=QUIET_SECONDS, what="the repeat is taken")
    copies = _copies(world, digest)
    return fired(held and again, f"{held} bytes held, 503 {code_of(answer)}, then 200; {copies} records of it")


def _copies(world: World, digest: bytes) -> int:
    records = read_topic(world.bootstrap, world.topics.events[0], isolation="read_committed")
    return sum(hashlib.sha256(bytes(record.value() or b"")).digest() == digest for record in records)


@fault("P4/full", "the producer's queue is full", soak="bridge")
def queue_full(world: World, dice: Random) -> str:
    """A queue of one record before a broker that does not answer: 503, not an error, and nothing waits for ever."""
    bridge = world.join("bridge", kafka__queue__buffering__max__messages=1)
    url = bridge.state["url"] + "/webhooks/stripe"
    answers: list[tuple[int | None, dict[str, object], float]] = []
    world.brokers["bridge"].hold()
    threads = [
        threading.Thread(target=lambda: answers.append(post(world, body_of(event()), url=url)), daemon=True)
        for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    world.brokers["bridge"].restore()
    codes = sorted(code_of(answer) for _, answer, _ in answers)
    assert {status for status, _, _ in answers} == {NOT_TAKEN}, answers
    return fired("queue_full" in codes, f"6 at once into a queue of 1: {codes}")


@fault("P4/fatal", "fatal error of the idempotent producer", soak="bridge", points=("bridge.before_produce",))
def fatal_producer(world: World, dice: Random) -> str:
    """The producer is broken for good: a new one takes over, nobody is told 200 for nothing."""
    bridge = world.parts["bridge"]
    bridge.arm("bridge.before_produce", "fatal:Producer", at=dice.randrange(1, 20))
    firing = bridge.wait_fired()
    world.load.wait_for_answers(30)
    assert bridge.alive, "the bridge survived"
    return str(firing)


@fault("P5", "clients hang up at every stage", soak="bridge")
def hang_ups(world: World, dice: Random) -> str:
    """After the headers, in the body, and while the broker is waited for."""
    bridge = world.parts["bridge"]
    before = bridge.descriptors()
    proxy = world.brokers["bridge"]
    stages = []
    for number in range(HANG_UPS):
        body = body_of(event())
        head = _head(world, body)
        sent = [head, head + body[: len(body) // 2], head + body][number % 3]
        if number % 3 == 2:
            proxy.hold()
            note_sent(world, body)
        _hang_up(world, sent)
        proxy.restore()
        stages.append(len(sent))
    world.load.wait_for_answers(20)
    wait_for(lambda: bridge.descriptors() <= before + 16, limit_seconds=QUIET_SECONDS, what="connections are closed")
    assert bridge.alive, "the bridge survived"
    return f"{len(stages)} hang-ups after {min(stages)}-{max(stages)} bytes; descriptors {before} -> {bridge.descriptors()}"


def _head(world: World, body: bytes) -> bytes:
    signature = signature_header(body, world.secret, at=int(time.time()))
    lines = [
        "POST /webhooks/stripe HTTP/1.1",
        "Host: x",
        f"Content-Length: {len(body)}",
        f"Stripe-Signature: {signature}",
    ]
    return "\r\n".join([*lines, "", ""]).encode()


def _hang_up(world: World, data: bytes) -> None:
    parts = urlsplit(world.webhook_url)
    with socket.create_connection((str(parts.hostname), parts.port or 0), timeout=5) as connection:
        connection.sendall(data)
        threading.Event().wait(0.1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")


@fault("P6", "SIGTERM under load", soak="bridge")
def terminated(world: World, dice: Random) -> str:
    """It drains and ends with 0; whom it told 200 is in the topic."""
    bridge = world.parts["bridge"]
    world.load.wait_for_answers(dice.randrange(5, 40))
    began = time.monotonic()
    code = bridge.stop()
    seconds = time.monotonic() - began
    assert code == 0, f"it ended with {code}"
    world.restart("bridge")
    return f"ended with 0 after {seconds:.1f} s under load"


@fault("P11", "two bridges, the same event at once", soak="bridge")
def two_bridges(world: World, dice: Random) -> str:
    """Two records, one effect."""
    second = world.join("bridge")
    urls = [world.webhook_url, second.state["url"] + "/webhooks/stripe"]
    both = 0
    for _ in range(10):
        body, answers = body_of(event()), list[int | None]()
        threads = [
            threading.Thread(target=lambda url=url, body=body, into=answers: into.append(post(world, body, url=url)[0]))
            for url in urls
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        both += answers == [200, 200]
    return fired(both == 10, f"{both} of 10 events taken by both bridges")
