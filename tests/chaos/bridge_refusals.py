"""P7 to P10: what the bridge must refuse, and how it says so.

Rule: every refusal has a status, a code and a counter; what it does not refuse is in the topic.
"""

from __future__ import annotations

from random import Random
from typing import Any

from tests.chaos.fault import fault
from tests.chaos.part import Part
from tests.chaos.sending import body_of, code_of, event, post
from tests.chaos.topics import has_topic, set_topic
from tests.chaos.world import World
from tests.checker.waiting import wait_for

LIMIT_BYTES = 1_040_396
CLOCK_SECONDS = 600
SMALL_TOPIC_BYTES = 65_536
LEARN_SECONDS = 30.0
OLD, NEW = "whsec_chaosOld", "whsec_chaosNew"


def _padded(length: int) -> bytes:
    """Return a good event whose body is exactly so long."""
    made = event(description="")
    made["data"]["object"]["description"] = "x" * (length - len(body_of(made)))
    body = body_of(made)
    assert len(body) == length
    return body


@fault("P7/body", "a body of the limit, and one byte more", soak="bridge")
def body_limit(world: World, dice: Random) -> str:
    """The largest body passes the whole road; one byte more is refused before anything is stored."""
    status, answer, _ = post(world, _padded(LIMIT_BYTES))
    assert status == 200, (status, answer)
    over, refusal, _ = post(world, _padded(LIMIT_BYTES + 1), note=False)
    assert (over, code_of(refusal)) == (413, "body_too_large"), (over, refusal)
    return f"{LIMIT_BYTES} bytes: 200; one more: 413 body_too_large"


@fault("P7/topic", "the topic takes less than the bridge", soak="bridge")
def topic_limit(world: World, dice: Random) -> str:
    """Somebody lowers max.message.bytes: an oversize record is told as such, small ones go on."""
    topic = world.topics.events[0]
    former = set_topic(world, topic, "max.message.bytes", str(SMALL_TOPIC_BYTES))
    try:
        # The bridge learns of it from the broker's first refusal, and asks for the limit then.
        answer = wait_for(lambda: _refused_for_size(world), limit_seconds=LEARN_SECONDS, what="the size is refused")
        small, _, _ = post(world, body_of(event()))
    finally:
        set_topic(world, topic, "max.message.bytes", former)
    assert code_of(answer) == "record_too_large", answer
    assert small == 200, small
    wait_for(
        lambda: post(world, _padded(SMALL_TOPIC_BYTES * 2), note=False)[0] == 200,
        limit_seconds=LEARN_SECONDS,
        what="the size is taken after the limit was raised",
    )
    return f"max.message.bytes={SMALL_TOPIC_BYTES}: {SMALL_TOPIC_BYTES * 2} bytes: 413 record_too_large, small: 200"


def _refused_for_size(world: World) -> dict[str, Any] | None:
    status, answer, _ = post(world, _padded(SMALL_TOPIC_BYTES * 2), note=False)
    return answer if status == 413 else None


@fault("P8", "the event topic does not exist", soak="bridge")
def topic_missing(world: World, dice: Random) -> str:
    """The bridge is not ready, answers 503, and makes no topic with other settings."""
    bridge = world.part("bridge-without-topic", role="bridge", bridge__port=0, topics__events="nobody.made.this")
    world.extras.append(bridge)
    bridge.start()
    [line] = _listening(bridge)
    status, answer, _ = post(world, body_of(event()), url=line["url"] + "/webhooks/stripe", note=False)
    assert status == 503, (status, answer)
    assert not bridge.state_file.exists(), "it said that it is ready"
    assert not has_topic(world, "nobody.made.this"), "the topic was made"
    return f"503 {code_of(answer)}, not ready, the topic was not made"


def _listening(bridge: Part) -> list[dict[str, Any]]:
    return wait_for(lambda: bridge.log_entries("bridge_listening"), limit_seconds=30, what="the bridge listens")


@fault("P9", "the bridge's clock is 10 minutes off", soak="bridge")
def clock_off(world: World, dice: Random) -> str:
    """Right signatures look stale or from the future: refused with a code of their own, so that somebody is called."""
    found = {}
    for offset, code in ((CLOCK_SECONDS, "stale_timestamp"), (-CLOCK_SECONDS, "future_timestamp")):
        bridge = world.part(f"bridge-clock{offset}", role="bridge", bridge__port=0)
        bridge.plan(clock_offset_seconds=offset)
        world.extras.append(bridge)
        bridge.start()
        bridge.wait_ready()
        status, answer, _ = post(world, body_of(event()), url=bridge.state["url"] + "/webhooks/stripe", note=False)
        assert (status, code_of(answer)) == (400, code), (offset, status, answer)
        found[offset] = code
        bridge.stop()
        world.extras.remove(bridge)
    return f"clock off by {found}"


@fault("P10", "endpoint secret rolled", soak="bridge")
def secret_rolled(world: World, dice: Random) -> str:
    """In the overlap both secrets sign; afterwards the old one is refused."""
    both = world.join("bridge", stripe__webhook_secret=f"old={OLD},new={NEW}")
    url = both.state["url"] + "/webhooks/stripe"
    overlap = [post(world, body_of(event()), url=url, secret=secret)[0] for secret in (OLD, NEW)]
    only = world.join("bridge", stripe__webhook_secret=f"new={NEW}")
    url = only.state["url"] + "/webhooks/stripe"
    refused, answer, _ = post(world, body_of(event()), url=url, secret=OLD, note=False)
    taken, _, _ = post(world, body_of(event()), url=url, secret=NEW)
    assert (overlap, refused, taken) == ([200, 200], 400, 200), (overlap, refused, taken)
    return f"overlap {overlap}, then old: 400 {code_of(answer)}, new: 200"
