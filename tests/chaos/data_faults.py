"""D4, D11, D13, G1, G3: bad data, bad databases, a record that kills, a crash loop at the start.

Rule: data costs one event, with its bytes kept; what cannot work is refused at start, with its reason.
"""

from __future__ import annotations

import signal
from functools import partial
from random import Random
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from onceflow.migrations import migrate
from onceflow_schemas.failure import Misconfigured
from tests.chaos.fault import fault, fired
from tests.chaos.sending import body_of, event, post_until_taken
from tests.chaos.waits import wait_processed
from tests.chaos.world import World
from tests.checker.waiting import wait_for

STATES = ("22P05", "22P02", "22003", "54001", "23505", "23514", "23502")
QUARANTINE_SECONDS = 40.0
DEATHS_MAX = 12
FAILED = frozenset({"handler_failed"})
KILLED = frozenset({"process_killed"})


def quarantined(world: World, event_id: str) -> str | None:
    """Return the code under which an event is kept."""
    rows = world.rows("SELECT code FROM onceflow.quarantine WHERE event_id = %s", event_id)
    return str(rows[0][0]) if rows else None


def _register_states() -> None:
    for state in STATES:

        def act(world: World, dice: Random, state: str = state) -> str:
            bad = event(name=f"D4{state}{dice.randrange(10**9)}")
            world.rows(
                "CREATE OR REPLACE FUNCTION shop.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
                f"RAISE EXCEPTION 'planted' USING ERRCODE = '{state}'; END $$"
            )
            world.rows(
                "CREATE TRIGGER refuse BEFORE INSERT ON shop.effect FOR EACH ROW "
                f"WHEN (NEW.event_id = '{bad['id']}') EXECUTE FUNCTION shop.refuse()"
            )
            try:
                post_until_taken(world, body_of(bad), codes=FAILED)
                code = wait_for(
                    lambda: quarantined(world, bad["id"]), limit_seconds=QUARANTINE_SECONDS, what="it is quarantined"
                )
            finally:
                world.rows("DROP TRIGGER refuse ON shop.effect")
            wait_processed(world)
            return f"{bad['id']}: {code} after {state}"

        fault(f"D4/{state}", f"a handler's statement fails with {state}", soak="data", every=2)(act)


_register_states()


@fault("D4/client", "data that psycopg itself refuses", soak="data")
def client_refuses(world: World, dice: Random) -> str:
    """A NUL in a text parameter is a DataError without a state, half an emoji cannot be encoded."""
    events = [
        event(metadata={"handler": "sends it to the database"}, description=text) for text in ("a\x00b", "\ud83d")
    ]
    for bad in events:
        post_until_taken(world, body_of(bad), codes=FAILED)
    codes = [
        wait_for(partial(quarantined, world, bad["id"]), limit_seconds=QUARANTINE_SECONDS, what="it is quarantined")
        for bad in events
    ]
    wait_processed(world)
    return f"NUL and half an emoji: {codes}"


def _refused(world: World, name: str, **settings: Any) -> tuple[int, str]:
    """Start a processor that must not start; return its exit code and its last words."""
    processor = world.part(name, role="processor", **settings)
    processor.start()
    code = processor.wait_ended(60)
    assert not processor.state_file.exists(), "it said that it is ready"
    return code, processor.last_words(3)


@fault("D13/encoding", "a database that is not UTF-8", soak="data")
def sql_ascii(world: World, dice: Random) -> str:
    """Refused at start."""
    name = f"ascii_{dice.randrange(10**9)}"
    world.rows(
        f"CREATE DATABASE {name} ENCODING 'SQL_ASCII' LOCALE_PROVIDER libc LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
    )
    url = make_conninfo(world.database_url, dbname=name)
    with psycopg.connect(url, autocommit=True) as connection, pytest.raises(Misconfigured, match="UTF8"):
        migrate(connection, progress=lambda _line: None)
    code, words = _refused(world, name, database__url=url)
    assert code in (3, 4, 5), (code, words)
    assert "UTF" in words or "encoding" in words, words
    return f"SQL_ASCII: exit code {code}"


@fault("D13/timezone", "an odd time zone and date style", soak="data")
def odd_timezone(world: World, dice: Random) -> str:
    """Times are in UTC whatever the database thinks."""
    world.rows("ALTER DATABASE onceflow SET timezone = 'Asia/Kathmandu'")
    world.rows("ALTER DATABASE onceflow SET datestyle = 'SQL, DMY'")
    try:
        for name in ("processor", "relay"):
            assert world.parts[name].stop() == 0
            world.restart(name)
        wait_processed(world, 40)
    finally:
        world.rows("ALTER DATABASE onceflow RESET ALL")
    return "Asia/Kathmandu and SQL, DMY for 40 events"


@fault("G3", "crash loop at start", soak="data")
def crash_loop(world: World, dice: Random) -> str:
    """Bad settings, handlers that cannot be imported, a schema that is missing: each try says why, none is ready."""
    name = f"empty_{dice.randrange(10**9)}"
    world.rows(f"CREATE DATABASE {name}")
    empty = make_conninfo(world.database_url, dbname=name)
    tries: list[tuple[str, dict[str, Any]]] = [
        ("handlers", {"processor__handlers": "no_such_module:handlers"}),
        ("schema", {"database__url": empty}),
        ("start", {"processor__start": "yesterday"}),
    ]
    codes = {}
    for kind, settings in tries:
        for number in range(2):
            code, words = _refused(world, f"processor-{kind}-{number}-{name}", **settings)
            assert code in (2, 3, 4), (kind, code, words)
            assert words, f"{kind}: it said nothing"
            codes[kind] = code
    wait_processed(world)
    return f"exit codes {codes}, twice each, none became ready"


@fault("G1/try", "killed between a counted try and the try itself", soak="data", points=("careful.after_try",))
def killed_after_try(world: World, dice: Random) -> str:
    """Two unclean ends without progress bring careful mode; a try that never began counts, and the record is done."""
    processor, firings = world.parts["processor"], []
    for point in ("processor.before_commit", "processor.before_commit", "careful.after_try"):
        processor.arm(point, "kill9")
        if not processor.alive:
            processor.start()
        firings.append(processor.wait_fired())
        assert processor.wait_ended() == -signal.SIGKILL
    world.restart("processor")
    wait_processed(world)
    return " then ".join(str(firing) for firing in firings)


@fault("G1", "an event whose handler kills the process", soak="data")
def poison(world: World, dice: Random) -> str:
    """Its tries are counted in commits of their own, so that it is quarantined; its neighbours are not touched."""
    bad = event(metadata={"handler": "kills the process"})
    post_until_taken(world, body_of(bad), codes=KILLED)
    processor, deaths = world.parts["processor"], 0
    while quarantined(world, bad["id"]) is None:
        if not processor.alive:
            deaths += 1
            assert deaths <= DEATHS_MAX, f"it killed the process {deaths} times and is not quarantined"
            assert processor.exit_code == -signal.SIGKILL, processor.exit_code
            world.restart("processor")
        wait_for(
            lambda: not processor.alive or quarantined(world, bad["id"]),
            limit_seconds=QUARANTINE_SECONDS,
            what="it kills the process again, or is quarantined",
        )
    wait_processed(world)
    return fired(deaths, f"killed the process {deaths} times, then quarantined with {quarantined(world, bad['id'])}")
