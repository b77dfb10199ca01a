"""G2: an event that has to wait, killed again and again while it is redriven.

Rule: its effect comes once, after all; other keys never wait for it.
"""

from __future__ import annotations

import signal
from random import Random

from tests.chaos.fault import fault
from tests.chaos.sending import body_of, event, post_until_taken
from tests.chaos.waits import wait_processed
from tests.chaos.world import World
from tests.checker.waiting import wait_for

POINTS = ("redrive.after_claim", "redrive.after_lock")
PARKED_SECONDS = 40.0


def state_of(world: World, event_id: str) -> str | None:
    """Return the state of an event."""
    rows = world.rows("SELECT state FROM onceflow.inbox WHERE event_id = %s", event_id)
    return str(rows[0][0]) if rows else None


def let_lease_run_out(world: World) -> None:
    """As if the lease of a killed process had run out, and the wait before the next retry with it."""
    world.rows(
        "UPDATE onceflow.parked_key SET lease_until = CASE WHEN lease_owner IS NOT NULL THEN clock_timestamp() END,"
        " due_at = clock_timestamp() WHERE reason = 'retry'"
    )


@fault("G2/redrive", "killed while a parked event is redriven", soak="data", points=POINTS)
def killed_in_redrive(world: World, dice: Random) -> str:
    """A statement of its handler is canceled until the trigger is gone; the process dies at each place of a redrive."""
    bad = event(name=f"G2{dice.randrange(10**9)}")
    world.rows(
        "CREATE OR REPLACE FUNCTION shop.cancel() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "RAISE EXCEPTION 'planted' USING ERRCODE = '57014'; END $$"
    )
    world.rows(
        "CREATE TRIGGER cancel BEFORE INSERT ON shop.effect FOR EACH ROW "
        f"WHEN (NEW.event_id = '{bad['id']}') EXECUTE FUNCTION shop.cancel()"
    )
    processor, firings = world.parts["processor"], []
    try:
        post_until_taken(world, body_of(bad))
        wait_for(lambda: state_of(world, bad["id"]) == "parked", limit_seconds=PARKED_SECONDS, what="it is parked")
        for point in POINTS:
            processor.arm(point, "kill9")
            let_lease_run_out(world)
            firings.append(processor.wait_fired())
            assert processor.wait_ended() == -signal.SIGKILL
            world.restart("processor")
    finally:
        world.rows("DROP TRIGGER cancel ON shop.effect")
    let_lease_run_out(world)
    wait_for(lambda: state_of(world, bad["id"]) == "processed", limit_seconds=PARKED_SECONDS, what="it is processed")
    wait_processed(world)
    return " then ".join(str(firing) for firing in firings)
