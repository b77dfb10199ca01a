"""Which parked or quarantined events are meant, and what is wrong with how that was said.  Pure.

Rule: all faults are told at once, before anything is asked of the database; a text is compared as a whole and only ever
goes to the server as a parameter.  Only a type may be a prefix.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from typing import Any

ANY_SUFFIX = ".*"
TEXT_CHARACTERS_MAX = 1_000
IDS_MAX = 1_000
BIGINT_MAX = 2**63 - 1
INTEGER_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which rows are meant; None means any.

    Attributes:
        type: exact, or with ``.*`` at the end.
        handler, code, error, group: how they failed; a group is type, handler and error in one.
        account, order_key, event_id: whose they are.
        topic, partition, from_offset, to_offset: where they were read, both ends included.
        since, until: when they were put there, ``until`` not included.
        without_identity: only records that nobody vouches for.
        decided: those of quarantine that were decided about as well.
    """

    type: str | None = None
    handler: str | None = None
    code: str | None = None
    error: str | None = None
    group: str | None = None
    account: str | None = None
    order_key: str | None = None
    event_id: str | None = None
    topic: str | None = None
    partition: int | None = None
    from_offset: int | None = None
    to_offset: int | None = None
    since: datetime | None = None
    until: datetime | None = None
    without_identity: bool = False
    decided: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether it names no row in particular."""
        return self in (Filter(), Filter(decided=True))

    def parameters(self) -> dict[str, Any]:
        """Return the parameters of the statements that take a filter."""
        return asdict(self)


def faults_of(wanted: Filter) -> list[str]:
    """Return everything that is wrong with a filter, in words for whoever typed it."""
    return [*_texts(wanted), *_patterns(wanted), *_numbers(wanted), *_contradictions(wanted)]


def faults_of_ids(ids: Sequence[str]) -> list[str]:
    """Return what is wrong with a list of ids."""
    if len(ids) > IDS_MAX:
        return [f"more than {IDS_MAX} ids were given; use a filter"]
    return [fault for one in ids for fault in _text_faults("an id", one)]


def _texts(wanted: Filter) -> Iterator[str]:
    for one in fields(wanted):
        value = getattr(wanted, one.name)
        if isinstance(value, str):
            yield from _text_faults(_option(one.name), value)


def _text_faults(name: str, text: str) -> Iterator[str]:
    if not text:
        yield f"{name} is empty"
    if len(text) > TEXT_CHARACTERS_MAX:
        yield f"{name} is longer than {TEXT_CHARACTERS_MAX} characters"
    elif "\0" in text:
        yield f"{name} holds a NUL character"
    elif not text.isprintable():
        yield f"{name} holds characters that cannot be printed"


def _patterns(wanted: Filter) -> Iterator[str]:
    """What none of these can hold would only find nothing, and look as if there were nothing."""
    if "*" in (wanted.type or "").removesuffix(ANY_SUFFIX):
        yield f"--type takes a type, or a prefix and {ANY_SUFFIX}, such as invoice.*"
    for name in ("handler", "code", "error", "group"):
        if "*" in (getattr(wanted, name) or ""):
            yield f"{_option(name)} is compared as a whole: * stands for nothing there"


def _numbers(wanted: Filter) -> Iterator[str]:
    for name, highest in (("partition", INTEGER_MAX), ("from_offset", BIGINT_MAX), ("to_offset", BIGINT_MAX)):
        value = getattr(wanted, name)
        if value is not None and not 0 <= value <= highest:
            yield f"{_option(name)} is {value}; it is a number from 0 to {highest}"


def _contradictions(wanted: Filter) -> Iterator[str]:
    first, last = wanted.from_offset, wanted.to_offset
    if first is not None and last is not None and first > last:
        yield f"--offset-range begins at {first} and ends before it, at {last}"
    if wanted.since is not None and wanted.until is not None and wanted.since >= wanted.until:
        yield "--since is not before --until"
    if wanted.partition is not None and wanted.topic is None:
        yield "--partition needs --topic"
    if (wanted.from_offset is not None or wanted.to_offset is not None) and wanted.partition is None:
        yield "--offset-range needs --topic and --partition"
    if wanted.group is not None and any((wanted.type, wanted.handler, wanted.error)):
        yield "--group says type, handler and error already; leave out --type, --handler and --error"
    if wanted.without_identity and any((wanted.account, wanted.event_id, wanted.order_key)):
        yield "--without-identity contradicts --account, --event-id and --key"


def _option(name: str) -> str:
    named = {"order_key": "key", "from_offset": "offset-range", "to_offset": "offset-range"}
    return f"--{named.get(name, name).replace('_', '-')}"


def read_offset_range(text: str) -> tuple[int | None, int | None]:
    """Return both ends of ``FIRST..LAST``; either may be left out, and one number stands for itself.

    Raises:
        ValueError: it is not in that form.
    """
    first, dots, last = text.partition("..")
    if not dots:
        return int(first), int(first)
    if not first and not last:
        raise ValueError("both ends are missing")
    return (int(first) if first else None), (int(last) if last else None)
