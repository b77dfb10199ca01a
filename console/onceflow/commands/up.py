"""``onceflow up``: everything on this machine, as one tree of processes.

Rule: whatever ends ``up`` ends all that it started, in an order in which nothing is lost: first no new events, then
no new effects, then no new outcomes, then the services.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onceflow.command_options import Config, Json, Live, Set, setting_sources
from onceflow.results import say, write_object

if TYPE_CHECKING:
    from onceflow.embedded import EmbeddedServices
    from onceflow.local_system import LocalSystem
    from onceflow.settings import LoadedSettings

DATA_FOLDER = Path(".onceflow")
READY_FILE = "ready.json"


def up(
    *,
    data: Annotated[Path, typer.Option("--data", metavar="DIR", help="Where everything is kept.")] = DATA_FOLDER,
    handlers: Annotated[
        str | None,
        typer.Option("--handlers", metavar="MODULE:ATTRIBUTE", help="Your handlers; an example when left out."),
    ] = None,
    ready_file: Annotated[
        Path | None, typer.Option("--ready-file", metavar="PATH", help="Also write the ready file here.")
    ] = None,
    port: Annotated[
        int | None, typer.Option("--port", help="Port of the webhook; that of the last time when left out or 0.")
    ] = None,
    simulator: Annotated[
        bool, typer.Option("--simulator/--no-simulator", help="Start a simulated Stripe where there is one.")
    ] = True,
    config: Config = None,
    assignments: Set = None,
    live: Live = False,
    as_json: Json = False,
) -> None:
    """Start everything on this machine and keep it running until Ctrl-C."""
    del simulator  # This release has none; the flag is taken so that scripts need not change when it comes.
    from onceflow.embedded import EmbeddedServices
    from onceflow.settings import user_cache_folder

    flags = {"processor.handlers": ("--handlers", handlers), "bridge.port": ("--port", port)}
    sources = setting_sources(config=config, kafka_config=None, assignments=assignments, live=live, flags=flags)
    loaded = _settings(sources)
    cache = loaded.settings.runtime.cache_folder or user_cache_folder()
    services = EmbeddedServices(data_dir=data, cache_dir=cache, progress=say)
    ready_files = [services.folder.root / READY_FILE, *([] if ready_file is None else [ready_file.absolute()])]
    with _stop_signals():
        services.start()
        try:
            _run(services, loaded, live=live, ready_files=ready_files, as_json=as_json)
        finally:
            services.stop()
            say("stopped")


def _settings(sources: Any) -> LoadedSettings:
    from onceflow.logs import configure
    from onceflow.settings import load_settings

    loaded = load_settings(sources)
    configure(level=loaded.settings.logs.level, format=loaded.settings.logs.format)
    unused = sorted(name for name in loaded.given if name.startswith(("kafka.", "database.")))
    if unused:
        say(f"note: up has a Kafka and a PostgreSQL of its own and does not use {', '.join(unused)}")
    return loaded


def _run(
    services: EmbeddedServices, loaded: LoadedSettings, *, live: bool, ready_files: list[Path], as_json: bool
) -> None:
    from onceflow.local_identity import local_identity
    from onceflow.local_system import COMMANDS, LocalSystem, claim_all_ports, prepare
    from onceflow.supervisor import ServicePart, Supervisor, Views
    from onceflow_producer.lifetime import Lifetime

    for path in ready_files:
        path.unlink(missing_ok=True)
    given_port = loaded.given.get("bridge.port")
    ports = claim_all_ports(services, bridge_port=loaded.settings.bridge.port if given_port is not None else None)
    system = LocalSystem(
        loaded=loaded,
        live=live,
        services=services,
        identity=local_identity(services.folder.root),
        ports=ports,
        folder=Path.cwd(),
    )
    prepare(system, say=say)
    parts = [system.part(name) for name in COMMANDS]
    addresses = [services.database_url, services.kafka_bootstrap]

    def follow(_name: str) -> None:
        """Start our own parts again when a service came back under another address."""
        current = [services.database_url, services.kafka_bootstrap]
        if current != addresses:
            addresses[:] = current
            for part in parts:
                part.interrupt()

    views = Views(
        ready=system.ready,
        changed=follow,
        say=say,
        announced=lambda content: _announce(content, system=system, ready_file=ready_files[-1], as_json=as_json),
    )
    running = [ServicePart("postgres", services.postgres), ServicePart("kafka", services.kafka)]
    supervisor = Supervisor(running, parts, ready_files=ready_files, views=views)
    with Lifetime() as lifetime:
        try:
            supervisor.run(lifetime)
        finally:
            say("stopping" if lifetime.reason is None else f"stopping ({lifetime.reason})")
            supervisor.end()


@contextmanager
def _stop_signals() -> Iterator[None]:
    """Until the supervisor listens, SIGTERM ends a start as Ctrl-C does: what was started is stopped."""
    import signal

    def interrupt(_number: int, _frame: Any) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def _announce(content: Mapping[str, Any], *, system: LocalSystem, ready_file: Path, as_json: bool) -> None:
    if as_json:
        write_object(content)
        return
    handlers = system.loaded.settings.processor.handlers
    lines = [
        "",
        "onceflow is up.",
        "",
        f"  webhook     {content['webhook_url']}",
        f"  secret      {content['webhook_secret']}",
        f"  handlers    {handlers or 'onceflow.examples.payments:handlers (the example; yours: --handlers module:name)'}",
        f"  topics      {content['event_topic']} -> {content['outcome_topic']} on {content['kafka_bootstrap']}",
        "  database    schema onceflow; the address is in the ready file",
        f"  ready file  {ready_file}",
        f"  logs        {system.services.folder.logs}",
        "",
        "Send it real test events:",
        f"  stripe listen --forward-to {content['webhook_url'].removeprefix('http://')}",
        "  (start up with STRIPE_WEBHOOK_SECRET=$(stripe listen --print-secret), so that its signatures are known)",
        "",
        "Ctrl-C stops everything; the data stays.",
    ]
    print("\n".join(lines), flush=True)
