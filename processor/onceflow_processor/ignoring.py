"""Events of which a handler says that they are not its application's: the reason is written beside their marker.

Rule: such an event is processed like any other one, so nothing tries it again and no key waits for it; that it had no effect is
recorded, so nobody has to guess whether it was lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from psycopg import Connection

from onceflow_processor.admission import Item
from onceflow_processor.arrays import Texts
from onceflow_processor.effects import Effects, is_plain_text
from onceflow_processor.kept_records import identity_columns
from onceflow_schemas.failure import Refused
from onceflow_schemas.identity import Identity
from onceflow_schemas.quoting import quoted
from onceflow_schemas.sql import queries

REASON_CHARACTERS_MAX = 200

_SQL = queries("batch")


def note_reason(effects: Effects, *, handler: str, reason: str) -> None:
    """Note why a handler ignores the event; the last reason of a handler counts.

    Raises:
        Refused: ``effect_refused``: the reason is empty, no text, or too long.
    """
    if not is_plain_text(reason) or len(reason) > REASON_CHARACTERS_MAX:
        rule = f"a plain text of 1 to {REASON_CHARACTERS_MAX} characters"
        raise Refused("effect_refused", f"the reason to ignore an event is {rule}, not {quoted(reason)}")
    effects.ignored[handler] = reason


def reasons_of(done: Sequence[tuple[Item, Effects]]) -> dict[Identity, str]:
    """Return the reasons by event, each with the handler that gave it."""
    return {
        item.event.identity: "; ".join(f"{handler}: {reason}" for handler, reason in effects.ignored.items())
        for item, effects in done
        if effects.ignored and item.event is not None
    }


def counts_by_handler(done: Iterable[tuple[Item, Effects]]) -> dict[str, int]:
    """Return how many events each handler ignored."""
    return dict(Counter(handler for _, effects in done for handler in effects.ignored))


def write_reasons(connection: Connection[Any], reasons: Mapping[Identity, str]) -> None:
    """Write the reasons at the markers; called in the tail's pipeline."""
    rows = sorted(reasons.items())
    connection.execute(
        _SQL["tail_ignored"],
        {
            **identity_columns(identity for identity, _ in rows),
            "reasons": Texts(reason for _, reason in rows),
        },
    )
