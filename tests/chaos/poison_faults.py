"""G2: one poisoned event among fifty of its key, processes and commands killed at every place of its way, retry and skip.

Rule: what is before it and beside it is done, what is behind it waits and follows in its order, and each decision has its
row in the audit; that nothing runs twice or out of order is the checker's to say.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from tests.chaos.data_faults import FAILED
from tests.chaos.fault import fault, fired
from tests.chaos.operating import REASON, run_command
from tests.chaos.parking_faults import PARKED_SECONDS, let_lease_run_out, state_of
from tests.chaos.part import Part
from tests.chaos.planted_records import PARTITIONS, attested, record_of
from tests.chaos.sending import body_of, event, note_sent, plant, produce_all
from tests.chaos.topics import ANSWER_SECONDS, admin, has_topic
from tests.chaos.waits import wait_processed
from tests.chaos.world import World
from tests.checker.topics import read_topic
from tests.checker.waiting import wait_for

EVENTS_OF_THE_KEY = 50
POISONED = 24
"""Number 25."""

BEFORE_THE_KILL = 35
OTHER_KEYS = 5
KIND = "customer.subscription.updated"
DEAD_LETTERS = "stripe.deadletters.v1"

_numbers = count(1)


@dataclass(frozen=True, slots=True)
class Row49:
    """Fifty events of one key with a poisoned one, and as many of other keys, on one partition in turn."""

    key: str
    ids: tuple[str, ...]
    others: tuple[str, ...]

    @property
    def bad(self) -> str:
        """The poisoned event."""
        return self.ids[POISONED]

    @property
    def behind(self) -> tuple[str, ...]:
        """What has to wait for it."""
        return self.ids[POISONED + 1 :]


@contextmanager
def _poisoned(world: World, event_id: str) -> Iterator[None]:
    """The user's table refuses the event while the block runs, as a bug of its handler would."""
    world.rows(
        "CREATE OR REPLACE FUNCTION shop.poison() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "RAISE EXCEPTION 'planted' USING ERRCODE = '23514'; END $$"
    )
    world.rows(
        f"CREATE TRIGGER poison BEFORE INSERT ON shop.effect FOR EACH ROW WHEN (NEW.event_id = '{event_id}')"
        " EXECUTE FUNCTION shop.poison()"
    )
    try:
        yield
    finally:
        world.rows("DROP TRIGGER poison ON shop.effect")


def _events(dice: Random) -> tuple[Row49, list[dict[str, Any]]]:
    """Make them, in the order in which they are put on the topic."""
    name = f"G2{dice.randrange(10**9)}n{next(_numbers)}"
    made: list[dict[str, Any]] = []
    for number in range(EVENTS_OF_THE_KEY):
        for subject, prefix in ((f"sub_{name}", "k"), (f"sub_{name}other{number % OTHER_KEYS}", "o")):
            made.append(event(KIND, name=f"{name}{prefix}{number}", id=subject, object="subscription"))
    ids = [one["id"] for one in made]
    return Row49(f"sub_{name}", tuple(ids[0::2]), tuple(ids[1::2])), made


def _feed(world: World, dice: Random, *, row: Row49, made: Sequence[dict[str, Any]], stays: bool) -> str:
    """Put them on one partition, and kill the processor among those behind the poisoned one.

    ``stays``: the poisoned one is never retried, so the checker must find it in quarantine.
    """
    partition, producer = dice.randrange(PARTITIONS), Producer({"bootstrap.servers": world.bootstrap})
    processor = world.parts["processor"]
    for number, one in enumerate(made):
        if number == 2 * BEFORE_THE_KILL:
            processor.arm("processor.before_commit", "kill9")
        body = body_of(one)
        note_sent(world, body)
        record = record_of(attested(world, body), partition=partition)
        if stays and one["id"] == row.bad:
            plant(world, set(FAILED), **record)
        else:
            produce_all(producer, world.topics.events[0], [record])
    firing = processor.wait_fired()
    assert processor.wait_ended() == -signal.SIGKILL
    world.restart("processor")
    return str(firing)


def _states(world: World, ids: Sequence[str]) -> Counter[str]:
    rows = world.rows("SELECT state FROM onceflow.inbox WHERE event_id = ANY (%s)", list(ids))
    return Counter(state for (state,) in rows)


def _wait_states(world: World, ids: Sequence[str], state: str) -> None:
    wait_for(
        lambda: _states(world, ids) == {state: len(ids)},
        limit_seconds=PARKED_SECONDS,
        what=f"{len(ids)} events, the first of them {ids[0]}, are {state}",
    )


def _wait_row_49(world: World, row: Row49) -> None:
    """What row 49 asks for: 1 to 24 and all other keys done, 25 in quarantine, 26 to 50 parked."""
    _wait_states(world, row.ids[:POISONED], "processed")
    _wait_states(world, [row.bad], "quarantined")
    _wait_states(world, row.behind, "parked")
    _wait_states(world, row.others, "processed")


def _order(world: World, row: Row49) -> list[str]:
    """The events of the key in the order of their outcomes."""
    found = world.rows(
        "SELECT split_part(cause, '/', 3) FROM onceflow.outcome WHERE key = %s ORDER BY lane, seq", row.key
    )
    return [event_id for (event_id,) in found]


def _audits(world: World, decision: str, event_id: str) -> int:
    query = "SELECT count(*) FROM onceflow.audit WHERE action = %s AND subject = %s"
    return int(world.value(query, f"quarantine_{decision}", f"event acct_embedded/test/{event_id}"))


def _killed_command(world: World, *command: str, point: str) -> str:
    """Give a command that dies at a place."""
    part = world.part(
        f"{command[0]}-{command[1]}-killed-{next(_numbers)}", role="processor", command=[*command, *REASON]
    )
    part.arm(point, "kill9")
    part.start()
    firing = part.wait_fired()
    assert part.wait_ended() == -signal.SIGKILL
    world.extras.append(part)
    return str(firing)


def _failed_again(world: World, row: Row49, attempts: int) -> bool:
    found = world.rows("SELECT attempts FROM onceflow.quarantine WHERE event_id = %s", row.bad)
    return state_of(world, row.bad) == "quarantined" and found[0][0] > attempts


@fault(
    "G2/retry",
    "number 25 of 50 of a key is poison: parked, mended, redriven, killed at each step",
    soak="data",
    points=("processor.before_commit", "decisions.before_commit", "redrive.after_lock"),
)
def retried(world: World, dice: Random) -> str:
    """The first command dies before its commit, the next one meets the bug again, the third finds it mended."""
    row, made = _events(dice)
    with _poisoned(world, row.bad):
        firings = [_feed(world, dice, row=row, made=made, stays=False)]
        _wait_row_49(world, row)
        firings.append(_killed_command(world, "quarantine", "retry", row.bad, point="decisions.before_commit"))
        assert _audits(world, "retry", row.bad) == 0, "a decision that was not committed is in the audit"
        [(attempts,)] = world.rows("SELECT attempts FROM onceflow.quarantine WHERE event_id = %s", row.bad)
        run_command(world, ["quarantine", "retry", row.bad, *REASON])
        wait_for(
            lambda: _failed_again(world, row, attempts), limit_seconds=PARKED_SECONDS, what="the retry has failed again"
        )
        _wait_row_49(world, row)
    processor = world.parts["processor"]
    # A new process takes one head along, and twice as many each time: 26 heads need five transactions at least.
    assert processor.stop() == 0
    world.restart("processor")
    processor.arm("redrive.after_lock", "kill9", at=dice.randrange(1, 6))
    run_command(world, ["quarantine", "retry", row.bad, *REASON])
    firings.append(str(processor.wait_fired()))
    assert processor.wait_ended() == -signal.SIGKILL
    world.restart("processor")
    let_lease_run_out(world)
    _wait_states(world, row.ids, "processed")
    assert _order(world, row) == list(row.ids), "the outcomes of the key are not in its order"
    assert _audits(world, "retry", row.bad) == 2, "each decision has one row"
    left = world.value("SELECT count(*) FROM onceflow.parked WHERE event_id = ANY (%s)", list(row.ids))
    assert left == 0, f"{left} rows are left in parked"
    wait_processed(world)
    return " then ".join(firings)


@fault(
    "G2/skip",
    "number 25 of 50 of a key is poison and skipped by a command that is killed",
    soak="data",
    points=("processor.before_commit", "decisions.between_pages"),
)
def skipped(world: World, dice: Random) -> str:
    """The command dies behind its commit: the decision stands, once, and those behind it follow without it."""
    row, made = _events(dice)
    with _poisoned(world, row.bad):
        firings = [_feed(world, dice, row=row, made=made, stays=True)]
        _wait_row_49(world, row)
        firings.append(_killed_command(world, "quarantine", "skip", row.bad, point="decisions.between_pages"))
        _wait_states(world, row.behind, "processed")
    assert state_of(world, row.bad) == "quarantined"
    assert _order(world, row) == [one for one in row.ids if one != row.bad]
    assert _audits(world, "skip", row.bad) == 1
    wait_processed(world)
    return " then ".join(firings)


def _letters(world: World) -> Counter[tuple[bytes | None, bytes | None]]:
    found = read_topic(world.bootstrap, DEAD_LETTERS, isolation="read_committed")
    return Counter((one.key(), one.value()) for one in found)


@fault(
    "G2/dead_letter",
    "killed between a dead letter's confirmation and its mark",
    soak="data",
    points=("dead_letters.before_mark",),
)
def killed_before_mark(world: World, dice: Random) -> str:
    """It is published again, as it was, and marked; what is in quarantine is in the topic, bytes and key untouched."""
    if not has_topic(world, DEAD_LETTERS):
        client = admin(world)
        client.create_topics([NewTopic(DEAD_LETTERS, 1, 1)])[DEAD_LETTERS].result(ANSWER_SECONDS)
    partition = dice.randrange(PARTITIONS)
    plant(world, {"empty_record"}, value=None, key=b"of nobody", partition=partition)
    wait_for(lambda: _unmarked(world) > 0, limit_seconds=PARKED_SECONDS, what="it is in quarantine")
    part: Part = world.part(f"processor-letters-{next(_numbers)}", role="processor", topics__dead_letters=DEAD_LETTERS)
    part.arm("dead_letters.before_mark", "kill9")
    world.extras.append(part)
    before = _letters(world)
    part.start()
    firing = part.wait_fired()
    assert part.wait_ended() == -signal.SIGKILL
    published = _letters(world) - before
    assert published, "it was killed before anything was published"
    part.disarm()
    part.start()
    part.wait_ready()
    wait_for(lambda: _unmarked(world) == 0, limit_seconds=PARKED_SECONDS, what="all are marked")
    letters = _letters(world)
    again = sum((letters - before - published).values())
    kept = Counter(
        (None if key is None else bytes(key), None if value is None else bytes(value))
        for key, value in world.rows(
            "SELECT key, value FROM onceflow.quarantine"
            " WHERE decision IS DISTINCT FROM 'retried' AND dead_letter_code IS NULL"
        )
    )
    assert set(kept) <= set(letters), f"{len(set(kept) - set(letters))} records are in quarantine and not in the topic"
    wait_processed(world)
    return fired(again, f"{firing}; {sum(published.values())} letters, {again} of them again")


def _unmarked(world: World) -> int:
    return int(
        world.value(
            "SELECT count(*) FROM onceflow.quarantine WHERE dead_lettered_at IS NULL AND dead_letter_code IS NULL"
            " AND decision IS DISTINCT FROM 'retried'"
        )
    )
