"""The options by which parked and quarantined events are chosen, the same for every command that takes them.

Rule: everything that is wrong with them is told at once, as a mistake in the command line; an option that is not given
chooses nothing and refuses nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Annotated, Any, Literal

import typer

from onceflow_processor.failures.filter import Filter, faults_of, faults_of_ids, read_offset_range

Kind = Literal["parked", "quarantine"]


def _option(help: str, *names: str, metavar: str = "TEXT") -> Any:
    return Annotated[str | None, typer.Option(*names, metavar=metavar, help=help)]


_TEXTS: Mapping[str, Any] = {
    "type": _option("Of this event type, or a prefix and .*.", "--type"),
    "handler": _option("That this handler failed with.", "--handler"),
    "code": _option("With this failure code.", "--code"),
    "error": _option("With this class of error, such as KeyError.", "--error"),
    "group": _option("Of this group, as list --groups tells.", "--group"),
    "account": _option("Of this account.", "--account"),
    "order_key": _option("With this order key.", "--key"),
    "event_id": _option("With this event id.", "--event-id"),
    "topic": _option("Read from this topic.", "--topic"),
    "offset_range": _option("Read there, both ends included.", "--offset-range", metavar="FIRST..LAST"),
    "since": _option("Put there at or after this RFC 3339 time.", "--since", metavar="TIME"),
    "until": _option("Put there before this RFC 3339 time.", "--until", metavar="TIME"),
}
_PARTITION: Any = Annotated[int | None, typer.Option("--partition", help="Read from this partition.")]
_WITHOUT_IDENTITY: Any = Annotated[
    bool, typer.Option("--without-identity", help="Only records that nobody vouches for.")
]
_DECIDED: Any = Annotated[bool, typer.Option("--decided", help="Those that were decided about as well.")]


def with_filter(kind: Kind) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that gives a command the options of a filter; the command takes what they say as ``wanted``."""
    options: dict[str, tuple[Any, object]] = {name: (annotation, None) for name, annotation in _TEXTS.items()}
    options["partition"] = (_PARTITION, None)
    if kind == "quarantine":
        options |= {"without_identity": (_WITHOUT_IDENTITY, False), "decided": (_DECIDED, False)}

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        def run(**given: Any) -> None:
            command(wanted=filter_of({name: given.pop(name) for name in options}), **given)

        own = inspect.signature(command, eval_str=True)
        run.__doc__, run.__name__, run.__annotations__ = command.__doc__, command.__name__, {}
        run.__signature__ = own.replace(  # type: ignore[attr-defined]
            parameters=[
                *(one for one in own.parameters.values() if one.name != "wanted"),
                *(
                    inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
                    for name, (annotation, default) in options.items()
                ),
            ]
        )
        return run

    return decorate


def filter_of(given: Mapping[str, Any]) -> Filter:
    """Return the filter that options say.

    Args:
        given: by the names of the options.

    Raises:
        typer.BadParameter: with everything that is wrong.
    """
    faults: list[str] = []
    values = dict(given)
    offsets = values.pop("offset_range")
    if offsets is not None:
        try:
            values["from_offset"], values["to_offset"] = read_offset_range(offsets)
        except ValueError:
            faults.append("--offset-range takes FIRST..LAST, such as 100..250, 100.. or ..250")
    for name in ("since", "until"):
        values[name] = time_of(name, values[name], faults=faults)
    wanted = Filter(**values)
    _refuse([*faults, *faults_of(wanted)])
    return wanted


def checked_ids(ids: list[str] | None) -> tuple[str, ...] | None:
    """Return the ids that were given; None for none.

    Raises:
        typer.BadParameter: with everything that is wrong.
    """
    if not ids:
        return None
    _refuse(faults_of_ids(ids))
    return tuple(ids)


def time_of(name: str, text: str | None, *, faults: list[str]) -> datetime | None:
    """Return the time that an option gives, None when it was not given or is none; ``faults`` is told of the latter."""
    from onceflow.attestation_settings import zoned_time  # noqa: PLC0415 - only who gives a time pays for it

    if text is None:
        return None
    try:
        return zoned_time(text)
    except ValueError:
        faults.append(f"--{name} takes an RFC 3339 time with its zone, such as 2026-01-01T00:00:00Z")
        return None


def _refuse(faults: list[str]) -> None:
    if faults:
        raise typer.BadParameter("; ".join(faults))
