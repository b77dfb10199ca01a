"""S1 to S5: strangers at the door of the live bridge, under load.

Rule: nothing unproven is stored, nothing waits without a limit, nothing planted comes out in a log, nothing listens
beyond this machine.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import socket
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlsplit

from tests.chaos.fault import fault, fired
from tests.chaos.sending import body_of, event, post, post_until_taken
from tests.chaos.waits import wait_processed
from tests.chaos.world import World
from tests.checker.waiting import wait_for

FLIPS = 300
REPLAYS = 100
SLOW_CONNECTIONS = 150
SLOW_SECONDS = 14.0
NAME, EMAIL, CARD = "Chaos Q. Canary", "chaos.canary@example.com", "4000058260000005"
REFUSED = frozenset({400, 429})
LOOPBACK = frozenset({"0100007F", "00000000000000000000000001000000"})
LISTENING = "0A"


@fault("S1/flips", "signed bodies with one bit changed", soak="security")
def bit_flips(world: World, dice: Random) -> str:
    """None of them is taken, and none is in the topic."""
    body = body_of(event())
    now = int(time.time())
    header = _signature(world, body, now)
    statuses = Counter[int | None]()
    for _ in range(FLIPS):
        changed = bytearray(body)
        place = dice.randrange(len(changed) * 8)
        changed[place // 8] ^= 1 << place % 8
        statuses[post(world, bytes(changed), header=header, note=False)[0]] += 1
        _forged(world, bytes(changed))
    assert set(statuses) <= REFUSED, statuses
    return f"{FLIPS} flips: {dict(statuses)}"


def _signature(world: World, body: bytes, at: int, *, secret: str | None = None, scheme: str = "v1") -> str:
    mac = hmac.new((secret or world.secret).encode(), b"%d." % at + body, hashlib.sha256).hexdigest()
    return f"t={at},{scheme}={mac}"


def _forged(world: World, body: bytes) -> None:
    """Tell the verdict that this body must not be in the topic."""
    from tests.checker.snapshot import Delivery  # noqa: PLC0415

    world.deliveries.append(Delivery(hashlib.sha256(body).digest(), 400, signed=False))


@fault("S1/headers", "forged, downgraded, stale and endless signature headers", soak="security")
def forged_headers(world: World, dice: Random) -> str:
    """Whatever is not a right v1 signature of now is refused."""
    body, now = body_of(event()), int(time.time())
    right = _signature(world, body, now).partition("v1=")[2]
    headers = {
        "none": "",
        "downgraded": _signature(world, body, now, scheme="v0"),
        "other secret": _signature(world, body, now, secret="whsec_other"),
        "stale": _signature(world, body, now - 301),
        "future": _signature(world, body, now + 302),
        "century": _signature(world, body, now + 3_155_760_000),
        "no time": f"v1={right}",
        "two times": f"t={now},t={now},v1={right}",
        "spaces": f"t= {now},v1={right}",
        "upper": f"t={now},v1={right.upper()}",
        "long": f"t={now}," + ",".join(["v1=00"] * 2_000),
        "digits": "t=" + "9" * 5_000 + f",v1={right}",
        "not ascii": f"t={now},v1=\u00e9{right}",
    }
    statuses = {name: _post_raw(world, body, header) for name, header in headers.items()}
    wrong = {name: status for name, status in statuses.items() if status not in (400, 429, 431)}
    assert not wrong, wrong
    _forged(world, body)
    return f"{len(headers)} headers: {dict(Counter(statuses.values()))}"


def _post_raw(world: World, body: bytes, header: str) -> int:
    head = f"POST /webhooks/stripe HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
    head += f"Stripe-Signature: {header}\r\n" if header else ""
    with _connection(world) as connection:
        connection.sendall(head.encode("utf-8") + b"\r\n" + body)
        answer = connection.recv(1 << 16)
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.1 ") else 0


def _connection(world: World) -> socket.socket:
    parts = urlsplit(world.webhook_url)
    return socket.create_connection((str(parts.hostname), parts.port or 0), timeout=SLOW_SECONDS)


@fault("S1/replay", "one right request a hundred times", soak="security")
def replayed(world: World, dice: Random) -> str:
    """200 each time, one effect."""
    body = body_of(event())
    header = _signature(world, body, int(time.time()))
    statuses = Counter(post(world, body, header=header)[0] for _ in range(REPLAYS))
    assert statuses == {200: REPLAYS}, statuses
    return f"{REPLAYS} x 200"


@fault("S2", "slow headers, slow bodies, huge headers, bodies without end", soak="security")
def slow_clients(world: World, dice: Random) -> str:
    """Each is ended by a limit; good webhooks are answered meanwhile, memory stays."""
    bridge = world.parts["bridge"]
    before = bridge.resident_bytes()
    with contextlib.ExitStack() as stack:
        slow = [stack.enter_context(contextlib.closing(_connection(world))) for _ in range(SLOW_CONNECTIONS)]
        signature = f"Stripe-Signature: t={int(time.time())},v1={'0' * 64}\r\n"
        for number, connection in enumerate(slow):
            head = f"POST /webhooks/stripe HTTP/1.1\r\nHost: x\r\n{signature}"
            kinds = (
                head,
                head + "Content-Length: 5000\r\n\r\n{",
                head + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
                f"POST /webhooks/stripe HTTP/1.1\r\nX: {'y' * 70_000}",
            )
            with contextlib.suppress(OSError):
                connection.sendall(kinds[number % len(kinds)].encode())
        world.load.wait_for_answers(100)
        ended = wait_for(lambda: _all_ended(slow), limit_seconds=SLOW_SECONDS, what="every slow client is ended")
    grown = bridge.resident_bytes() - before
    assert grown < 64 * 1024 * 1024, f"the bridge grew by {grown} bytes"
    return fired(
        ended, f"{SLOW_CONNECTIONS} slow clients ended, 100 webhooks meanwhile, memory {grown / 1024 / 1024:+.1f} MiB"
    )


def _all_ended(connections: list[socket.socket]) -> bool:
    for connection in connections:
        connection.setblocking(False)  # noqa: FBT003 - the socket's own signature
        try:
            while connection.recv(1 << 16):
                pass
        except BlockingIOError:
            return False
        except OSError:
            continue
    return True


@fault("S3", "personal data and secrets in odd places", soak="security")
def canaries(world: World, dice: Random) -> str:
    """Texts planted in good, bad and failing events come out in no log of ours."""
    world.canaries += [NAME, EMAIL, CARD]
    failed, bad = frozenset({"handler_failed"}), frozenset({"bad_amount", "bad_event_id", "bad_type", "not_an_event"})
    sent: list[tuple[Any, frozenset[str]]] = [
        (event(description=NAME, receipt_email=EMAIL, metadata={"card": CARD}), frozenset()),
        (event(metadata={"handler": "says what it saw"}, description=NAME), failed),
        (event(metadata={"handler": "sends it to the database"}, description=EMAIL), failed),
        (event(amount=CARD, description=NAME), bad),
        (event() | {"id": f"evt_{NAME}"}, bad),
        (event() | {"type": f"{NAME} {CARD}"}, bad),
    ]
    for made, codes in sent:
        post_until_taken(world, body_of(made), codes=codes)
    post(world, body_of({"card": CARD, "name": NAME}), header=f"t=1,v1={CARD}", note=False)
    wait_processed(world)
    return f"{len(sent)} events with 3 canaries; the checker searches all logs"


@fault("S4", "control characters in ids, types and headers", soak="security")
def log_injection(world: World, dice: Random) -> str:
    """Every line of every log is one JSON object still."""
    odd = 'evt_x\r\n{"event":"forged_line"}\x1b[2J'
    for name, codes in (("id", {"bad_event_id"}), ("type", {"bad_type"})):
        post_until_taken(world, body_of(event() | {name: odd}), codes=frozenset(codes))
    post(world, body_of(event()), header="t=1,v1=\t\x1b[31m".replace("\x1b", "~"), note=False)
    wait_processed(world)
    lines = 0
    for part in world.parts.values():
        for line in part.log.read_text("utf-8", "replace").splitlines():
            lines += 1
            if line.startswith("{"):
                entry = json.loads(line)
                assert entry.get("event") != "forged_line", line
            assert "\x1b" not in line, line
    return fired(lines, f"{lines} log lines read, none forged")


@fault("S5", "what listens where", soak="security")
def open_doors(world: World, dice: Random) -> str:
    """Every port of ours is on the loopback address only."""
    pids = [part.pid for part in world.parts.values()] + [world.service_pid(name) for name in ("kafka", "postgres")]
    sockets = {inode for pid in pids for inode in _socket_inodes(pid)}
    found, wide = 0, []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == LISTENING and fields[9] in sockets:
                found += 1
                address = fields[1].partition(":")[0]
                if address not in LOOPBACK and not address.endswith("FFFF00000100007F"):
                    wide.append(fields[1])
    assert not wide, f"listening beyond this machine: {wide}"
    return fired(found, f"{found} ports, all on loopback")


def _socket_inodes(pid: int) -> list[str]:
    found = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            target = str(entry.readlink())
            if target.startswith("socket:["):
                found.append(target[8:-1])
    return found


@fault("S9", "plain text beyond this machine in production", soak="security")
def plain_text(world: World, dice: Random) -> str:
    """Each service refuses to start with a broker or a database that anybody on the way could read."""
    broker: dict[str, Any] = {"kafka__bootstrap__servers": "broker.invalid:9092"}
    database: dict[str, Any] = {"database__url": "host=database.invalid dbname=onceflow sslmode=disable"}
    codes = {}
    for role, settings in (("bridge", broker), ("processor", broker | database), ("relay", database)):
        part = world.part(f"{role}-in-plain-text-{dice.randrange(10**6)}", role=role, bridge__port=0, **settings)
        part.start()
        codes[role] = part.wait_ended()
        words = part.last_words(12)
        assert "this machine" in words, words
        assert not part.state_file.exists()
    assert set(codes.values()) == {3}, codes
    return f"exit codes {codes}"
