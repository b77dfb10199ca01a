"""D1 to D3, D5, D7, D10: PostgreSQL dies, loses answers, refuses, hangs.

Rule: a batch is there as a whole or not at all, whatever was lost between; nothing waits for a person.
"""

from __future__ import annotations

import os
import signal
import threading
from random import Random

import psycopg

from tests.chaos.fault import fault, fired
from tests.chaos.kills import kill_at
from tests.chaos.points import AT_START, POINTS
from tests.chaos.sending import body_of, event, post
from tests.chaos.waits import processed, wait_processed, wait_published
from tests.chaos.world import World
from tests.checker.waiting import wait_for
from tests.faults.proxy import Cut

IN_TRANSACTION = (
    "after_begin",
    "after_markers",
    "after_handler",
    "after_handlers",
    "before_outcomes",
    "before_commit",
    "after_commit",
)
FIRE_SECONDS = 30.0
HOLD_SECONDS = 6.0
LOCK_SECONDS = 4.0
PASSING = ("40001", "40P01", "55P03", "57014", "25P03", "57P01", "57P02", "57P03", "08006", "08003", "53300", "58030")
"""States after which the same batch must be done again, with nobody at fault."""


def _register_kills() -> None:
    for place in POINTS["processor"]:
        point = f"processor.{place}"

        def act(world: World, dice: Random, point: str = point) -> str:
            evidence = kill_at(world, "processor", point, at=dice.randrange(1, 12))
            wait_processed(world)
            return evidence

        fault(f"D1/killed_{place}", f"processor killed at {place}", soak="kills", points=(point,))(act)


_register_kills()


def terminate_backends(world: World, role: str) -> int:
    """End the connections of ``processor`` or ``relay`` on the server; return how many there were."""
    return len(
        world.rows(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s", f"onceflow-{role}"
        )
    )


def _register_backends() -> None:
    for place in IN_TRANSACTION:
        point = f"processor.{place}"

        def act(world: World, dice: Random, point: str = point) -> str:
            processor = world.parts["processor"]
            processor.arm(point, "sleep:0.7", at=dice.randrange(1, 12))
            firing = processor.wait_fired()
            ended = terminate_backends(world, "processor")
            wait_processed(world)
            assert processor.alive
            return fired(ended, f"{ended} backends ended during {firing}")

        fault(f"D1/backend_{place}", f"backend ended at {place}", soak="postgres", points=(point,), every=2)(act)


_register_backends()


@fault("D1/postmaster", "postmaster killed", soak="postgres")
def postmaster_killed(world: World, dice: Random) -> str:
    """kill -9 of the server, then a new one on the same folder."""
    world.load.wait_for_answers(dice.randrange(1, 40))
    pid = world.kill_service("postgres")
    world.start_service("postgres")
    wait_published(world)
    return f"SIGKILL to the postmaster {pid}"


@fault("D1/backend_killed", "one backend killed by SIGKILL: the server restarts itself", soak="postgres")
def backend_killed(world: World, dice: Random) -> str:
    """PostgreSQL takes it for a crash: every connection ends with 57P02, then recovery."""
    [pid] = world.rows("SELECT pid FROM pg_stat_activity WHERE application_name = 'onceflow-processor' LIMIT 1")[0]
    parent = int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1])  # noqa: PTH123, SIM115 - one number
    assert parent == world.service_pid("postgres"), "it is a backend of our own server"
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: _answers(world), limit_seconds=FIRE_SECONDS, what="the server is back")
    wait_published(world)
    return f"SIGKILL to the backend {pid}"


def _answers(world: World) -> bool:
    try:
        return bool(world.value("SELECT 1"))
    except psycopg.OperationalError:
        return False


def _register_commits() -> None:
    for cut in Cut:

        def act(world: World, dice: Random, cut: Cut = cut) -> str:
            proxy = world.databases["processor"]
            dropped = len(proxy.tags_dropped)
            for _ in range(2):
                world.load.wait_for_answers(dice.randrange(1, 30))
                proxy.arm(cut)
                fired(proxy.fired.wait(FIRE_SECONDS), cut.value)
                wait_processed(world, 10)
            assert world.parts["processor"].alive
            return f"2 x {cut.value}, tags dropped: {len(proxy.tags_dropped) - dropped}"

        fault(f"D2/{cut.name.lower()}", cut.value, soak="postgres")(act)


_register_commits()


def plant_state(world: World, state: str, *, table: str, after: int, times: int) -> None:
    """Let inserts into a table fail with an SQLSTATE: from the ``after``-th row on, so many times.

    A sequence counts, because it is not rolled back with the batch that failed.
    """
    body = f"""
        CREATE SEQUENCE shop.planted;
        CREATE FUNCTION shop.plant() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF nextval('shop.planted') BETWEEN {after} AND {after + times - 1} THEN
                RAISE EXCEPTION 'planted' USING ERRCODE = '{state}';
            END IF;
            RETURN NEW;
        END $$;
        CREATE TRIGGER planted BEFORE INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION shop.plant()"""
    for statement in body.split(";\n        CREATE"):
        world.rows(statement if statement.lstrip().startswith("CREATE") else f"CREATE{statement}")


def planted_count(world: World) -> int:
    """How many rows the planted trigger has seen."""
    return int(world.value("SELECT last_value FROM shop.planted"))


def unplant_state(world: World) -> None:
    """Take the trigger away."""
    world.rows("DROP FUNCTION shop.plant() CASCADE")
    world.rows("DROP SEQUENCE shop.planted")


def _register_states() -> None:
    for state in PASSING:

        def act(world: World, dice: Random, state: str = state) -> str:
            table = dice.choice(["shop.effect", "onceflow.outcome"])
            after = dice.randrange(2, 20)
            plant_state(world, state, table=table, after=after, times=2)
            try:
                wait_for(
                    lambda: planted_count(world) > after + 2, limit_seconds=FIRE_SECONDS, what="the state was raised"
                )
            finally:
                unplant_state(world)
            wait_processed(world)
            assert world.parts["processor"].alive
            return f"2 x {state} from row {after} on at {table}"

        fault(f"D3/{state}", f"SQLSTATE {state} in a batch", soak="postgres", every=2)(act)


_register_states()


@fault("D3/lock", "a stranger holds the progress rows", soak="postgres")
def rows_locked(world: World, dice: Random) -> str:
    """A real lock timeout (55P03): the batch waits, is done again, nothing is doubled."""
    before = processed(world)
    with psycopg.connect(world.database_url) as stranger:
        stranger.execute("SELECT 1 FROM onceflow.progress FOR UPDATE")
        threading.Event().wait(LOCK_SECONDS)
        held = processed(world)
        stranger.rollback()
    wait_processed(world)
    return f"rows locked for {LOCK_SECONDS} s, markers {before} -> {held}, then on"


@fault("D5/read_only", "database read-only for a while", soak="postgres")
def read_only(world: World, dice: Random) -> str:
    """25006: webhooks are taken on, processing pauses and resumes alone."""
    _set_read_only(world, on=True)
    terminate_backends(world, "processor")
    taken = [post(world, body_of(event()))[0] for _ in range(3)]
    before = processed(world)
    world.load.wait_for_answers(60)
    during = processed(world)
    _set_read_only(world, on=False)
    wait_processed(world, 40)
    assert taken == [200, 200, 200], taken
    assert during == before, f"{during - before} markers were written into a read-only database"
    return f"webhooks taken {taken}, 0 markers meanwhile, then on by itself"


def _set_read_only(world: World, *, on: bool) -> None:
    options = "-c default_transaction_read_only=off"
    with psycopg.connect(world.database_url, autocommit=True, options=options) as connection:
        connection.execute(f"ALTER SYSTEM SET default_transaction_read_only = {'on' if on else 'off'}")
        connection.execute("SELECT pg_reload_conf()")


@fault("D7/held", "PostgreSQL's packets are held back", soak="postgres")
def packets_held(world: World, dice: Random) -> str:
    """A black hole in both directions for some seconds; what was sent comes through late."""
    for proxy in world.databases.values():
        proxy.hold()
    threading.Event().wait(HOLD_SECONDS)
    held = sum(sum(proxy.bytes_held.values()) for proxy in world.databases.values())
    for proxy in world.databases.values():
        proxy.restore()
    wait_published(world)
    return fired(held, f"{held} bytes held for {HOLD_SECONDS} s")


@fault("D7/half_open", "answers of PostgreSQL vanish, then the connection resets", soak="postgres")
def half_open(world: World, dice: Random) -> str:
    """The client sends into a connection whose answers never come."""
    from tests.faults.tcp_proxy import Way  # noqa: PLC0415

    proxy = world.databases[dice.choice(["processor", "relay"])]
    proxy.drop(Way.DOWN)
    threading.Event().wait(HOLD_SECONDS)
    lost = proxy.bytes_dropped[Way.DOWN]
    proxy.restore()
    wait_published(world)
    return fired(lost, f"{lost} bytes of answers lost, then cut")


@fault("D7/dead_sockets", "all connections reset again and again", soak="postgres")
def dead_sockets(world: World, dice: Random) -> str:
    """RST on every connection, five times."""
    reset = 0
    for _ in range(5):
        for proxy in world.databases.values():
            reset += proxy.sever(reset=True)
        world.load.wait_for_answers(dice.randrange(5, 20))
    wait_published(world)
    return fired(reset, f"{reset} connections reset")


@fault("D10", "a stranger's transaction stays open", soak="postgres")
def long_transaction(world: World, dice: Random) -> str:
    """A writing transaction in the same database neither hides outcomes nor stops them."""
    world.rows("CREATE TABLE IF NOT EXISTS shop.foreign_work (n int)")
    with psycopg.connect(world.database_url) as stranger:
        stranger.execute("INSERT INTO shop.foreign_work VALUES (1)")
        [xid] = stranger.execute("SELECT pg_current_xact_id()::text").fetchone() or [None]
        wait_published(world, 40)
        stranger.rollback()
    return f"40 outcomes published while transaction {xid} was open"


assert {f"processor.{place}" for place in IN_TRANSACTION}.isdisjoint(AT_START)


@fault("D12", "a sequence of the user jumps after a crash", soak="postgres")
def sequence_jumps(world: World, dice: Random) -> str:
    """PostgreSQL's sequences have gaps after a crash; lane sequences are counted in rows and have none."""
    world.rows("CREATE SEQUENCE IF NOT EXISTS shop.jumping")
    before = max(int(world.value("SELECT nextval('shop.jumping')")) for _ in range(3))
    world.kill_service("postgres")
    world.start_service("postgres")
    after = int(world.value("SELECT nextval('shop.jumping')"))
    wait_published(world)
    return fired(after > before + 1, f"a sequence went from {before} to {after}, lanes stay dense")
