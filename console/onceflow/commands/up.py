"""``onceflow up``: everything on this machine, as one tree of processes.

Rule: whatever ends ``up`` ends all that it started, in an order in which nothing is lost: first no new events, then
no new effects, then no new outcomes, then the services.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from os import W_OK, X_OK, access
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onceflow.command_options import Config, Json, Live, Set, setting_sources
from onceflow.results import say, write_object

if TYPE_CHECKING:
    from onceflow.embedded import EmbeddedServices
    from onceflow.local_system import LocalSystem
    from onceflow.settings import LoadedSettings, SettingSources
    from onceflow.supervisor import ProcessPart, Supervisor

DATA_FOLDER = Path(".onceflow")
READY_FILE = "ready.json"

_SIMULATED = [
    "Let something happen at the simulated Stripe, or go wrong there:",
    "  onceflow simulate trigger payment_intent.succeeded",
    "  onceflow simulate fault lost_answer --times 3",
    "",
]


class _Terminated(KeyboardInterrupt):
    """SIGTERM came while the services started: a stop that was asked for."""


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
        bool, typer.Option("--simulator/--no-simulator", help="Call a simulated Stripe, started here, or the real one.")
    ] = True,
    config: Config = None,
    assignments: Set = None,
    live: Live = False,
    as_json: Json = False,
) -> None:
    """Start everything on this machine and keep it running until Ctrl-C."""
    if ready_file is not None:
        _check_ready_file(ready_file)
    flags = {"processor.handlers": ("--handlers", handlers), "bridge.port": ("--port", port)}
    loaded = _settings(
        setting_sources(config=config, kafka_config=None, assignments=assignments, live=live, flags=flags)
    )

    from onceflow.embedded import EmbeddedServices
    from onceflow.handlers_check import check_handlers
    from onceflow.local_system import require_bridge_port
    from onceflow.settings import forget_libpq_variables, user_cache_folder
    from onceflow_producer.lifetime import Lifetime

    forget_libpq_variables()
    if loaded.settings.processor.handlers is not None:
        check_handlers(loaded.settings.processor.handlers, folder=Path.cwd())
    cache = loaded.settings.runtime.cache_folder or user_cache_folder()
    services = EmbeddedServices(data_dir=data, cache_dir=cache, progress=say)
    ready_files = [services.folder.root / READY_FILE, *([] if ready_file is None else [ready_file.absolute()])]

    def claimed() -> None:
        # Whoever waits for the ready file must not find that of an earlier run, which may have been killed.
        for path in ready_files:
            path.unlink(missing_ok=True)
        require_bridge_port(loaded)

    try:
        with _term_as_interrupt():
            services.start(claimed=claimed)
    except _Terminated:
        say("stopped before everything was started")
        return
    with Lifetime() as lifetime:
        try:
            system = _system(services, loaded, live=live, simulated=simulator)
            supervisor = _supervisor(system, ready_files=ready_files, as_json=as_json)
            supervisor.run(lifetime)
        finally:
            say(f"stopping ({lifetime.reason or 'failed'})")
            services.stop()
            say("stopped")
        if lifetime.reason == "SIGINT" and not supervisor.was_ready:
            raise KeyboardInterrupt


def _check_ready_file(path: Path) -> None:
    folder = path.absolute().parent
    if not folder.is_dir():
        raise typer.BadParameter(f"the folder of --ready-file {path} does not exist")
    if path.is_dir():
        raise typer.BadParameter(f"--ready-file {path} is a folder; name a file in it")
    if not access(folder, W_OK | X_OK):
        raise typer.BadParameter(f"the folder of --ready-file {path} cannot be written")


def _settings(sources: SettingSources) -> LoadedSettings:
    from onceflow.input_checks import require_read_topics
    from onceflow.logs import configure
    from onceflow.settings import load_settings

    loaded = load_settings(sources)
    require_read_topics(loaded.settings)
    configure(level=loaded.settings.logs.level, format=loaded.settings.logs.format)
    unused = sorted(name for name in loaded.given if name.startswith(("kafka.", "database.")))
    if unused:
        say(f"note: up has a Kafka and a PostgreSQL of its own and does not use {', '.join(unused)}")
    return loaded


def _system(services: EmbeddedServices, loaded: LoadedSettings, *, live: bool, simulated: bool) -> LocalSystem:
    from onceflow.local_identity import local_identity
    from onceflow.local_system import LocalSystem, claim_all_ports, prepare

    given_port = loaded.given.get("bridge.port")
    system = LocalSystem(
        loaded=loaded,
        live=live,
        services=services,
        identity=local_identity(services.folder.root),
        ports=claim_all_ports(services, bridge_port=None if given_port is None else loaded.settings.bridge.port),
        folder=Path.cwd(),
        simulated=simulated,
    )
    unused = sorted({"stripe.api_key", "stripe.api_keys", "stripe.api_base"} & loaded.given.keys())
    if simulated and unused:
        say(f"note: up calls its simulated Stripe and does not use {', '.join(unused)}; --no-simulator does")
    if "operator" not in system.names:
        say("note: operations are not carried out: there is no simulator and no stripe.api_key")
    prepare(system, say=say)
    return system


def _supervisor(system: LocalSystem, *, ready_files: list[Path], as_json: bool) -> Supervisor:
    from onceflow.local_system import SIMULATOR
    from onceflow.supervisor import ServicePart, Supervisor, Views

    services = system.services
    parts = {name: system.part(name) for name in system.names}
    addresses = [services.database_url, services.kafka_bootstrap]
    seen: set[str] = set()

    def follow(name: str) -> None:
        """Start our own parts again when a service came back under another address; introduce a new simulator."""
        if name == SIMULATOR:
            if name in seen:
                say(f"{name}: it keeps nothing on disk, so it is an empty Stripe now")
            _join_simulator(system, parts[name])
        seen.add(name)
        current = [services.database_url, services.kafka_bootstrap]
        if current != addresses:
            addresses[:] = current
            for part in parts.values():
                part.interrupt()

    views = Views(
        ready=system.ready,
        changed=follow,
        say=say,
        announced=lambda content: _announce(content, system=system, ready_file=ready_files[-1], as_json=as_json),
    )
    running = [ServicePart("postgres", services.postgres), ServicePart("kafka", services.kafka)]
    return Supervisor(running, list(parts.values()), ready_files=ready_files, views=views)


def _join_simulator(system: LocalSystem, part: ProcessPart) -> None:
    from onceflow_simulator import SimulatorRefused

    try:
        system.join_simulator()
    except (OSError, SimulatorRefused) as error:
        say(f"simulator: it does not take the bridge's address ({error}), starting it again")
        part.interrupt()


@contextmanager
def _term_as_interrupt() -> Iterator[None]:
    """While the services start, SIGTERM ends that as Ctrl-C does, and what was started is stopped again."""
    import signal

    def interrupt(_number: int, _frame: Any) -> None:
        raise _Terminated

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
    example = "onceflow.examples.payments:handlers (the example; yours: --handlers module:name)"
    stripe = f"{system.stripe_url} (simulated; API key {system.stripe_key})" if system.simulated else "the real one"
    lines = [
        "",
        "onceflow is up.",
        "",
        f"  webhook     {content['webhook_url']}",
        f"  secret      {content['webhook_secret']}",
        f"  handlers    {handlers or example}",
        f"  stripe      {stripe}",
        f"  topics      {content['event_topic']} -> {content['outcome_topic']} on {content['kafka_bootstrap']}",
        f"  ready file  {ready_file} (all addresses, process ids and secrets)",
        f"  logs        {system.services.folder.logs}",
        "",
        *(_SIMULATED if system.simulated else []),
        "Send it test events of your own Stripe account:",
        f"  stripe listen --forward-to {content['webhook_url'].removeprefix('http://')}",
        "  (start `onceflow up` with STRIPE_WEBHOOK_SECRET=$(stripe listen --print-secret), so that it knows them)",
        "",
        "Ctrl-C stops everything; the data stays.",
    ]
    with suppress(OSError):
        print("\n".join(lines), flush=True)
