"""Makes rows into records, as fast as one core can.

Rule: what a record looks like is decided by ``onceflow_schemas.outcome_record`` alone.  This module asks it once per
lane, type and revision, and for every further row puts that row's own texts into a copy of the answer, with the facts that it tells
behind them; whatever is unusual about a row (other headers, withheld) goes through it whole.  One record costs 1 microsecond
this way and 11 without, of about 15 for all that the relay does with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple, cast
from uuid import UUID

import orjson

from onceflow_schemas.outcome_record import OutcomeRow, outcome_headers, outcome_value
from onceflow_schemas.times import parse_time
from onceflow_schemas.told_facts import FACTS_HEADER, NO_HEADERS, told_text

Headers = list[tuple[str, str | bytes | None]]
"""The type that the Kafka client's own stub wants; ours hold bytes only."""

TEMPLATES_MAX: Final = 10_000
_OWN: Final = ("ce_id", "ce_time", "ce_subject", "onceflow_sequence", "onceflow_cause", "onceflow_outcome_id")


class StoredOutcome(NamedTuple):
    """A row of ``onceflow.outcome`` with its texts as they go out, in UTF-8; see query ``outcome_page``."""

    lane: int
    seq: int
    outcome_id: bytes
    revision: int
    ce_id: bytes
    type: str
    key: bytes
    value: bytes
    headers: str
    cause: bytes
    withheld: str | None
    created_at: bytes


class Prepared(NamedTuple):
    """One outcome as bytes; a plain tuple, because there is one per record."""

    seq: int
    ce_id: bytes
    key: bytes
    value: bytes
    headers: Headers


@dataclass(frozen=True, slots=True)
class Unencodable:
    """A row that cannot be made into a record."""

    seq: int
    reason: str


class Encoder:
    """Encodes the rows of one deployment.

    Args:
        deployment: id of the deployment, for ``ce_source``.
        refill: True when records go into holes, under their old ids and sequences.
    """

    def __init__(self, *, deployment: str, refill: bool = False) -> None:
        self._deployment, self._refill = deployment, refill
        self._templates: dict[tuple[int, str, int], tuple[Headers, tuple[int, ...]]] = {}

    def encode(self, row: StoredOutcome) -> Prepared | Unencodable:
        """Make a row into a record."""
        lane, seq, outcome_id, revision, ce_id, kind, key, value, own_headers, cause, withheld, created_at = row
        plain = own_headers == NO_HEADERS and withheld is None
        facts = told_text(own_headers) if not plain and withheld is None else None
        found = self._templates.get((lane, kind, revision)) if plain or facts is not None else None
        if found is None:
            return self._whole(row, learn=plain)
        template, (at_id, at_time, at_subject, at_sequence, at_cause, at_outcome) = found
        headers = template.copy()
        headers[at_id] = ("ce_id", ce_id)
        headers[at_time] = ("ce_time", created_at)
        headers[at_subject] = ("ce_subject", key)
        headers[at_sequence] = ("onceflow_sequence", b"%d" % seq)
        headers[at_cause] = ("onceflow_cause", cause)
        headers[at_outcome] = ("onceflow_outcome_id", outcome_id)
        if facts is not None:
            headers.append((FACTS_HEADER, facts.encode()))
        return Prepared(seq, ce_id, key, value, headers)

    def _whole(self, row: StoredOutcome, *, learn: bool) -> Prepared | Unencodable:
        try:
            outcome = _outcome(row)
            headers = cast("Headers", outcome_headers(outcome, deployment=self._deployment, refill=self._refill))
        except (AttributeError, TypeError, ValueError) as error:
            return Unencodable(row.seq, f"its headers are not texts ({type(error).__name__})")
        if learn:
            if len(self._templates) >= TEMPLATES_MAX:
                self._templates.clear()
            names = [name for name, _ in headers]
            places = tuple(names.index(name) for name in _OWN)
            self._templates[row.lane, row.type, row.revision] = headers.copy(), places
        return Prepared(row.seq, row.ce_id, row.key, outcome_value(outcome), headers)


def _outcome(row: StoredOutcome) -> OutcomeRow:
    return OutcomeRow(
        lane=row.lane,
        seq=row.seq,
        outcome_id=UUID(row.outcome_id.decode()),
        revision=row.revision,
        ce_id=UUID(row.ce_id.decode()),
        type=row.type,
        key=row.key.decode(),
        value=row.value,
        # Of what is withheld only the place goes out: its own headers may be what could not be published.
        headers={} if row.withheld is not None else orjson.loads(row.headers),
        cause=row.cause.decode(),
        withheld=row.withheld,
        created_at=parse_time(row.created_at.decode()),
    )
