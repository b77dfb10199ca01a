"""From a running system to one snapshot: wait until it is quiet, then read topics, tables and logs.

Rule: quiet means that every committed record lies before the progress of its partition and every outcome is published.  If
that does not come true within the limit, this is told in the snapshot and judged; it is never waited for twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psycopg
from confluent_kafka import KafkaException

from tests.checker.snapshot import Delivery, Foreign, Hit, Outcome, Position, Snapshot
from tests.checker.tables import connect, read_tables
from tests.checker.topics import bounds, consumer, event_entry, foreign_entry, outcome_entry, read_topic, shows_nothing
from tests.checker.waiting import NotReached, wait_for

QUIET_LIMIT_SECONDS = 60.0
LOG_PAGE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class ForeignTopic:
    """A further topic with events in the values of its records, and whose they are where they name nobody."""

    topic: str
    default_account: str


@dataclass(frozen=True, slots=True)
class System:
    """Where the ledgers are."""

    bootstrap: str
    database_url: str
    event_topic: str
    outcome_topic: str
    log_folder: Path | None = None
    effect_table: str | None = None
    foreign: tuple[ForeignTopic, ...] = ()

    @property
    def event_topics(self) -> tuple[str, ...]:
        """The bridge's own, then the others; their order gives the numbers under which positions are shown."""
        return self.event_topic, *(one.topic for one in self.foreign)


class _QuietWatch:
    """Asks whether the system is quiet; keeps the last reason why not."""

    def __init__(self, system: System) -> None:
        self.system = system
        self.reason = "nothing was asked yet"
        self.reader = consumer(system.bootstrap, "read_uncommitted")
        self._committed = consumer(system.bootstrap, "read_committed")
        self._stood: dict[tuple[str, int], tuple[int, int]] = {}

    def quiet(self) -> bool:
        try:
            reason = self._reason()
        except (psycopg.OperationalError, KafkaException) as error:
            reason = f"a service does not answer ({type(error).__name__}: {error})"
        self.reason = reason or ""
        return reason is None

    def _reason(self) -> str | None:
        for topic in self.system.event_topics:
            if (reason := self._behind(topic)) is not None:
                return reason
        with connect(self.system.database_url) as connection:
            lanes = connection.execute("SELECT lane, head_seq, published_seq, state FROM onceflow.lane").fetchall()
        for lane, head, published, state in sorted(lanes):
            if published != head or state != "ok":
                return f"lane {lane}: {published} of {head} published, state {state}"
        return None if lanes else "there are no lanes"

    def _behind(self, topic: str) -> str | None:
        ends = bounds(self.reader, topic)
        with connect(self.system.database_url) as connection:
            rows = connection.execute(
                "SELECT DISTINCT ON (partition) partition, next_offset, stopped FROM onceflow.progress WHERE topic = %s"
                " ORDER BY partition, updated_at DESC",
                [topic],
            ).fetchall()
        reached = {partition: next_offset for partition, next_offset, _ in rows}
        shown = "" if topic == self.system.event_topic else f"{topic} "
        for partition, _, stopped in rows:
            if stopped is not None:
                return f"{shown}partition {partition} is stopped: {stopped}"
        for partition, (start, end) in sorted(ends.items()):
            at = reached.get(partition, 0)
            if end > start and at < end and not self._is_done(topic, partition, at=at, end=end):
                return f"{shown}partition {partition}: progress {reached.get(partition)} of {end}"
        return None

    def _is_done(self, topic: str, partition: int, *, at: int, end: int) -> bool:
        """Progress that stands still is right where only markers and aborted records follow, which nobody is shown."""
        now = at, end
        if self._stood.get((topic, partition)) != now:
            self._stood[topic, partition] = now
            return False
        return shows_nothing(self._committed, topic, partition=partition, start=at)

    def close(self) -> None:
        """Close both readers."""
        self.reader.close()
        self._committed.close()


def wait_until_quiet(system: System, *, limit_seconds: float = QUIET_LIMIT_SECONDS) -> str | None:
    """Return None when the system became quiet within the limit, else why it was not."""
    watch = _QuietWatch(system)
    try:
        wait_for(watch.quiet, limit_seconds=limit_seconds, what="the system is quiet")
    except NotReached as error:
        return f"{error}; last seen: {watch.reason}"
    finally:
        watch.close()
    return None


def take_snapshot(
    system: System,
    deliveries: Iterable[Delivery],
    *,
    planted: dict[Position, frozenset[str]] | None = None,
    canaries: Sequence[str] = (),
    limit_seconds: float = QUIET_LIMIT_SECONDS,
) -> Snapshot:
    """Wait until the system is quiet and read everything.

    Args:
        system: where the ledgers are.
        deliveries: every request that was sent, with its answer.
        planted: codes that records put on the topic by the test must be quarantined with, by position.
        canaries: texts that must not stand in any log.
        limit_seconds: for becoming quiet.
    """
    not_quiet = wait_until_quiet(system, limit_seconds=limit_seconds)
    events = [
        event_entry(message) for message in read_topic(system.bootstrap, system.event_topic, isolation="read_committed")
    ]
    for number, one in enumerate(system.foreign, start=1):
        events += [
            foreign_entry(message, topic_number=number, default_account=one.default_account)
            for message in read_topic(system.bootstrap, one.topic, isolation="read_committed")
        ]
    found = [
        outcome_entry(message)
        for message in read_topic(system.bootstrap, system.outcome_topic, isolation="read_committed")
    ]
    reader = consumer(system.bootstrap, "read_uncommitted")
    try:
        ends = {topic: bounds(reader, topic) for topic in system.event_topics}
    finally:
        reader.close()
    tables = read_tables(system.database_url, ends=ends, effect_table=system.effect_table)
    assert len(tables.topic_ids) <= len(ends), f"progress names several topics of one name: {sorted(tables.topic_ids)}"
    return Snapshot(
        deliveries=tuple(deliveries),
        events=tuple(events),
        markers=tables.markers,
        waiting=tables.waiting,
        quarantine=tables.quarantine,
        progress=tables.progress,
        lanes=tables.lanes,
        rows=tables.rows,
        published=tuple(entry for entry in found if isinstance(entry, Outcome)),
        foreign=tuple(entry for entry in found if isinstance(entry, Foreign)),
        facts=tables.facts,
        effects=tables.effects,
        guard_rows=tables.guard_rows,
        hits=tuple(find_canaries(system.log_folder, canaries)) if system.log_folder is not None else (),
        not_quiet=not_quiet,
        planted=planted or {},
    )


def find_canaries(folder: Path, canaries: Sequence[str]) -> Iterable[Hit]:
    """Yield each canary with each log file that holds it, read as raw bytes."""
    needles = [canary.encode() for canary in canaries]
    longest = max((len(needle) for needle in needles), default=0)
    for path in sorted(folder.rglob("*")):
        if not path.is_file():
            continue
        seen: set[bytes] = set()
        kept = b""
        with path.open("rb") as file:
            while page := file.read(LOG_PAGE_BYTES):
                window = kept + page
                seen |= {needle for needle in needles if needle in window}
                kept = window[-longest:]
        yield from (Hit(str(path), needle.decode()) for needle in needles if needle in seen)
