"""``onceflow simulate``: lets things happen, and go wrong, at the simulated Stripe of a running ``up``.

Rule: every command is one or two requests of ``onceflow_simulator.client``; what they mean is told in docs/simulator.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onceflow.command_options import Json
from onceflow.results import write_object, write_table

if TYPE_CHECKING:
    from onceflow.simulator_target import Target

app = typer.Typer(help="The simulated Stripe of a running `onceflow up`.", no_args_is_help=True, rich_markup_mode=None)

ANY_METHOD = "ANY"
METHODS = ("POST", "GET", "DELETE", ANY_METHOD)

Url = Annotated[str | None, typer.Option("--url", help="Its address; that of the ready file when left out.")]
ReadyFile = Annotated[
    Path | None,
    typer.Option("--ready-file", metavar="PATH", help="Of the `up`; ready.json or .onceflow/ready.json when left out."),
]
Anyway = Annotated[bool, typer.Option("--anyway", help="Even if keys end while onceflow still uses them.")]
SetKnobs = Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Change a knob; repeatable.")]


@app.command()
def trigger(
    *,
    event: Annotated[str, typer.Argument(metavar="EVENT", help="Such as payment_intent.succeeded.")],
    changes: Annotated[
        list[str] | None,
        typer.Option("--override", "--add", metavar="OBJECT:FIELD=TEXT", help="As Stripe's command line; repeatable."),
    ] = None,
    url: Url = None,
    ready_file: ReadyFile = None,
    as_json: Json = False,
) -> None:
    """Let an event happen, by the words of Stripe's command line."""
    from onceflow_simulator.triggers import trigger as run

    with _target(url, ready_file) as target:
        made = run(target.client.url, event, api_key=target.api_key, changes=changes or [])
    objects = {name: one.get("id", "") for name, one in made.items()}
    if as_json:
        write_object({"event": event, "objects": objects})
        return
    write_table(("object", "id", "status"), [(name, objects[name], str(made[name].get("status", ""))) for name in made])


@app.command()
def fault(
    *,
    name: Annotated[str, typer.Argument(metavar="FAULT", help="Such as lost_answer; `simulate faults` names them.")],
    times: Annotated[int, typer.Option("--times", min=0, help="How often; 0 without end.")] = 1,
    skip: Annotated[int, typer.Option("--skip", min=0, help="Let so many requests pass before.")] = 0,
    probability: Annotated[float, typer.Option("--probability", min=0.0, max=1.0, help="Of each request.")] = 1.0,
    method: Annotated[
        str | None,
        typer.Option("--method", help="POST when left out (GET for a fault of lists); ANY for all requests."),
    ] = None,
    path: Annotated[str | None, typer.Option("--path", help="Only such requests, as /v1/refunds or with *.")] = None,
    key: Annotated[str | None, typer.Option("--key", help="Only requests with this idempotency key.")] = None,
    metadata: Annotated[
        list[str] | None, typer.Option("--metadata", metavar="NAME=TEXT", help="Only such requests; repeatable.")
    ] = None,
    fields: Annotated[
        list[str] | None, typer.Option("--set", metavar="FIELD=VALUE", help="Another field of the fault; repeatable.")
    ] = None,
    url: Url = None,
    ready_file: ReadyFile = None,
    as_json: Json = False,
) -> None:
    """Let requests go wrong from now on."""
    from onceflow_simulator.faults import usual_method

    meant = (method or usual_method(name)).upper()
    if meant not in METHODS:
        raise typer.BadParameter(f"--method takes {', '.join(METHODS)}, not {method!r}")
    wanted = {
        "method": None if meant == ANY_METHOD else meant,
        "path": path,
        "key": key,
        "metadata": _pairs(metadata) or None,
    }
    match = {part: value for part, value in wanted.items() if value is not None}
    rule: dict[str, Any] = {"times": times or None, "skip": skip, "probability": probability, **_pairs(fields)}
    with _target(url, ready_file) as target:
        made = target.client.faults.add(name, match=match, **rule)
    _write({"id": made, "fault": name, "match": match, **rule}, as_json=as_json)


@app.command()
def faults(
    *,
    clear: Annotated[bool, typer.Option("--clear", help="Take all rules out of force.")] = False,
    url: Url = None,
    ready_file: ReadyFile = None,
    as_json: Json = False,
) -> None:
    """Show the rules in force and how often each has fired, and which faults there are."""
    with _target(url, ready_file) as target:
        if clear:
            target.client.faults.clear()
        found = target.client.call("GET", "/faults")
    if as_json:
        write_object(found)
        return
    columns = ("id", "fault", "fired", "of", "times", "probability")
    rows = [
        (
            one["id"],
            one["fault"],
            str(one["fired"]),
            str(one["matched"]),
            str(one.get("times", "")),
            str(one["probability"]),
        )
        for one in found["rules"]
    ]
    write_table(columns, rows)
    print(f"there are: {', '.join(found['known'])}")


@app.command()
def clock(
    *,
    advance: Annotated[str | None, typer.Option("--advance", metavar="TIME", help="Such as 90s, 15m, 25h, 3d.")] = None,
    stop: Annotated[bool, typer.Option("--stop", help="Let it stand.")] = False,
    run: Annotated[bool, typer.Option("--run", help="Let it run again.")] = False,
    anyway: Anyway = False,
    url: Url = None,
    ready_file: ReadyFile = None,
    as_json: Json = False,
) -> None:
    """Show the simulator's clock, or move it: keys end, debits settle and webhooks are repeated by it."""
    if stop and run:
        raise typer.BadParameter("--stop and --run contradict each other")
    from onceflow.simulator_target import parse_duration, require_whole_window

    asked: dict[str, Any] = {"mode": "fixed"} if stop else {"mode": "real"} if run else {}
    if advance is not None:
        try:
            asked["advance_seconds"] = parse_duration(advance)
        except ValueError as error:
            raise typer.BadParameter(f"--advance: {error}") from None
    with _target(url, ready_file) as target:
        if advance is not None:
            require_whole_window(target.client, anyway=anyway, advance_seconds=asked["advance_seconds"])
        found = target.client.call("POST", "/clock", body=asked) if asked else target.client.call("GET", "/clock")
    _write(found, as_json=as_json)


@app.command()
def ledger(
    *,
    kind: Annotated[str | None, typer.Option("--kind", help="Only charge, refund, cancel ...")] = None,
    by: Annotated[str | None, typer.Option("--by", metavar="METADATA", help="Count by this metadata.")] = None,
    url: Url = None,
    ready_file: ReadyFile = None,
    as_json: Json = False,
) -> None:
    """Show what really happened to money, per operation."""
    with _target(url, ready_file) as target:
        found = target.client.ledger(by=by, kind=kind).report
    if as_json:
        write_object(found)
        return
    rows = [
        (one["kind"], one["operation"], str(one["count"]), str(one["amount"]), " ".join(one["objects"]))
        for one in found["counts"]
    ]
    write_table(("kind", by or "operation", "times", "amount", "objects"), rows)


@app.command()
def journal(*, url: Url = None, ready_file: ReadyFile = None, as_json: Json = False) -> None:
    """Show each fault that fired."""
    with _target(url, ready_file) as target:
        found = target.client.journal()
    columns = ("n", "fault", "effect", "method", "path", "key", "object")
    _write_list(columns, found, as_json=as_json)


@app.command()
def webhooks(
    *,
    changes: SetKnobs = None,
    deliveries: Annotated[bool, typer.Option("--deliveries", help="Show each attempt instead.")] = False,
    url: Url = None,
    ready_file: ReadyFile = None,
    as_json: Json = False,
) -> None:
    """Show the endpoints, or make them worse: --set duplicate=0.1 --set drop=0.05 --set reorder=0.2."""
    knobs = _pairs(changes)
    with _target(url, ready_file) as target:
        client = target.client
        if deliveries:
            return _write_list(_DELIVERY_COLUMNS, client.deliveries(), as_json=as_json)
        for one in client.call("GET", "/webhooks")["endpoints"] if knobs else []:
            client.change_webhook(one["id"], **knobs)
        endpoints = client.call("GET", "/webhooks")["endpoints"]
    hidden = [{**one, "secrets": ["***" for _ in one["secrets"]]} for one in endpoints]
    _write_list(_ENDPOINT_COLUMNS, hidden, as_json=as_json)
    return None


_DELIVERY_COLUMNS = ("event", "type", "attempt", "status", "error")
_ENDPOINT_COLUMNS = ("id", "url", "enabled", "duplicate", "drop", "reorder", "delay_seconds", "retries_max")


@app.command()
def knobs(
    *,
    changes: SetKnobs = None,
    anyway: Anyway = False,
    url: Url = None,
    ready_file: ReadyFile = None,
    as_json: Json = False,
) -> None:
    """Show or change what the whole simulator does: latency_ms, event_lag_seconds, account_per_second ..."""
    from onceflow.simulator_target import require_whole_window

    given = _pairs(changes)
    life = given.get("key_life_seconds")
    with _target(url, ready_file) as target:
        if isinstance(life, int | float):
            require_whole_window(target.client, anyway=anyway, key_life_seconds=life)
        found = target.client.set(**given) if given else target.client.call("GET", "/knobs")
    _write(found, as_json=as_json)


@app.command()
def act(
    *,
    name: Annotated[str, typer.Argument(metavar="ACT", help="Such as settle, fail, authenticate, refund_fails.")],
    object_id: Annotated[str, typer.Argument(metavar="ID", help="The object that it is done to.")],
    url: Url = None,
    ready_file: ReadyFile = None,
    as_json: Json = False,
) -> None:
    """Let a bank, a customer or a card network do something to an object."""
    with _target(url, ready_file) as target:
        found = target.client.act(name, object_id)
    if as_json:
        write_object(found)
        return
    _write({part: found.get(part) for part in ("id", "object", "status", "amount", "currency")}, as_json=False)


@contextmanager
def _target(url: str | None, ready_file: Path | None) -> Iterator[Target]:
    from onceflow.simulator_target import find_target, told

    with told(find_target(url=url, ready_file=ready_file)) as target:
        yield target


def _pairs(given: list[str] | None) -> dict[str, Any]:
    from onceflow.simulator_target import parse_assignments

    try:
        return parse_assignments(given or [])
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _write(result: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        write_object(result)
        return
    for name, value in result.items():
        if value is not None:
            print(f"{name:28}{_plain(value)}")


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        return " ".join(f"{name}={_plain(inner)}" for name, inner in value.items())
    return " ".join(map(_plain, value)) if isinstance(value, list) else str(value)


def _write_list(columns: tuple[str, ...], found: list[dict[str, Any]], *, as_json: bool) -> None:
    if as_json:
        for one in found:
            write_object(one)
        return
    write_table(columns, [tuple("" if one[name] is None else str(one[name]) for name in columns) for one in found])
