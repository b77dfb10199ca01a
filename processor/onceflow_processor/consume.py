"""The consume thread: the only one that touches the Kafka consumer.

Rule: it always polls, so that the group never takes a slow processor for a dead one; it reads a partition only from
the position that the worker took over in PostgreSQL, and it drops what nobody asked for.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import structlog
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from onceflow_processor.admission import Item, Rules, admit
from onceflow_processor.consumer_errors import ConsumerErrors, whole
from onceflow_processor.group_offsets import GroupOffsets
from onceflow_processor.handoff import Assigned, Command, Done, Handoff, Read, Renew, Revoked, Stopped
from onceflow_processor.kafka_client import consumer_properties
from onceflow_processor.kafka_message import partition_of, record_of
from onceflow_processor.log_view import LogView
from onceflow_processor.position import Begin, Stop, judge_first_record
from onceflow_processor.records import Partition, Record
from onceflow_processor.stall_watch import StallWatch
from onceflow_producer.failpoint import hit
from onceflow_producer.kafka_errors import REFUSALS
from onceflow_schemas.failure import Failure, Misconfigured
from onceflow_schemas.fingerprint import record_fingerprint

POLL_SECONDS = 0.05
ROOM_WAIT_SECONDS = 0.2
REVOKE_WAIT_SECONDS = 5.0
LOOK_AGAIN_SECONDS = 0.5
PROVE_AGAIN_SECONDS = 2.0
SEEK_SECONDS_MAX = 5.0
SEEK_POLL_SECONDS = 0.01
REBUILD_SECONDS = 1.0

_OUT_OF_RANGE = KafkaError._AUTO_OFFSET_RESET  # noqa: SLF001 - the library's names of its local errors begin so.
_STATE = KafkaError._STATE  # noqa: SLF001
_FATAL = KafkaError._FATAL  # noqa: SLF001
_NOT_SUPPORTED = "not supported"
"""What librdkafka says of a broker without the new group protocol; the error's code is only "fatal"."""

kafka_log = logging.getLogger("onceflow.kafka")
log = structlog.get_logger("onceflow.processor")


@dataclass(frozen=True, slots=True)
class ConsumeSettings:
    """``kafka`` are librdkafka properties; ``protocol`` is ``auto``, ``consumer`` or ``classic``."""

    kafka: Mapping[str, object]
    group: str
    topics: tuple[str, ...]
    protocol: str


@dataclass(slots=True)
class _Held:
    """A partition that Kafka gave us.  ``begin`` is None until the worker has taken it over."""

    generation: int
    look_at: float = 0.0
    renew: Renew | None = None
    begin: Begin | None = None
    checked: bool = False
    last_offset: int = -1


class ConsumeThread(threading.Thread):
    """Feeds the handoff from Kafka until it is stopped."""

    def __init__(
        self,
        handoff: Handoff,
        *,
        settings: ConsumeSettings,
        rules: Rules,
        view: LogView,
        count: Callable[[str], None],
    ) -> None:
        """``count(kind)`` counts what went wrong, for the metrics."""
        super().__init__(name="consume", daemon=True)
        self._handoff = handoff
        self._settings = settings
        self._rules = rules
        self._view = view
        self._count = count
        self._ending = threading.Event()
        self._held: dict[Partition, _Held] = {}
        self._generation = 0
        self._paused = False
        self._offsets = GroupOffsets(count)
        self._protocol = "consumer" if settings.protocol == "auto" else settings.protocol
        self._errors = ConsumerErrors(count)
        self._stalls = StallWatch()
        self.failure: BaseException | None = None

    def stop(self) -> None:
        """Leave the group and end; ``join`` waits for it."""
        self._ending.set()
        self._handoff.wake()

    def run(self) -> None:
        """Consume; a fatal error of the client builds a new consumer, any other exception ends the process."""
        while not self._ending.is_set():
            try:
                self._consume_once()
            except BaseException as error:  # noqa: BLE001 - told to the worker, which ends the process.
                self.failure = error
                self._handoff.wake()
                return

    def _consume_once(self) -> None:
        try:
            self._consume()
        except KafkaException as error:
            self._after_fatal(error)

    def _consume(self) -> None:
        properties = consumer_properties(self._settings.kafka, group=self._settings.group, protocol=self._protocol)
        consumer = Consumer(
            {**properties, "error_cb": self._errors.note, "on_commit": self._offsets.on_commit, "logger": kafka_log}
        )
        try:
            consumer.subscribe(
                list(self._settings.topics),
                on_assign=whole(self._on_assign),
                on_revoke=whole(self._on_revoke),
                on_lost=whole(self._on_lost),
            )
            log.info("consuming", topics=self._settings.topics, group=self._settings.group, protocol=self._protocol)
            while not self._ending.is_set():
                self._turn(consumer)
        finally:
            consumer.close()
            self._forget_all()

    def _turn(self, consumer: Consumer) -> None:
        for command in self._handoff.take_commands():
            self._obey(consumer, command)
        self._look_at_logs(consumer)
        self._offsets.commit(consumer)
        room = self._handoff.room()
        if room == 0 and not self._handoff.wait_for_room(ROOM_WAIT_SECONDS):
            # The worker needs longer: fetch nothing, but keep polling, or the group would take us for dead.
            self._pause(consumer)
        if room == 0 and not self._paused:
            return
        message = consumer.poll(POLL_SECONDS)
        if message is not None:
            more = consumer.consume(room - 1, timeout=0) if room > 1 else []
            self._take(consumer, [message, *more])
        if self._paused and self._handoff.room():
            self._resume(consumer)
        elif not self._paused:
            self._stalls.look(consumer, self._watched, now=time.monotonic())

    def _take(self, consumer: Consumer, messages: list[Message]) -> None:
        items: list[Item] = []
        now = datetime.now(UTC)
        for message in messages:
            error = message.error()
            if error is not None:
                self._on_message_error(consumer, message, error)
                continue
            record = self._wanted(consumer, message)
            if record is not None:
                # Here, because this thread works while the worker waits for the database.
                items.append(admit(record, rules=self._rules, now=now))
        if items:
            hit("processor.after_poll")
            self._handoff.put_items(items)

    def _wanted(self, consumer: Consumer, message: Message) -> Record | None:
        """Turn a message into a record, unless nobody asked for it."""
        partition = partition_of(message)
        held, offset = self._held.get(partition), message.offset()
        if held is None or held.begin is None or offset is None or offset <= held.last_offset:
            return None
        if offset < held.begin.offset:
            # The client has not followed the seek, whatever it said.
            self._begin_anew(consumer, partition)
            return None
        held.last_offset = offset
        record = record_of(message, generation=held.generation)
        if not held.checked and not self._check_first(consumer, record, held, held.begin):
            return None
        return record if offset >= held.begin.next_offset else None

    def _check_first(self, consumer: Consumer, record: Record, held: _Held, begin: Begin) -> bool:
        fingerprint = record_fingerprint(
            offset=record.offset, timestamp_ms=record.timestamp_ms, key=record.key, value=record.value
        )
        low = begin.offset
        if record.offset != begin.offset:
            try:
                low = self._view.look(consumer, record.partition).bounds.low
            except Failure:
                # Without an answer nothing can be judged: look at the log again and begin anew.
                self._begin_anew(consumer, record.partition)
                return False
        given = self._rules.inputs.get(record.partition.topic)
        compacted = given is not None and given.compacted
        stop = judge_first_record(begin, offset=record.offset, fingerprint=fingerprint, low=low, compacted=compacted)
        if stop is None:
            held.checked = True
            return True
        self._stand_still(consumer, record.partition, stop)
        return False

    def _stand_still(self, consumer: Consumer, partition: Partition, stop: Stop) -> None:
        consumer.pause([TopicPartition(partition.topic, partition.number)])
        held = self._held.get(partition)
        if held is not None:
            held.begin = None
        self._handoff.put_notice(Stopped(partition, stop))

    def _on_message_error(self, consumer: Consumer, message: Message, error: KafkaError) -> None:
        self._refuse(error)
        # The client tells a fatal error as one of this code, whose own flag is not set.
        if error.fatal() or error.code() == _FATAL:
            raise KafkaException(error)
        self._count("message_error")
        if error.code() == _OUT_OF_RANGE and message.topic() is not None:
            # It comes once, and then this partition would stand still silently.
            self._stand_still(consumer, partition_of(message), Stop("offset_out_of_range", error.str()))
            return
        log.warning("kafka_message_error", code=error.name(), detail=error.str())

    def _obey(self, consumer: Consumer, command: Command) -> None:
        match command:
            case Done(next_offsets):
                self._offsets.note(next_offsets)
            case Read(partition, generation, begin):
                held = self._held.get(partition)
                if held is not None and held.generation == generation:
                    self._read(consumer, partition, held, begin)
            case Renew(partition):
                held = self._held.get(partition)
                if held is not None:
                    self._begin_anew(consumer, partition, command)

    def _begin_anew(self, consumer: Consumer, partition: Partition, renew: Renew | None = None) -> None:
        consumer.pause([TopicPartition(partition.topic, partition.number)])
        self._held[partition] = self._fresh(renew)

    def _fresh(self, renew: Renew | None = None) -> _Held:
        self._generation += 1
        return _Held(self._generation, renew=renew)

    def _read(self, consumer: Consumer, partition: Partition, held: _Held, begin: Begin) -> None:
        """Seek and go; a partition that was only just assigned may need a moment before it can be sought."""
        place = TopicPartition(partition.topic, partition.number, begin.offset)
        give_up_at = time.monotonic() + SEEK_SECONDS_MAX
        while True:
            try:
                consumer.seek(place)
                break
            except KafkaException as error:
                if error.args[0].code() == _STATE and time.monotonic() > give_up_at:
                    # After an error of its own, such as an offset out of range, the client never lets it be sought again.
                    self._count("seek_failed")
                    raise
                if error.args[0].code() != _STATE:
                    log.warning("seek_failed", partition=str(partition), detail=str(error.args[0]))
                    self._held[partition] = self._fresh()
                    return
                # Whatever comes meanwhile belongs to other partitions and is taken, or it would be missing for ever.
                message = consumer.poll(SEEK_POLL_SECONDS)
                if message is not None:
                    self._take(consumer, [message])
                if self._held.get(partition) is not held:
                    return
        held.begin = begin
        held.checked = begin.fingerprint is None
        if not self._paused:
            consumer.resume([TopicPartition(partition.topic, partition.number)])
        log.info("partition_read", partition=str(partition), next_offset=begin.next_offset)

    def _look_at_logs(self, consumer: Consumer) -> None:
        """Tell the worker what the logs of newly assigned partitions look like."""
        now = time.monotonic()
        self._view.drain()
        for partition, held in list(self._held.items()):
            if held.look_at > now:
                continue
            try:
                if held.renew is not None and held.renew.prove:
                    place = TopicPartition(partition.topic, partition.number, held.renew.next_offset)
                    consumer.commit(offsets=[place], asynchronous=False)
                look = self._view.look(consumer, partition)
            except (KafkaException, Failure) as error:
                self._count("look_failed")
                log.warning("look_failed", partition=str(partition), detail=str(error))
                held.look_at = now + (PROVE_AGAIN_SECONDS if held.renew else LOOK_AGAIN_SECONDS)
                continue
            held.look_at = float("inf")
            self._handoff.put_notice(
                Assigned(partition, held.generation, look.topic_id, look.bounds, look.start_offset)
            )

    def _on_assign(self, consumer: Consumer, given: list[TopicPartition]) -> None:
        # Paused until the worker has taken the position over, and then sought.  The offset here is never read from,
        # but without one the client would ask for the group's, find none, and leave the partition in error; so it would
        # with 0 where the log begins later.  The end would do, but whatever went wrong then would skip records.
        consumer.incremental_assign([TopicPartition(place.topic, place.partition, OFFSET_BEGINNING) for place in given])
        if given:
            consumer.pause(given)
        for place in given:
            self._held[Partition(place.topic, place.partition)] = self._fresh()

    def _on_revoke(self, consumer: Consumer, taken: list[TopicPartition]) -> None:
        for place in taken:
            self._handoff.put_notice(Revoked(Partition(place.topic, place.partition), lost=False))
        # What is in hand is committed first, so that the next owner reads nothing twice.
        if taken and not self._handoff.wait_until_idle(REVOKE_WAIT_SECONDS):
            log.info("revoked_while_busy", partitions=len(taken))
        for command in self._handoff.take_commands():
            if isinstance(command, Done):
                self._offsets.note(command.next_offsets)
        self._offsets.commit(consumer, at_once=True)
        self._give_up(consumer, taken)

    def _on_lost(self, consumer: Consumer, taken: list[TopicPartition]) -> None:
        log.warning("partitions_lost", partitions=len(taken))
        self._count("partitions_lost")
        for place in taken:
            self._handoff.put_notice(Revoked(Partition(place.topic, place.partition), lost=True))
        self._give_up(consumer, taken)

    def _give_up(self, consumer: Consumer, taken: list[TopicPartition]) -> None:
        for place in taken:
            self._held.pop(Partition(place.topic, place.partition), None)
            self._offsets.forget(Partition(place.topic, place.partition))
        if taken:
            consumer.incremental_unassign(taken)

    def _forget_all(self) -> None:
        for partition in self._held:
            self._handoff.put_notice(Revoked(partition, lost=True))
        self._held.clear()
        self._offsets.forget_all()
        self._stalls.forget()
        self._paused = False

    def _pause(self, consumer: Consumer) -> None:
        if not self._paused:
            consumer.pause(self._reading())
            self._paused = True
            self._stalls.forget()

    def _resume(self, consumer: Consumer) -> None:
        consumer.resume(self._reading())
        self._paused = False

    def _reading(self) -> list[TopicPartition]:
        return [
            TopicPartition(partition.topic, partition.number)
            for partition, held in self._held.items()
            if held.begin is not None
        ]

    def _watched(self) -> dict[Partition, bool]:
        """Return what is read, and what waits for a look at its log; not what waits for the worker or for a person."""
        held = self._held.items()
        return {at: one.begin is not None for at, one in held if one.begin is not None or one.look_at < float("inf")}

    def _refuse(self, error: KafkaError) -> None:
        """End the process for a right that was missing from the start; one that is taken later may be given back."""
        if error.code() in REFUSALS and self._generation == 0:
            raise Misconfigured("broker_refused", f"Kafka refused the consumer: {error.str()}")

    def _after_fatal(self, error: KafkaException) -> None:
        if self._errors.refusal is not None:
            self._refuse(self._errors.refusal)
        self._count("consumer_rebuilt")
        if _NOT_SUPPORTED in error.args[0].str() and self._settings.protocol == "auto" and self._protocol == "consumer":
            log.info("group_protocol_classic", reason="the broker does not have the new group protocol")
            self._protocol = "classic"
            return
        log.error("consumer_rebuilt", detail=str(error.args[0]))
        self._ending.wait(REBUILD_SECONDS)
