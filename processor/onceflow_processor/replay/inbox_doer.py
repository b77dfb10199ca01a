"""Runs what is missing through the inbox: the same attempts as for live events, without a position.

Rule: nothing here decides whether an event runs; its marker does, in the transaction of its effects.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from psycopg import Connection

from onceflow_processor.admission import Item
from onceflow_processor.batch_runner import BatchEnd, BatchRunner, ConnectionSpoiled
from onceflow_processor.breaker import Breaker
from onceflow_processor.claim import OUT_OF_TURN, Entry
from onceflow_processor.deadline import Deadline
from onceflow_processor.known import Known
from onceflow_processor.position import Position
from onceflow_processor.replay.runs import Progress
from onceflow_processor.replay.surroundings import Surroundings
from onceflow_schemas.sql import queries

IGNORED_TOO = Entry(queries("replay")["claim_ignored_too"], has_progress=False)


class InboxDoer:
    """Runs events that have no marker, and with ``ignored`` those whose marker says so.

    Args:
        surroundings: connection, settings and limits.
        ignored: take up ignored events whose type has handlers now.
    """

    def __init__(self, surroundings: Surroundings, *, ignored: bool) -> None:
        self._around = surroundings
        self._entry = IGNORED_TOO if ignored else OUT_OF_TURN
        self._known = Known()
        self._breaker = Breaker()
        self._deadline = Deadline(surroundings.handler_deadline_seconds)
        given = surroundings.settings.attempt
        run = replace(given.run, handlers=given.handlers.for_replay())
        self._settings = replace(given, run=run)

    def do(self, items: Sequence[Item], progress: Progress) -> str | None:
        """Run items of one partition in their order, in one transaction or several, with the run's row in each.

        Returns:
            Why it cannot go on now; None when all is done, or the process was asked to stop.

        Raises:
            LeaseLost: another process goes on with the run.
            Unavailable: the database is away.
        """
        end = BatchEnd()
        partition = items[0].record.partition
        positions = {partition: Position(self._around.place.topic_id, 0, items[0].record.offset, None)}

        def _note(connection: Connection[Any], part: Sequence[Item], counts: Mapping[str, int]) -> None:
            self._settle(progress, end)
            progress.note(connection, part, counts=counts)

        while items and not self._around.stopping():
            runner = BatchRunner(
                self._around.connection,
                settings=self._settings,
                known=self._known,
                deadline=self._deadline,
                breaker=self._breaker,
                wait=self._around.wait,
                entry=replace(self._entry, note=_note),
            )
            try:
                runner.run(items, positions=positions, end=end)
            except ConnectionSpoiled:
                self._around.reconnect()
                self._known.forget_all()
            finally:
                self._settle(progress, end)
            if partition in end.held:
                return f"{partition} offset {end.held[partition]}: {end.reasons[partition]}"
            items = [item for item in items if end.is_open(item)]
        return None

    @staticmethod
    def _settle(progress: Progress, end: BatchEnd) -> None:
        for position in end.positions.values():
            progress.committed(position.next_offset)
